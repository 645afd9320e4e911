"""A multi-rank training run with a known truth, written as nsys exports or as torch traces.

Ranks take turns at phases: each computes, arrives at a collective of its group, and leaves it with
the others, one transfer after the last arrival. So waits, lateness and bandwidth follow from the
numbers given here. A kernel of `HIDDEN_NS` on a second stream ends with every collective, so that
each rank hides equally much of the transfer itself.
"""

import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.traces.nsys import NsysExport
from tests.traces.torch import TorchTrace, collective

MS = 1_000_000
MIB = 1 << 20
HIDDEN_NS = 1 * MS
GAP_NS = 20_000
GEMM, ADAM = "void gemm<float>(int)", "void adam_kernel(float*)"
UTC_NS = 1_700_000_000_000_000_000
START_NS = 50 * MS

ARGUMENTS = "(ncclDevKernelArgsStorage<4096ul>)"
KERNELS = {
    "all_reduce": f"ncclDevKernel_AllReduce_Sum_bf16_RING_LL{ARGUMENTS}",
    "all_gather": f"ncclDevKernel_AllGather_RING_LL{ARGUMENTS}",
    "reduce_scatter": f"ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL{ARGUMENTS}",
    "all_to_all": f"ncclDevKernel_SendRecv{ARGUMENTS}",
}
CALLS = {
    "all_reduce": ("ncclAllReduce", 5),
    "all_gather": ("ncclAllGather", 4),
    "reduce_scatter": ("ncclReduceScatter", 7),
    "all_to_all": ("ncclAlltoAll", 16),
}
TORCH_NAMES = {
    "all_reduce": "allreduce",
    "all_gather": "_allgather_base",
    "reduce_scatter": "_reduce_scatter_base",
    "all_to_all": "all_to_allv",
}


@dataclass(frozen=True)
class Phase:
    """Compute, then a collective of S bytes that takes so long once all are there."""

    op: str
    size: int
    transfer_ns: int
    compute_ns: int = 5 * MS
    group: str = "world"


STEP = (
    Phase("all_reduce", 256 * MIB, 10 * MS, compute_ns=20 * MS),
    Phase("all_gather", 128 * MIB, 4 * MS),
    Phase("reduce_scatter", 128 * MIB, 4 * MS),
)


@dataclass(frozen=True)
class Operation:
    """One kernel of one rank; a collective knows its phase."""

    name: str
    start_ns: int
    end_ns: int
    stream: int
    launch_ns: int
    step: int
    phase: Phase | None = None
    size: int = 0


@dataclass
class Workload:
    """What runs; `run` makes the operations of every rank on true time.

    `delay` tells by how much a rank's lead to a phase is prolonged, and how: (ns, cause), of
    compute, imbalance, launch, copy.
    """

    ranks: int = 8
    per_node: int = 4
    steps: int = 10
    phases: Sequence[Phase] = STEP
    groups: dict[str, list[list[int]]] = field(default_factory=dict)
    delay: Callable[[int, int, int], tuple[int, str]] = lambda rank, step, phase: (0, "compute")
    node_offset_ns: int = 3 * MS
    sizes: Callable[[int, int, Phase], int] = lambda rank, step, phase: phase.size
    transfer: Callable[[int, Phase], int] = lambda step, phase: phase.transfer_ns
    dtype: str = "BFloat16"
    slow: Callable[[list[int]], int] = lambda members: 1
    gpu: str | None = "NVIDIA H100 80GB HBM3"
    overlapped: bool = False  # the next phase computes while a collective runs

    def members(self, rank: int, group: str) -> list[int]:
        if group == "world":
            return list(range(self.ranks))
        return next(ranks for ranks in self.groups[group] if rank in ranks)

    def run(self) -> dict[int, list[Operation]]:
        now = dict.fromkeys(range(self.ranks), START_NS)
        self._free = dict(now)
        done: dict[int, list[Operation]] = {rank: [] for rank in range(self.ranks)}
        for step in range(self.steps):
            for number, phase in enumerate(self.phases):
                for rank in range(self.ranks):
                    now[rank] = self._compute(done[rank], rank, step, number, now[rank])
                self._collect(done, now, step, phase)
        return done

    def _compute(self, done: list[Operation], rank: int, step: int, number: int, start: int) -> int:
        phase = self.phases[number]
        extra, cause = self.delay(rank, step, number)
        host = start - 10_000
        length = phase.compute_ns + (extra if cause == "compute" else 0)
        done.append(Operation(GEMM, start, start + length, 7, host, step))
        end = start + length
        if extra and cause == "imbalance":
            done.append(Operation(ADAM, end, end + extra, 7, host, step))
        if extra and cause == "copy":
            done.append(Operation("copy", end, end + extra, 7, host, step))
        return end + (extra if cause != "compute" else 0) + GAP_NS

    def _collect(
        self, done: dict[int, list[Operation]], now: dict[int, int], step: int, phase: Phase
    ) -> None:
        # A stream runs one after the other: a collective waits for the one before.
        arrived = {rank: max(now[rank], self._free[rank]) for rank in now}
        for rank in range(self.ranks):
            members = self.members(rank, phase.group)
            length = self.transfer(step, phase) * self.slow(members)
            end = max(arrived[r] for r in members) + length
            start = arrived[rank]
            self._free[rank] = end
            done[rank].append(
                Operation(KERNELS[phase.op], start, end, 16, start - 5_000, step, phase,
                          self.sizes(rank, step, phase))
            )  # fmt: skip
            done[rank].append(Operation(GEMM, end - HIDDEN_NS, end, 8, start - 4_000, step))
            now[rank] = now[rank] if self.overlapped else end + GAP_NS

    def node(self, rank: int) -> int:
        return rank // self.per_node

    def comm_hash(self, rank: int, group: str) -> int:
        members = self.members(rank, group)
        return 0xABC0_0000_0000_0000 + zlib.crc32(repr((group, members)).encode())

    def write_nsys(
        self,
        folder: Path,
        *,
        together: bool = False,
        keep: Callable[[int, Operation, int], bool] = lambda rank, op, nth: True,
        only: Sequence[int] | None = None,
        old: bool = False,
    ) -> list[Path]:
        """An export per rank, or with `together` one per node; `keep` drops records of a rank."""
        operations = self.run()
        chosen = range(self.ranks) if only is None else only
        files: dict[str, list[int]] = {}
        for rank in chosen:
            files.setdefault(f"node{self.node(rank)}" if together else f"part_{rank}", []).append(
                rank
            )
        paths = []
        for name, ranks in files.items():
            node = self.node(ranks[0])
            export = NsysExport().capture(
                host=f"host-{node}", utc_ns=UTC_NS + node * self.node_offset_ns
            )
            for rank in ranks:
                kept = [op for nth, op in enumerate(operations[rank]) if keep(rank, op, nth)]
                self._add_rank(export, rank, kept, old=old)
            paths.append(export.write(folder / f"{name}.sqlite"))
        return paths

    def _add_rank(
        self, export: NsysExport, rank: int, operations: list[Operation], *, old: bool
    ) -> None:
        pid = 100 + rank
        export.nccl_domain(pid=pid)
        for step in sorted({op.step for op in operations}):
            mine = [op.launch_ns for op in operations if op.step == step]
            export.range(f"step {step}", min(mine) - 1000, max(mine) + 1000, pid=pid)
        for op in operations:
            if op.name == "copy":
                export.copy("HtoD", op.start_ns, op.end_ns, pid=pid, launch=op.launch_ns)
                continue
            if op.phase is not None:
                self._call(export, rank, op, pid, old=old)
            export.kernel(
                op.name, op.start_ns, op.end_ns, pid=pid, stream=op.stream, launch=op.launch_ns
            )
        last = max(op.end_ns for op in operations)
        for number, group in enumerate(["world", *self.groups]):
            members = self.members(rank, group)
            who = (self.comm_hash(rank, group), len(members), members.index(rank), 0)
            payload = (
                struct.pack("<iii", who[2], who[1], 0) if old else struct.pack("<Qiii4x", *who)
            )
            export.nccl("ncclCommDestroy", 2, payload, last + 1000 * number, pid=pid)

    def _call(self, export: NsysExport, rank: int, op: Operation, pid: int, *, old: bool) -> None:
        assert op.phase is not None
        name, number = CALLS[op.phase.op]
        n = len(self.members(rank, op.phase.group))
        stated = op.size if op.phase.op == "all_reduce" else op.size // n
        comm = b"" if old else struct.pack("<Q", self.comm_hash(rank, op.phase.group))
        plain = op.phase.op in {"all_gather", "all_to_all"}
        rest = b"" if plain else struct.pack("<i", 0) + b"\x77\x7f\x00\x00"
        export.nccl(
            name, number, comm + struct.pack("<Q", stated) + rest, op.launch_ns - 100, pid=pid
        )

    def write_torch(
        self,
        folder: Path,
        *,
        keep: Callable[[int, Operation, int], bool] = lambda rank, op, nth: True,
        only: Sequence[int] | None = None,
        cut_lists: bool = False,
    ) -> list[Path]:
        """A trace per rank; groups are named 0, 1, ... on every rank, whatever their ranks."""
        operations = self.run()
        element = 1 if "Float8" in self.dtype else 2
        paths = []
        for rank in range(self.ranks) if only is None else only:
            named = {group: str(n) for n, group in enumerate(["world", *self.groups])}
            configured = [
                {"pg_name": named[g], "pg_desc": g, "pg_size": len(self.members(rank, g)),
                 "ranks": self.members(rank, g)}
                for g in named
            ]  # fmt: skip
            node = self.node(rank)
            trace = TorchTrace(
                rank=rank, world_size=self.ranks, groups=configured, host_name=f"host-{node}",
                base_ns=UTC_NS + node * self.node_offset_ns, gpu=self.gpu,
            )  # fmt: skip
            kept = [op for nth, op in enumerate(operations[rank]) if keep(rank, op, nth)]
            for step in sorted({op.step for op in kept}):
                mine = [op.launch_ns for op in kept if op.step == step]
                trace.annotation(f"ProfilerStep#{step}", min(mine) - 1000, max(mine) + 1000)
            for op in kept:
                place = {"stream": op.stream, "launch": op.launch_ns}
                if op.name == "copy":
                    trace.copy("Memcpy HtoD (Pinned -> Device)", op.start_ns, op.end_ns, **place)
                    continue
                said = {}
                if op.phase is not None:
                    members = self.members(rank, op.phase.group)
                    inward, outward = _elements(op, len(members), element)
                    said = collective(
                        TORCH_NAMES[op.phase.op], inward, out=outward, dtype=self.dtype,
                        group=named[op.phase.group], ranks=tuple(members),
                    )  # fmt: skip
                    if cut_lists:
                        said["Process Group Ranks"] = "[0, 1, ..., 29, ...]"
                trace.kernel(op.name, op.start_ns, op.end_ns, **place, **said)
            paths.append(trace.write(folder / f"trace_{rank}.json"))
        return paths


def _elements(op: Operation, n: int, element: int) -> tuple[int, int]:
    assert op.phase is not None
    whole, share = op.size // element, op.size // n // element
    return {
        "all_gather": (share, whole), "reduce_scatter": (whole, share),
    }.get(op.phase.op, (whole, whole))  # fmt: skip


def late(
    ranks: Sequence[int], ns: int = 20 * MS, cause: str = "compute", phase: int = 0
) -> Callable[[int, int, int], tuple[int, str]]:
    """Ranks that are late at one phase of every step."""
    return lambda rank, step, number: (ns if rank in ranks and number == phase else 0, cause)
