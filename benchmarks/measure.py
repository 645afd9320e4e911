"""Runs commands in turn and prints their wall time and peak memory beside each other."""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Measured:
    """One finished command: wall time [s] and the peak memory of its process [bytes]."""

    wall_s: float
    peak_bytes: int


def run(command: Sequence[str]) -> Measured:
    """Returns: the wall time and peak memory of a command that must succeed."""
    # The peak of a child counts that of the process it was forked from: a small one between them.
    done = subprocess.run(
        [sys.executable, __file__, *command], stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}")
    wall_s, peak_bytes = done.stdout.split()
    return Measured(float(wall_s), int(peak_bytes))


def _watch(command: Sequence[str]) -> int:
    """Prints wall time [s] and peak memory [bytes] of a command. Returns: its exit status."""
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    print(time.perf_counter() - begin, usage.ru_maxrss * 1024)
    return os.waitstatus_to_exitcode(status)


def side_by_side(commands: dict[str, Sequence[str]], *, rounds: int) -> dict[str, list[Measured]]:
    """Returns: the runs of every command, taken in turn so that a slow moment hits all alike."""
    results: dict[str, list[Measured]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            results[name].append(run(command))
    return results


def show(results: dict[str, list[Measured]], subject: str) -> None:
    """Prints the median of each command, and the subject's ratio to it, round by round."""
    print(f"{'':<16}{'wall, median':>14}{'peak memory':>14}{f'{subject} / it':>24}")
    for name, runs in results.items():
        wall = statistics.median(m.wall_s for m in runs)
        peak = max(m.peak_bytes for m in runs) / 1e6
        ratios = [a.wall_s / b.wall_s for a, b in zip(results[subject], runs, strict=True)]
        spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
        print(f"{name:<16}{wall:>12.2f} s{peak:>11.0f} MB{spread:>24}")


if __name__ == "__main__":
    sys.exit(_watch(sys.argv[1:]))
