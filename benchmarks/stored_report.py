"""The report of a stored run of 8 ranks with 1 million kernels each, beside a bare scan of them.

Usage: python benchmarks/stored_report.py [RANKS KERNELS]

The scan is DuckDB's own, of rank, name, start and end of every operation of the same file: what any
answer about all kernels has to pay.
"""

import os
import shutil
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from pathlib import Path

from generate_nsys import generate
from measure import show, side_by_side

from traceq.config import ReadOptions
from traceq.ingest.pipeline import cores
from traceq.store import Store, StoredRun

RANKS, KERNELS = 8, 1_000_000
NAME = "large"
ROUNDS = 9
SCAN = """
import sys, duckdb
duckdb.connect(sys.argv[1], read_only=True).execute(
    "SELECT rank, name_id, sum(end_ns - start_ns) FROM device_ops GROUP BY ALL").fetchall()
"""


def store_large(folder: Path, ranks: int = RANKS, kernels: int = KERNELS) -> StoredRun:
    """Returns: a run of so many ranks and kernels of each, in a store in the folder."""
    sources = folder / "sources"
    sources.mkdir()
    paths = [sources / f"rank{rank}.sqlite" for rank in range(ranks)]
    with ProcessPoolExecutor(cores()) as pool:
        list(pool.map(generate, paths, repeat(kernels), range(ranks), repeat(ranks)))
    options = ReadOptions(rank_map={path.name: k for k, path in enumerate(paths)})
    stored = Store(folder / "store").ingest(paths, name=NAME, options=options, jobs=cores())
    shutil.rmtree(sources)
    return stored.run


def main() -> None:
    """Makes the run, then measures both in turn."""
    ranks, kernels = (int(n) for n in sys.argv[1:] or (RANKS, KERNELS))
    with tempfile.TemporaryDirectory() as name:
        run = store_large(Path(name), ranks, kernels)
        size = run.path.stat().st_size / 1e6
        print(f"{ranks} ranks with {kernels:,} kernels each: a run file of {size:.0f} MB")
        os.environ["TRACEQ_STORE"] = str(Path(name) / "store")
        commands = {
            "traceq report": [sys.executable, "-m", "traceq", "report", NAME],
            "duckdb scan": [sys.executable, "-c", SCAN, str(run.path)],
        }
        show(side_by_side(commands, rounds=ROUNDS), "traceq report")


if __name__ == "__main__":
    main()
