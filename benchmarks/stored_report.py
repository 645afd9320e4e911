"""The report of a kept run of 8 ranks with 1 million kernels each, beside a bare scan of them.

Usage: python benchmarks/stored_report.py [RANKS KERNELS]

The scan is DuckDB's own, of start, end, name and rank of every operation of the same file: what any
answer about all kernels has to pay.
"""

import shutil
import sys
import tempfile
from pathlib import Path

from generate_nsys import generate
from measure import show, side_by_side

from traceq.config import ReadOptions
from traceq.ingest.pipeline import cores, ingest_run

ROUNDS = 5
SCAN = """
import sys, duckdb
duckdb.connect(sys.argv[1], read_only=True).execute(
    "SELECT rank, name_id, sum(end_ns - start_ns) FROM device_ops GROUP BY ALL").fetchall()
"""


def main() -> None:
    """Makes the run, then measures both in turn."""
    ranks, kernels = (int(n) for n in sys.argv[1:] or (8, 1_000_000))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        first = folder / "rank0.sqlite"
        generate(first, kernels)
        paths = [first, *(folder / f"rank{rank}.sqlite" for rank in range(1, ranks))]
        for path in paths[1:]:
            shutil.copyfile(first, path)
        options = ReadOptions(rank_map={path.name: k for k, path in enumerate(paths)}, nranks=ranks)
        ingest_run(paths, folder / "run.duckdb", options=options, jobs=cores())
        size = (folder / "run.duckdb").stat().st_size / 1e6
        print(f"{ranks} ranks with {kernels:,} kernels each: a run file of {size:.0f} MB")
        run = str(folder / "run.duckdb")
        commands = {
            "traceq report": [sys.executable, "-m", "traceq", "report", run],
            "duckdb scan": [sys.executable, "-c", SCAN, run],
        }
        show(side_by_side(commands, rounds=ROUNDS), "traceq report")


if __name__ == "__main__":
    main()
