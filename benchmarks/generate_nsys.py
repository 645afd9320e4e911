"""Generates a large Nsight Systems export: python benchmarks/generate_nsys.py PATH KERNELS."""

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

_PROCESS = (1 << 56) + (1 << 48) + (4242 << 24)
_THREAD = _PROCESS + 4242
_NAMES = 40
_PERIOD_NS = 3_000
_EVERY = 50  # each 50th kernel is an all_reduce on its own stream
_SCHEMA = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (
    start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
    contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL,
    correlationId INTEGER, globalPid INTEGER, demangledName INTEGER NOT NULL,
    shortName INTEGER NOT NULL, mangledName INTEGER, launchType INTEGER, cacheConfig INTEGER,
    registersPerThread INTEGER NOT NULL, gridX INTEGER NOT NULL, gridY INTEGER NOT NULL,
    gridZ INTEGER NOT NULL, blockX INTEGER NOT NULL, blockY INTEGER NOT NULL,
    blockZ INTEGER NOT NULL, staticSharedMemory INTEGER NOT NULL,
    dynamicSharedMemory INTEGER NOT NULL, localMemoryPerThread INTEGER NOT NULL,
    localMemoryTotal INTEGER NOT NULL, gridId INTEGER NOT NULL, sharedMemoryExecuted INTEGER,
    graphNodeId INTEGER, sharedMemoryLimitConfig INTEGER
);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (
    start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL, globalTid INTEGER,
    correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL,
    callchainId INTEGER
);
CREATE TABLE TARGET_INFO_GPU (vmId INTEGER NOT NULL, id INTEGER NOT NULL, name TEXT);
INSERT INTO TARGET_INFO_GPU VALUES (1, 0, 'NVIDIA H100 80GB HBM3');
"""


def generate(path: Path, kernels: int) -> None:
    """Writes an export with that many kernels and as many API calls; 350 MB for 3 million."""
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = off")
        connection.execute("PRAGMA synchronous = off")
        connection.executescript(_SCHEMA)
        names = [(1, "cudaLaunchKernel_v7000"), (100, "ncclDevKernel_AllReduce_Sum_f32_RING_LL")]
        names += [(100 + k, f"void kernel_{k}<float, {k}>(float*)") for k in range(1, _NAMES)]
        connection.executemany("INSERT INTO StringIds VALUES (?, ?)", names)
        connection.executemany(
            f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({', '.join('?' * 28)})",
            _kernels(kernels),
        )
        connection.executemany(
            "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            _calls(kernels),
        )
        connection.commit()


def _kernels(count: int) -> Iterator[tuple[int | None, ...]]:
    for k in range(count):
        start = 10**9 + k * _PERIOD_NS
        comm = k % _EVERY == 0
        length, stream, name = (40_000, 16, 100) if comm else (2_500, 7, 101 + k % (_NAMES - 1))
        yield (
            start, start + length, 0, 1, None, stream, k + 1, _PROCESS, name, name, name, 1, 1, 32,
            128, 1, 1, 128, 1, 1, 0, 0, 0, 1 << 20, k, 32768, None, 0,
        )  # fmt: skip


def _calls(count: int) -> Iterator[tuple[int | None, ...]]:
    for k in range(count):
        start = 10**9 + k * _PERIOD_NS - 20_000
        yield start, start + 1_500, 0, _THREAD, k + 1, 1, 0, None


if __name__ == "__main__":
    generate(Path(sys.argv[1]), int(sys.argv[2]))
