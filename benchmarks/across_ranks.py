"""What crosses ranks, from 64 to 1024 of them with 2000 collectives each, and how it grows.

Usage: python benchmarks/across_ranks.py [RANKS ...]

The rank tables are generated directly, as readers hand them on. Each size runs in a process of its
own, so that its peak memory is its own.
"""

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

from traceq.config import ReadOptions
from traceq.ingest.baselines import BASELINE_SCHEMA
from traceq.ingest.publish import Heading, write_run
from traceq.ingest.tables import (
    COMM_SCHEMA,
    NAMES_SCHEMA,
    OPS_SCHEMA,
    RankTable,
    SourceFacts,
    SourceTables,
)
from traceq.ingest.timings import TIMINGS_SCHEMA, stream_table
from traceq.query import run_query
from traceq.runfile import create, open_run

CALLS = 2000
STEPS = 100
SPACING_NS = 10_000_000
TRANSFER_NS = 2_000_000
PER_NODE = 8
LATE_RANK = 5
NAME = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"
GROWTH = (64, 256, 1024)


def source(rank: int, ranks: int, folder: Path) -> SourceTables:
    """Returns: the tables of one rank; one of them arrives late every time."""
    chance = np.random.default_rng(rank)
    arrival = chance.integers(0, 500_000, CALLS)
    if rank == LATE_RANK:
        arrival += 1_000_000
    end = np.arange(1, CALLS + 1, dtype=np.int64) * SPACING_NS + 3 * rank % 1000
    comm = pl.DataFrame(
        {
            "key": 0, "stream": 16, "step": np.arange(CALLS) * STEPS // CALLS,
            "start_ns": end - TRANSFER_NS - 1_500_000 + arrival, "end_ns": end, "local_id": 0,
            "op": "all_reduce", "comm_id": "0xabc", "group_size": ranks, "bytes": 1 << 26,
            "lead_compute_ns": 1_000_000 + arrival, "lead_comm_ns": 0, "lead_copy_ns": 0,
            "lead_idle_ns": 0, "lead_ops": 1, "lead_signature": 1, "exposed_ns": TRANSFER_NS,
        }
    )  # fmt: skip
    lacking = [
        pl.lit(None, kind).alias(n) for n, kind in COMM_SCHEMA.items() if n not in comm.columns
    ]
    comm = comm.with_columns(lacking).select(COMM_SCHEMA.keys()).cast(COMM_SCHEMA)
    part = folder / f"{rank}.parquet"
    pl.DataFrame(schema=OPS_SCHEMA).write_parquet(part)
    last = int(end[-1])
    window = {"scope": "capture", "start_ns": 0, "end_ns": last, "window_ns": last, "comm_ns": 1}
    timings = pl.DataFrame([window]).select(
        pl.lit(window[n]).cast(kind).alias(n) if n in window else pl.lit(None, kind).alias(n)
        for n, kind in TIMINGS_SCHEMA.items()
    )
    table = RankTable(
        pid=rank, device=0, device_kind="gpu", gpu_name="NVIDIA H100 80GB HBM3", rank=rank,
        rank_source="torch", local_rank=None, first_ns=0, timings=timings, streams=stream_table([]),
    )  # fmt: skip
    names = pl.DataFrame(
        [(0, NAME, NAME, "comm", "nccl", "all_reduce")], schema=NAMES_SCHEMA, orient="row"
    )
    facts = SourceFacts(f"{rank}.json", "torch", host_key=f"{rank // PER_NODE}", utc_origin_ns=0,
                        world_size=ranks)  # fmt: skip
    return SourceTables(facts, [table], names, comm, part)


def measure(ranks: int) -> None:
    """Prints seconds of matching and writing, seconds of the queries, and the peak [MB]."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sources = [source(rank, ranks, folder) for rank in range(ranks)]
        begin = time.perf_counter()
        with create(folder / "run.duckdb") as writer:
            heading = Heading("bench", ReadOptions(), pl.DataFrame(schema=BASELINE_SCHEMA))
            write_run(writer, sources, [], heading)
        reduced = time.perf_counter()
        with open_run(folder / "run.duckdb") as run:
            verdict = run_query(run, "stragglers").filter("straggler")["rank"].to_list()
            matched = run_query(run, "busbw")["collective_count"].to_list()
        asked = time.perf_counter()
    assert (verdict, matched) == ([LATE_RANK], [CALLS]), (verdict, matched)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{reduced - begin:.2f} {asked - reduced:.2f} {peak:.0f}")


def main() -> None:
    """Measures each number of ranks in a process of its own."""
    if sys.argv[1:2] == ["--one"]:
        measure(int(sys.argv[2]))
        return
    sizes = [int(n) for n in sys.argv[1:]] or list(GROWTH)
    print(
        f"{'ranks':>6} {'operations':>11} {'match s':>8} {'query s':>8} {'peak MB':>8} {'us/op':>6}"
    )
    first = None
    for ranks in sizes:
        command = [sys.executable, __file__, "--one", str(ranks)]
        told = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
        match, query, peak = (float(n) for n in told)
        each = (match + query) / (ranks * CALLS) * 1e6
        first = first or each
        print(
            f"{ranks:>6} {ranks * CALLS:>11,} {match:>8.2f} {query:>8.2f} {peak:>8.0f} {each:>6.2f}"
            f"  {each / first:.2f}x per operation"
        )


if __name__ == "__main__":
    main()
