"""The command line, run from start to end: in this process, or in one of its own."""

import io
import os
import signal
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from traceq.cli import main


@dataclass(frozen=True)
class Done:
    """How a command ended: its exit status, and what it printed."""

    returncode: int
    stdout: str
    stderr: str


def traceq(*arguments: object, cwd: Path | None = None) -> Done:
    """Runs a command here, where an error that is not ours ends the test with its traceback."""
    out, errors = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    status = 0
    try:
        with (
            patch.object(sys, "argv", ["traceq", *map(str, arguments)]),
            chdir(cwd or Path.cwd()),
            redirect_stdout(out),
            redirect_stderr(errors),
        ):
            main()
    except SystemExit as ended:
        status = int(ended.code or 0)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    return Done(status, _text(out), _text(errors))


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    raw = stream.detach()
    assert isinstance(raw, io.BytesIO)
    return raw.getvalue().decode()


def traceq_process(*arguments: object, cwd: Path | None = None) -> Done:
    """Runs a command as a user does, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "traceq", *map(str, arguments)],
        capture_output=True, text=True, check=False, cwd=cwd, timeout=120, env=os.environ,
    )  # fmt: skip
    return Done(done.returncode, done.stdout, done.stderr)
