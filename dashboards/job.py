"""A process that reads uploaded files into the store, as the server sees it."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_PATIENCE_S = 5.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a reading.

    Attributes:
        run: name of the run, None when there is none.
        created: False when the store held these files already.
        errors: lines in the words of the command line.
        again: whether the same files can be read again, under another name.
    """

    run: str | None = None
    created: bool = False
    errors: list[str] = field(default_factory=list)
    again: bool = False


class Job:
    """One reading; it ends when its server does."""

    def __init__(
        self,
        store: Path,
        files: Sequence[Path],
        *,
        name: str | None,
        options: dict[str, Any],
    ) -> None:
        self.file_name, self.share = "", 0.0
        self.outcome: Outcome | None = None
        self.cancelled = False
        self._process = subprocess.Popen(
            [sys.executable, "-m", "traceq.dashboards.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        order = {"store": str(store), "files": list(map(str, files)), "name": name}
        assert self._process.stdin is not None  # noqa: S101 - it is a pipe
        self._process.stdin.write(json.dumps(order | {"options": options}) + "\n")
        self._process.stdin.flush()
        self._reader = threading.Thread(target=self._listen, name="reading", daemon=True)
        self._reader.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None  # noqa: S101 - it is a pipe
        outcome = None
        with self._process:  # closes its pipes, and waits for it
            for line in self._process.stdout:
                match _decoded(line):
                    case {"file": str(name), "share": float(share) | int(share)}:
                        self.file_name, self.share = name, share
                    case {"run": run, "created": created, "errors": errors, "again": again}:
                        outcome = Outcome(run, created, errors, again)
        status = self._process.returncode
        if outcome is None:
            lost = f"the reading ended with status {status}: try traceq ingest on the same files"
            outcome = Outcome(errors=["cancelled: nothing was kept" if self.cancelled else lost])
        self.outcome = outcome

    def cancel(self) -> None:
        """Ends the process and what it started, and waits for that."""
        if self._process.poll() is None:
            self.cancelled = True
            self._send(signal.SIGTERM)
            try:
                self._process.wait(_PATIENCE_S)
            except subprocess.TimeoutExpired:
                self._send(signal.SIGKILL)
        self._reader.join(_PATIENCE_S)

    def _send(self, number: signal.Signals) -> None:
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return


def _decoded(line: str) -> object:
    """Returns: what a line says; nothing where a library of the process printed it."""
    try:
        return json.loads(line)
    except ValueError:
        return None
