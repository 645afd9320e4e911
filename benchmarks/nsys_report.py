"""How long a report takes beside a bare scan of the columns it needs, on 3 million kernels.

    python benchmarks/nsys_report.py [KERNELS] [ROUNDS]

The limit is what any reader must pay: both scans read the same columns of the same file into Arrow
and do nothing with them.
"""

import sys
import tempfile
from pathlib import Path

from generate_nsys import generate
from measure import show, side_by_side

_KERNEL = (
    'globalPid, deviceId, contextId, streamId, start, "end", correlationId, graphNodeId, '
    "demangledName, shortName"
)
_SCANS = (
    f"SELECT {_KERNEL} FROM CUPTI_ACTIVITY_KIND_KERNEL",
    "SELECT globalTid, correlationId, start, nameId FROM CUPTI_ACTIVITY_KIND_RUNTIME",
)
_CONNECTORX = """
import sys, connectorx
for query in sys.argv[2:]:
    table = connectorx.read_sql("sqlite://" + sys.argv[1], query, return_type="arrow")
"""
_ADBC = """
import sys, adbc_driver_sqlite.dbapi as adbc
with adbc.connect("file:" + sys.argv[1] + "?mode=ro&immutable=1") as connection:
    for query in sys.argv[2:]:
        with connection.cursor() as cursor:
            cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": "65536"})
            cursor.execute(query)
            table = cursor.fetch_arrow_table()
"""


def main() -> None:
    kernels, rounds = (
        int(word) for word in (*sys.argv[1:], *("3000000", "5")[len(sys.argv) - 1 :])
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.sqlite"
        print(f"generating {kernels:,} kernels and as many API calls")
        generate(path, kernels)
        print(f"{path.stat().st_size / 1e6:.0f} MB\n")
        commands = {
            "traceq report": [sys.executable, "-m", "traceq", "report", str(path)],
            "connectorx": [sys.executable, "-c", _CONNECTORX, str(path), *_SCANS],
            "adbc": [sys.executable, "-c", _ADBC, str(path), *_SCANS],
        }
        show(side_by_side(commands, rounds=rounds), "traceq report")


if __name__ == "__main__":
    main()
