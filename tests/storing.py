"""Stores of the tests, and real processes that wait for a word before they ingest into them."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.traces.nsys import NsysExport
from traceq.store import Store

ENTRY = """
import sys
# What takes long, and touches no store.
import traceq.ingest.pipeline, traceq.store, traceq.render.runs
from traceq.cli import main
{more}
print("ready", flush=True)
sys.stdin.readline()
main()
"""


@dataclass(frozen=True)
class Place:
    """Where a store is: its folder, and the URL of its catalog, None for its own SQLite file."""

    folder: Path
    url: str | None

    def open(self) -> Store:
        return Store(self.folder, self.url)

    @property
    def environment(self) -> dict[str, str]:
        more = {"TRACEQ_STORE": str(self.folder)}
        if self.url is not None:
            more["TRACEQ_CATALOG"] = self.url
        # What these processes do is measured where tests do it in their own.
        kept = {name: v for name, v in os.environ.items() if not name.startswith("COVERAGE")}
        return kept | more


class Waiting:
    """A traceq process that has loaded all it needs, and begins its command at a word."""

    def __init__(
        self, place: Place, *words: object, more: str = "", tmp: Path | None = None
    ) -> None:
        environment = place.environment | ({"TMPDIR": str(tmp)} if tmp else {})
        self._process = subprocess.Popen(
            [sys.executable, "-c", ENTRY.format(more=more), *map(str, words)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=environment,
        )  # fmt: skip

    @property
    def pid(self) -> int:
        return self._process.pid

    def ready(self) -> Self:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line == "ready\n", line or (self._process.stderr and self._process.stderr.read())
        return self

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def end(self) -> tuple[int, str, str]:
        """Its status, and what it printed after the word."""
        out, errors = self._process.communicate(timeout=120)
        return self._process.returncode, out, errors

    def kill_after(self, delay_s: float) -> int:
        """Kills it so long after the word; its status, which is 0 when it had ended before."""
        time.sleep(delay_s)
        self._process.send_signal(signal.SIGKILL)
        return self.end()[0]


def tiny_source(path: Path, number: int = 0, kernels: int = 3) -> Path:
    """An export of one rank that differs from those of other numbers."""
    export = NsysExport().capture()
    for k in range(kernels):
        start = 1000 * k + 1000
        export.range(f"step {k}", start - 200, start - 50)
        export.kernel("gemm<f>", start, start + 100 + number, launch=start - 100)
    return export.write(path)


ZYGOTE = """
import json, os, sys
import alembic.command, duckdb, numpy, psycopg, rich.console, sqlalchemy.dialects.postgresql.psycopg
import traceq.catalog
from traceq.cli import main

def command(order):
    import traceq.ingest.pipeline, traceq.render.runs, traceq.store  # polars starts threads
    os.write(1, b"%d\\n" % os.getpid())
    for number, name in enumerate((os.devnull, os.devnull, order["errors"])):
        os.dup2(os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC), number)
    sys.argv, scope = ["traceq", *order["words"]], {}
    exec(order["more"], scope)
    try:
        main()
    except SystemExit as ended:
        print(scope.get("seen", ""), file=sys.stderr, flush=True)
        os._exit(ended.code or 0)

for line in sys.stdin:
    assert len(os.listdir("/proc/self/task")) == 1  # nothing that a fork would break
    child = os.fork()
    if child == 0:
        try:
            command(json.loads(line))
        finally:
            os._exit(99)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Starter:
    """Starts traceq commands, each a process of its own, without the time that imports take.

    A process that has loaded what starts no threads forks for each.

    Attributes:
        took_s: how long the last command took, once it had loaded the rest.
    """

    def __init__(self, place: Place, scratch: Path) -> None:
        scratch.mkdir()
        self.took_s = 0.0
        self._errors = scratch.with_name("errors")
        self._process = subprocess.Popen(
            [sys.executable, "-c", ZYGOTE], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True,
            env=place.environment | {"TMPDIR": str(scratch), "OPENBLAS_NUM_THREADS": "1"},
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=60)

    def run(
        self, *words: object, more: str = "", kill_after_s: float | None = None
    ) -> tuple[int, str]:
        """Status and last word of a command, which is killed so long after it began."""
        order = {"words": [*map(str, words)], "more": more, "errors": str(self._errors)}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        child, began = self._line(), time.monotonic()
        if kill_after_s is not None:
            time.sleep(kill_after_s)
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        status = self._line()
        self.took_s = time.monotonic() - began
        return status, self._errors.read_text().strip()

    def _line(self) -> int:
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())
