"""What a trace tells about itself, and what it cannot tell."""

import polars as pl

from traceq.errors import SourceError
from traceq.ingest.notes import launch_unknown, no_steps
from traceq.ingest.torch_profiler.columns import Columns
from traceq.ingest.torch_profiler.context import Assembled
from traceq.ingest.torch_profiler.stream import EventStream
from traceq.model.reasons import Diagnostic, Severity
from traceq.model.units import time_text

_LISTED = 3
CUT_HINT = "record a shorter window, and let the profiler finish writing before the job ends"
STEPS_HINT = "call profiler.step() after each step, or name the ranges with --step-pattern"
ARGS_HINT = "record with torch 2.2 or newer and record_shapes=True"


def nothing_to_measure(label: str, stream: EventStream, columns: Columns) -> SourceError:
    """Returns: the error of a trace without device rows and without gloo collectives."""
    counted = {kind: sum(f.height for f in frames) for kind, frames in columns.frames.items()}
    seen = f"{counted.get('cpu_op', 0)} operators and {counted.get('range', 0)} annotations"
    empty = "only metadata" if is_complete(stream) else "no event that can be read"
    what = seen if sum(counted.values()) else empty
    cut = "" if stream.closed else " and it is cut short"
    return SourceError(
        f"{label}: no GPU rows and no gloo collectives in this trace (it holds {what}){cut}: "
        "record with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]"
    )


def diagnose(
    stream: EventStream, columns: Columns, trace: Assembled, *, has_steps: bool
) -> list[Diagnostic]:
    """Returns: everything a reader of the numbers should know about this trace."""
    return [
        *_about_damage(stream),
        *_about_halves(columns.halves),
        *_about_times(trace),
        *_about_collectives(trace),
        *_about_launches(trace, has_steps=has_steps),
    ]


def is_complete(stream: EventStream) -> bool:
    """Returns: whether the trace was read whole."""
    return stream.closed and not stream.lost and stream.blocks.damage is None


def _about_damage(stream: EventStream) -> list[Diagnostic]:
    found = []
    if stream.followed:
        message = "something follows the end of the trace: it was not read"
        hint = "two runs may have written to one file: record them to files of their own"
        found.append(Diagnostic("trailing_content", Severity.ERROR, message, hint))
    elif stream.blocks.damage is not None or not stream.closed:
        fact = stream.blocks.damage or "it ends before its last bracket"
        message = f"the trace is cut short ({fact}): every event before the cut was kept"
        found.append(Diagnostic("truncated", Severity.ERROR, message, CUT_HINT))
    if stream.lost:
        where = f"the first at byte {stream.first_loss:,} of the plain trace"
        places = "1 place" if stream.lost == 1 else f"{stream.lost:,} places"
        message = f"events cannot be read in {places}, {where}"
        found.append(
            Diagnostic("events_unreadable", Severity.ERROR, message, None, count=stream.lost)
        )
    if stream.repaired:
        message = (
            f"{stream.repaired} events were read after mending control characters, lone "
            "backslashes, bytes that are not UTF-8, or NaN"
        )
        found.append(
            Diagnostic("events_repaired", Severity.INFO, message, None, count=stream.repaired)
        )
    return found


def _about_halves(halves: int) -> list[Diagnostic]:
    if not halves:
        return []
    message = (
        f"{halves} begins and ends of operations stand as events of their own: they were not read"
    )
    hint = "give the trace as the profiler wrote it, not as another tool converted it"
    return [Diagnostic("events_unread", Severity.ERROR, message, hint, count=halves)]


def _about_times(trace: Assembled) -> list[Diagnostic]:
    found = []
    if trace.elsewhere:
        message = f"{trace.elsewhere} operations left out: they are on a GPU that ran no kernel"
        found.append(Diagnostic("ops_skipped", Severity.INFO, message, None, count=trace.elsewhere))
    for (why,), group in trace.quarantined.group_by("why", maintain_order=True):
        worst = group.sort(pl.col("length_ns").abs(), descending=True, nulls_last=True).head(
            _LISTED
        )
        listed = ", ".join(
            f"{name[:40]} ({time_text(length)})"
            for name, length in worst.select("name", "length_ns").iter_rows()
        )
        message = f"{group.height} operations left out: {why}: {listed}"
        found.append(Diagnostic("ops_skipped", Severity.WARNING, message, None, count=group.height))
    return found


def _about_collectives(trace: Assembled) -> list[Diagnostic]:
    found = []
    unsized = sum(each.size is None for each in trace.described)
    if unsized:
        of = len(trace.described)
        message = f"message sizes of {unsized} of {of} communication operations are unknown"
        found.append(
            Diagnostic("size_unknown", Severity.WARNING, message, ARGS_HINT, count=unsized)
        )
    if trace.assumed_group:
        message = "the trace names no process groups: its collectives are taken to be of all ranks"
        found.append(Diagnostic("group_assumed", Severity.INFO, message, ARGS_HINT))
    return found


def _about_launches(trace: Assembled, *, has_steps: bool) -> list[Diagnostic]:
    found = []
    if trace.lost_graphs:
        message = (
            f"{trace.lost_graphs} CUDA graph launches left no kernel: "
            "communication inside them is not visible"
        )
        hint = "record without CUDA graphs, or capture with nsys and --cuda-graph-trace=node"
        found.append(
            Diagnostic("graph_hidden", Severity.ERROR, message, hint, count=trace.lost_graphs)
        )
    if not has_steps:
        found.append(no_steps(STEPS_HINT))
    if trace.unlinked:
        hint = "they were launched before the capture began"
        found.append(launch_unknown(trace.unlinked, trace.ops.height, hint))
    return found
