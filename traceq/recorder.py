"""Records per-rank torch.profiler traces with what traceq needs in them. Needs torch."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, schedule


class Recorder:
    """A recording under way: `step` ends a training step."""

    def __init__(self, profiler: Any) -> None:  # noqa: ANN401
        self._profiler = profiler

    def step(self) -> None:
        """Ends a training step, and begins the next."""
        self._profiler.step()


@contextmanager
def record(
    folder: str | Path = "traces", *, wait: int = 5, warmup: int = 2, active: int = 20
) -> Iterator[Recorder]:
    """Yields: a recorder that writes one trace of this rank to a folder.

    Of the training steps the first `wait` are left alone, `warmup` run with a profiler that keeps
    nothing, and `active` are recorded, with shapes, so that sizes and groups of collectives are in
    the trace. It is written as soon as these steps have ended, under its final name only when
    whole; steps after that cost nothing. It works alike under torchrun, DDP and FSDP, on GPUs and
    CPUs.

    Args:
        folder: where to write; made if missing. A trace of this rank there is replaced.
        wait: steps before.
        warmup: steps with a profiler that keeps nothing.
        active: steps to record.

    Example::

        with traceq.record("traces") as recorder:
            for batch in loader:
                train(batch)
                recorder.step()
    """
    folder = Path(folder)
    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    with profile(
        activities=activities,
        schedule=schedule(wait=wait, warmup=warmup, active=active, repeat=1),
        on_trace_ready=lambda profiler: _write(profiler, folder),
        record_shapes=True,
    ) as profiler:
        yield Recorder(profiler)


def this_rank() -> int:
    """Returns: the rank of this process, 0 where it is alone."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank()
    text = os.environ.get("RANK", "0")
    return int(text) if text.isdecimal() else 0


def _write(profiler: Any, folder: Path) -> None:  # noqa: ANN401
    folder.mkdir(parents=True, exist_ok=True)
    final = folder / f"rank{this_rank()}.json.gz"
    # The profiler compresses by the suffix, so the name under way has it too.
    under_way = folder / f".{final.stem}.{os.getpid()}.json.gz"
    profiler.export_chrome_trace(str(under_way))
    under_way.replace(final)
