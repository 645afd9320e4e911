"""What recording costs a training script: before and after its schedule, and inside it.

    python benchmarks/record_overhead.py [ROUNDS]

One process trains a small model; the ways alternate, so that a slow moment hits all alike. A step
is timed alone and the median taken, so that writing the trace, which happens once, is not in it.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch import nn

import traceq

STEPS = 200


def train(step: Callable[[], object], steps: int) -> float:
    """Returns: the median time of a step [s]."""
    torch.set_num_threads(1)
    model = nn.Sequential(*(nn.Linear(512, 512) for _ in range(8)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    times = []
    for _ in range(steps):
        begin = time.perf_counter()
        model(torch.randn(32, 512)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        step()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def main() -> None:
    """Prints the median of each way and its ratio to the plain script, round by round."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        ways = {
            "plain": None,
            "off schedule": {"wait": 10 * STEPS},
            "recording": {"wait": 0, "warmup": 0, "active": STEPS},
        }
        for _ in range(rounds):
            for name, schedule in ways.items():
                recording = nullcontext() if schedule is None else traceq.record(folder, **schedule)
                with recording as recorder:
                    step = recorder.step if recorder is not None else lambda: None
                    # The last step would write the trace.
                    found.setdefault(name, []).append(train(step, STEPS - 1))
    for name, times in found.items():
        ratios = [own / plain for own, plain in zip(times, found["plain"], strict=True)]
        print(
            f"{name:<14}{1e3 * statistics.median(times):>8.3f} ms  "
            f"{statistics.median(ratios):.3f} ({min(ratios):.3f}-{max(ratios):.3f})"
        )


if __name__ == "__main__":
    main()
