"""Starts the processes of a measurement on this machine, and ends all when one ends badly."""

import os
import uuid
from collections.abc import Callable
from typing import Any, TypeVar

from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from traceq.errors import TraceqError

Result = TypeVar("Result")


def under_torchrun() -> bool:
    """Returns: whether this process was started as one of several by a launcher."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def run_processes(entry: Callable[..., Result], processes: int, *arguments: Any) -> list[Result]:  # noqa: ANN401
    """Returns: what each process returned, by rank; here only one where a launcher began this.

    Args:
        entry: a function that every process can import and run.
        processes: how many to start.
        arguments: its arguments.

    Raises:
        TraceqError: a process failed or was killed; the others are ended.
    """
    if under_torchrun():
        return [entry(*arguments)]
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="127.0.0.1:0",
        max_restarts=0,
        start_method="spawn",
        monitor_interval=0.1,
    )
    try:
        results = elastic_launch(config, entry)(*arguments)
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        fact = (
            f"was killed by signal {-failure.exitcode}"
            if failure.exitcode < 0
            else f"failed: {_first_line(failure.message)}"
        )
        message = f"rank {rank} of {processes} {fact}: the others were ended"
        raise TraceqError(message) from error
    return [results[rank] for rank in range(processes)]


def _first_line(message: Any) -> str:  # noqa: ANN401
    text = message.get("message", "") if isinstance(message, dict) else str(message)
    return (text.strip().splitlines() or ["see its output above"])[0][:200]
