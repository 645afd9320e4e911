"""What each process of a bench does: joins the others, measures, and tells the times."""

import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from traceq.bench.trial import TRIALS, RingAllReduce, Trial
from traceq.errors import TraceqError
from traceq.model.collectives import Op
from traceq.model.units import size_text

_FACTS = (
    "NCCL_ALGO", "NCCL_BUFFSIZE", "NCCL_CROSS_NIC", "NCCL_IB_DISABLE", "NCCL_IB_HCA",
    "NCCL_MAX_NCHANNELS", "NCCL_MIN_NCHANNELS", "NCCL_NET_GDR_LEVEL", "NCCL_NVLS_ENABLE",
    "NCCL_P2P_DISABLE", "NCCL_PROTO", "NCCL_SHM_DISABLE", "NCCL_SOCKET_IFNAME",
)  # fmt: skip


_NICS = Path("/sys/class/infiniband")


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure.

    Attributes:
        ops: operations, by the name each has everywhere.
        sizes: sizes S to ask for [bytes].
        backend: `gloo` or `nccl`.
        algorithm: `library`, or `ring` for the all_reduce of sends and receives.
        iterations: timed calls of each size.
        warmup: calls before those.
        check: compare each result with what it should be.
        tell: say on stderr what is being measured.
    """

    ops: tuple[str, ...]
    sizes: tuple[int, ...]
    backend: str
    algorithm: str = "library"
    iterations: int = 20
    warmup: int = 5
    check: bool = True
    tell: bool = False


@dataclass(frozen=True, slots=True)
class Timed:
    """One operation of one size.

    Attributes:
        op: its name.
        size_bytes: S [bytes].
        count: elements as nccl-tests prints them [1].
        time_us: mean time over calls and ranks [us].
        wrong: elements of results that are wrong, over all ranks; None unless checked.
        sent_bytes: bytes this rank sent in a call, None where the library does not count them.
    """

    op: str
    size_bytes: int
    count: int
    time_us: float
    wrong: int | None
    sent_bytes: int | None


def work(plan: Plan) -> dict[str, Any]:
    """Returns: the times of all operations and sizes, and what is known of this process.

    Every rank returns the same times: the means over ranks.
    """
    dist.init_process_group(plan.backend)
    try:
        device = _device(plan.backend)
        torch.set_num_threads(1)
        rows = []
        for op in plan.ops:
            for size in plan.sizes:
                _tell(plan, f"{op} of {size_text(size)}")
                rows.append(asdict(_time(_trial(plan, op, size, device), plan)))
        _tell(plan, "")
        return {
            "rank": dist.get_rank(),
            "ranks": dist.get_world_size(),
            "nodes": _nodes(),
            "rows": rows,
            "facts": facts(plan.backend),
        }
    finally:
        dist.destroy_process_group()


def _tell(plan: Plan, what: str) -> None:
    if plan.tell and dist.get_rank() == 0:
        sys.stderr.write(f"\r\033[K{f'measuring {what}' if what else ''}")
        sys.stderr.flush()


def facts(backend: str) -> dict[str, Any]:
    """Returns: versions, devices and settings that explain a measurement, by an allow-list."""
    gpu = torch.cuda.get_device_name() if backend == "nccl" else None
    return {
        "torch": torch.__version__,
        "backend": backend,
        "nccl": _nccl_version() if backend == "nccl" else None,
        "gpu": gpu,
        "nics": sorted(nic.name for nic in _NICS.iterdir()) if _NICS.is_dir() else [],
        "settings": {name: os.environ[name] for name in _FACTS if name in os.environ},
    }


def _nodes() -> int:
    ranks = dist.get_world_size()
    return -(-ranks // int(os.environ.get("LOCAL_WORLD_SIZE", ranks)))


def _nccl_version() -> str:
    version: tuple[int, ...] = torch.cuda.nccl.version()  # type: ignore[no-untyped-call]
    return ".".join(map(str, version))


def default_backend() -> str:
    """Returns: `nccl` where there is a GPU for it, else `gloo`."""
    return "nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo"


def default_processes(backend: str) -> int:
    """Returns: one process for each GPU, or two on CPUs [1].

    Raises:
        TraceqError: nccl is asked for where there is no GPU.
    """
    if backend != "nccl":
        return 2
    if not torch.cuda.is_available():
        message = "nccl needs a GPU, and torch finds none: measure with --backend gloo"
        raise TraceqError(message)
    return torch.cuda.device_count()


def _device(backend: str) -> torch.device:
    if backend != "nccl":
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    return device


def _trial(plan: Plan, op: str, size: int, device: torch.device) -> Trial:
    if plan.algorithm == "ring" and op == Op.ALL_REDUCE:
        return RingAllReduce(size, device)
    return TRIALS[op](size, device)


def _time(trial: Trial, plan: Plan) -> Timed:
    for _ in range(plan.warmup):
        trial.run()
    _settle(trial.device)
    begin = time.perf_counter_ns()
    for _ in range(plan.iterations):
        trial.run()
    _finish(trial.device)
    mine = (time.perf_counter_ns() - begin) / plan.iterations / 1e3
    wrong = trial.wrong() if plan.check else 0
    told = torch.tensor([mine, float(wrong)], dtype=torch.float64, device=trial.device)
    dist.all_reduce(told)
    return Timed(
        op=trial.op.value,
        size_bytes=trial.size,
        count=trial.count,
        time_us=float(told[0]) / dist.get_world_size(),
        wrong=int(told[1]) if plan.check else None,
        sent_bytes=trial.sent_bytes,
    )


def _settle(device: torch.device) -> None:
    _finish(device)
    dist.barrier()
    _finish(device)


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
