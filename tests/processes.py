"""Ends one process of a command that has several, and tells what became of the others."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Ended:
    """How a command ended: its status, what it printed, and the processes it left."""

    status: int
    out: str
    errors: str
    left: list[int]


def kill_one(words: Sequence[object], *, ranks: int, after_s: float = 3) -> Ended:
    """Runs traceq, and kills one of its ranks after they have joined."""
    process = subprocess.Popen(
        [sys.executable, "-m", "traceq", *map(str, words)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    workers: list[int] = []
    while len(workers) < ranks and time.monotonic() < deadline:
        time.sleep(0.2)
        workers = [p for p in below(process.pid) if _is_rank(p)]
    assert len(workers) == ranks, "the ranks did not start"
    time.sleep(after_s)
    everyone = below(process.pid)
    os.kill(workers[1], signal.SIGKILL)
    out, errors = process.communicate(timeout=90)
    time.sleep(0.5)
    left = [p for p in everyone if _state(p) not in {"", "Z"}]
    return Ended(process.returncode, out, errors, left)


def below(pid: int) -> list[int]:
    """The processes under one, at any depth."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            fields = _fields(int(entry.name))
            if fields:
                parents[int(entry.name)] = int(fields[1])
    found, frontier = [], {pid}
    while frontier:
        frontier = {child for child, parent in parents.items() if parent in frontier}
        found += frontier
    return found


def _fields(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return []


def _state(pid: int) -> str:
    return (_fields(pid) or [""])[0]


def _is_rank(pid: int) -> bool:
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    started = any(each.startswith(b"LOCAL_RANK=") for each in variables)
    return started or b"spawn_main" in command
