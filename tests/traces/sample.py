"""The bundled sample: two ranks, four training steps, every number known by hand.

Each step lasts 0.95 ms on the device of rank 0 and 1.1 ms on that of rank 1; in us:

    rank 0   compute 0-600, all_reduce 400-900 on its own stream, copy 900-950
    rank 1   compute 0-700, all_reduce 400-900 on its own stream, copy 900-950, compute 1050-1100

so that per step, in us: rank 0 computes 600, communicates 500 (200 hidden, 300 exposed), copies 50
and idles 0 in its window of 950; rank 1 computes 750, communicates 500 (300 hidden, 200 exposed),
copies 50 and idles 100 in its window of 1100. Each all_reduce is of 64 MiB: 134.2 GB/s.
"""

import gzip
import struct
import sys
from pathlib import Path

from tests.traces.nsys import NsysExport

US = 1_000
STEPS = 4
PERIOD_US = 1_500
GEMM = "void cutlass::gemm_bf16<128, 256>(cutlass::Params)"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
COMMUNICATOR, SIZE = 0x5A3C_0000_0000_0001, 64 << 20
COMPUTE_STREAM, COMM_STREAM = 7, 16


def build(rank: int) -> NsysExport:
    """Returns: the export of one rank; both ranks ran as device 0 of their process."""
    export = NsysExport().capture(
        environment=f"RANK={rank};WORLD_SIZE=2;LOCAL_RANK={rank};HOME=/home/someone",
        EXPORT_PARAM_INCLUDE_BLOBS="true",
    )
    export.nccl_domain(pid=100 + rank)
    pid = 100 + rank
    compute_us = 600 if rank == 0 else 700
    for step in range(STEPS):
        zero = 10_000 * US + step * PERIOD_US * US
        at = {us: zero + us * US for us in (0, 400, 600, 700, 900, 950, 1050, 1100)}
        host = zero - 200 * US
        export.range(f"step {step}", host, host + 150 * US, pid=pid)
        export.kernel(GEMM, at[0], at[compute_us], pid=pid, launch=host + 10 * US)
        payload = struct.pack("<QQi4x", COMMUNICATOR, SIZE, 0)
        export.nccl("ncclAllReduce", 5, payload, host + 19 * US, pid=pid, length=3 * US)
        export.kernel(
            ALL_REDUCE, at[400], at[900], pid=pid, stream=COMM_STREAM, launch=host + 20 * US
        )
        export.copy("HtoD", at[900], at[950], pid=pid, launch=host + 30 * US, size=4096)
        if rank == 1:
            export.kernel(GEMM, at[1050], at[1100], pid=pid, launch=host + 40 * US)
    end = struct.pack("<Qiii4x", COMMUNICATOR, 2, rank, 0)
    return export.nccl("ncclCommDestroy", 2, end, 20_000 * US, pid=pid)


def write(folder: Path) -> list[Path]:
    """Writes rank0.sqlite.gz and rank1.sqlite.gz, and returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for rank in (0, 1):
        plain = build(rank).write(folder / f"rank{rank}.sqlite")
        packed = plain.with_suffix(".sqlite.gz")
        packed.write_bytes(gzip.compress(plain.read_bytes(), mtime=0))
        plain.unlink()
        paths.append(packed)
    return paths


if __name__ == "__main__":
    write(Path(sys.argv[1]))
