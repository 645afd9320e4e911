"""Generates a large Nsight Systems export: python benchmarks/generate_nsys.py PATH KERNELS."""

import sqlite3
import struct
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

_PROCESS = (1 << 56) + (1 << 48) + (4242 << 24)
_THREAD = _PROCESS + 4242
_NAMES = 40
_PERIOD_NS = 3_000
_EVERY = 50  # each 50th kernel is an all_reduce on its own stream
_STEPS, _LATE_RANK, _LATE_NS, _JITTER_NS = 100, 3, 9_000, 2_000
_PAYLOADS = {"ncclAllReduce": (200, 5, "<QQi4x"), "ncclCommDestroy": (201, 2, "<Qiii4x")}
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
_TOLD = """
CREATE TABLE META_DATA_EXPORT (name TEXT NOT NULL, value TEXT);
INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION', '3.27.0');
CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT);
INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1700000000000000000, NULL, NULL);
CREATE TABLE NVTX_EVENTS (
    start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER,
    category INTEGER, color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER,
    textId INTEGER, domainId INTEGER, uint64Value INTEGER, jsonTextId INTEGER, jsonText TEXT,
    binaryData TEXT
);
INSERT INTO StringIds VALUES (200, 'ncclAllReduce'), (201, 'ncclCommDestroy');
"""


def generate(path: Path, kernels: int, rank: int | None = None, ranks: int = 1) -> None:
    """Writes an export with that many kernels and as many API calls; 350 MB for 3 million.

    With a rank it tells when it was captured, marks steps, and NCCL's ranges carry sizes and
    communicators; ranks arrive at different times, one late each time, and leave together.
    """
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
            _kernels(kernels, rank),
        )
        connection.executemany(
            "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            _calls(kernels),
        )
        if rank is not None:
            connection.executescript(_TOLD)
            connection.executemany(
                f"INSERT INTO NVTX_EVENTS VALUES ({', '.join('?' * 15)})",
                _ranges(kernels, rank, ranks),
            )
        connection.commit()


def _kernels(count: int, rank: int | None) -> Iterator[tuple[int | None, ...]]:
    for k in range(count):
        start = 10**9 + k * _PERIOD_NS
        comm = k % _EVERY == 0
        length, stream, name = (40_000, 16, 100) if comm else (2_500, 7, 101 + k % (_NAMES - 1))
        if comm and rank is not None:
            late = (k * 7919 + rank * 104_729) % _JITTER_NS + _LATE_NS * (rank == _LATE_RANK)
            start, length = start + late, length - late
        yield (
            start, start + length, 0, 1, None, stream, k + 1, _PROCESS, name, name, name, 1, 1, 32,
            128, 1, 1, 128, 1, 1, 0, 0, 0, 1 << 20, k, 32768, None, 0,
        )  # fmt: skip


def _calls(count: int) -> Iterator[tuple[int | None, ...]]:
    for k in range(count):
        start = 10**9 + k * _PERIOD_NS - 20_000
        yield start, start + 1_500, 0, _THREAD, k + 1, 1, 0, None


def _ranges(count: int, rank: int, ranks: int) -> Iterator[tuple[int | str | bytes | None, ...]]:
    step = max(count // _STEPS, 1)
    for number, first in enumerate(range(0, count, step)):
        start = 10**9 + first * _PERIOD_NS - 21_000
        end = start + step * _PERIOD_NS - 500
        yield _range(start, end, text=f"step {number}")
    yield _range(-4_000_000, None, kind=75, text="NCCL", domain=1)
    for k in range(0, count, _EVERY):
        launch = 10**9 + k * _PERIOD_NS - 20_000
        yield _nccl("ncclAllReduce", launch - 300, 0xABC, 1 << 20, 0)
    yield _nccl("ncclCommDestroy", 10**9 + count * _PERIOD_NS, 0xABC, ranks, rank, 0)


def _nccl(name: str, start: int, *values: int) -> tuple[int | str | bytes | None, ...]:
    text_id, number, form = _PAYLOADS[name]
    payload = struct.pack(form, *values)
    blob = struct.pack("<4Q", 1, 0x1000000 + number, len(payload), 32) + payload
    return _range(start, start + 2_000, text_id=text_id, domain=1, blob=blob)


def _range(
    start: int,
    end: int | None,
    *,
    kind: int = 59,
    text: str | None = None,
    text_id: int | None = None,
    domain: int = 0,
    blob: bytes | None = None,
) -> tuple[int | str | bytes | None, ...]:
    return (
        start, end, kind, None, None, None, text, _THREAD, None, text_id, domain, None, None, None,
        blob,
    )  # fmt: skip


if __name__ == "__main__":
    generate(Path(sys.argv[1]), int(sys.argv[2]))
