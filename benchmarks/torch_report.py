"""How long a report of a large trace takes, beside the peer and beside the physical limit.

    python benchmarks/torch_report.py [EVENTS] [ROUNDS]

The peer is HolisticTraceAnalysis, asked for the overlap of communication and compute of the same
trace. The limit is what any reader must pay: decompress the file and parse its JSON once, with
simdjson, which makes no Python object of it. Then the report is measured on half and on double the
events, to see that its memory does not grow with the file.
"""

import sys
import tempfile
from pathlib import Path

from generate_torch import generate
from measure import run, show, side_by_side

_PEER = """
import sys
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="")
print(analysis.get_comm_comp_overlap(visualize=False))
"""
_LIMIT = """
import gzip, sys, simdjson
with gzip.open(sys.argv[1]) as file:
    document = simdjson.Parser().parse(file.read())
"""


def main() -> None:
    words = (*sys.argv[1:], *("4000000", "3")[len(sys.argv) - 1 :])
    events, rounds = (int(word) for word in words)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rank0.json.gz"
        plain = generate(path, events)
        packed = path.stat().st_size
        print(f"{events:,} events, {plain / 1e6:.0f} MB plain, {packed / 1e6:.0f} MB gzip\n")
        report = [sys.executable, "-m", "traceq", "report", str(path)]
        limit = [sys.executable, "-c", _LIMIT, str(path)]
        show(
            side_by_side({"traceq report": report, "gunzip+simdjson": limit}, rounds=rounds),
            "traceq report",
        )
        peer = [sys.executable, "-c", _PEER, str(path)]
        print()
        show(side_by_side({"traceq report": report, "HTA": peer}, rounds=1), "traceq report")
        print("\nmemory against size")
        for share in (0.5, 1, 2):
            plain = generate(path, round(events * share))
            measured = run(report)
            peak = measured.peak_bytes / 1e6
            print(f"{plain / 1e6:>8.0f} MB plain{measured.wall_s:>8.2f} s{peak:>8.0f} MB peak")


if __name__ == "__main__":
    main()
