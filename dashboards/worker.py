"""The process that reads uploaded files: python -m traceq.dashboards.worker.

Its first line of input is what to do, as JSON; when the input ends, its server has gone, and it
goes too. Each line of output is progress, {file, share}, or the end, {run, created, errors,
again}.
"""

import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from traceq.config import ReadOptions, checked
from traceq.errors import StoreError, TraceqError
from traceq.store import Store


def main() -> None:
    """Reads the files that the first line of input names, and says how that goes."""
    signal.signal(signal.SIGTERM, _end)
    order = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_server, daemon=True).start()
    _say(read(order))


def read(order: dict[str, Any]) -> dict[str, Any]:
    """Returns: the end of the reading: run, created, errors, again.

    Args:
        order: store, files, name, options.
    """
    try:
        stored = Store(Path(order["store"])).ingest(
            order["files"],
            name=order["name"],
            options=checked(ReadOptions(**order["options"])),
            jobs=None,
            on_progress=lambda file, share: _say({"file": file, "share": share}),
        )
    except TraceqError as error:
        again = isinstance(error, StoreError)
        return {"run": None, "created": False, "errors": str(error).splitlines(), "again": again}
    failures = [line for failure in stored.failures for line in str(failure).splitlines()]
    end = {"run": stored.run.name, "created": stored.created, "errors": failures}
    return end | {"again": False}


def _say(said: dict[str, Any]) -> None:
    print(json.dumps(said), flush=True)  # noqa: T201 - its output is how it answers


def _end(number: int, _: object) -> None:
    sys.exit(128 + number)


def _end_with_server() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
