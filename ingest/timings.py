"""The small tables of one rank: its windows with their accounting, and its streams."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from traceq.ingest.accounting import Intervals, Union, account
from traceq.model.timing import PARTS, RATIOS

TIMINGS_SCHEMA = pl.Schema(
    {
        "scope": pl.String,
        "step": pl.Int64,
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
        **dict.fromkeys(PARTS, pl.Int64),
        **dict.fromkeys(RATIOS, pl.Float64),
        "transfer_comm_ns": pl.Int64,
        "transfer_overlap_ns": pl.Int64,
        "transfer_overlap_ratio": pl.Float64,
        "reason": pl.String,
    }
)
_HOUR_NS = 3_600 * 10**9
_NEED_NAMES = ("compute_ns", "comm_ns", "overlap_ns", "exposed_comm_ns")


SPAN_SCHEMA = pl.Schema({"step": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64})


@dataclass(frozen=True, slots=True)
class Hidden:
    """Device work whose kernels the capture does not show.

    Attributes:
        spans: where it lies and which step launched it: step, start_ns, end_ns [ns].
        everywhere: work is hidden whose time is not known either.
    """

    spans: pl.DataFrame
    everywhere: bool = False

    def touches(self, windows: pl.DataFrame) -> pl.Series:
        """Returns: whether hidden work may lie in each window; shape (windows,).

        It does where it overlaps the window, and in the step that launched it.
        """
        if self.everywhere:
            return pl.Series([True] * windows.height, dtype=pl.Boolean)
        starts, ends = (np.sort(self.spans[name].to_numpy()) for name in ("start_ns", "end_ns"))
        begun = np.searchsorted(starts, windows["end_ns"].to_numpy(), side="left")
        ended = np.searchsorted(ends, windows["start_ns"].to_numpy(), side="right")
        launched = windows["step"].is_in(self.spans["step"].drop_nulls().implode())
        return pl.Series(begun > ended) | launched.fill_null(value=False)


NOTHING_HIDDEN = Hidden(pl.DataFrame(schema=SPAN_SCHEMA))


def longest_ns(starts: pl.Series) -> int:
    """Returns: how long a device operation can be at most, where nothing else says it [ns].

    That is twice the span of all starts, or an hour, which no collective outlives.
    """
    known = starts.drop_nulls().to_numpy()
    known = known[known > 0]
    span = int(known.max() - known.min()) if len(known) else 0
    return max(2 * span, _HOUR_NS)


def windows_of(
    ops: pl.DataFrame, hidden: Hidden = NOTHING_HIDDEN, placed: pl.DataFrame | None = None
) -> pl.DataFrame:
    """Returns: one row per window: scope, step, start_ns, end_ns: the capture, then the steps.

    The capture reaches from the first device start to the last device end; a step from the first
    to the last device operation that was launched inside it, or as the source places it: some
    place a step of milliseconds in microseconds, which is not believed. Hidden work is device work.

    Args:
        ops: start_ns, end_ns [ns], step; of one rank.
        hidden: device work without kernels.
        placed: step, start_ns, end_ns of steps that the source itself places on the device.
    """
    every = pl.concat([ops.select(SPAN_SCHEMA.keys()), hidden.spans])
    reach = pl.col("start_ns").min(), pl.col("end_ns").max()
    capture = every.select(*reach).select(
        pl.lit("capture").alias("scope"), pl.lit(None, pl.Int64).alias("step"), pl.all()
    )
    steps = every.drop_nulls("step").group_by("step").agg(*reach)
    if placed is not None:
        length, reached = (
            pl.col(f"end_ns{of}") - pl.col(f"start_ns{of}") for of in ("", "_reached")
        )
        believed = (
            placed.join(steps, on="step", how="left", suffix="_reached")
            .filter(reached.is_null() | (2 * length >= reached))
            .select(placed.columns)
        )
        steps = pl.concat([believed, steps.join(believed, on="step", how="anti")])
    steps = steps.sort("start_ns").select(pl.lit("step").alias("scope"), pl.all())
    return pl.concat([capture, steps])


@dataclass(frozen=True, slots=True)
class Activity:
    """The busy time of one class on one stream; the class is None where the name is unknown."""

    context: int | None
    stream: int
    activity: str | None
    ops: int
    union: Union


def activities(ops: pl.DataFrame) -> list[Activity]:
    """Returns: the busy time of each class on each stream of one rank.

    Args:
        ops: context, stream [id], start_ns, end_ns [ns], class (NULL when the name is unknown).
    """
    return [
        Activity(
            context, stream, name, group.height,
            Union.of(Intervals(group["start_ns"].to_numpy(), group["end_ns"].to_numpy())),
        )
        for (context, stream, name), group in ops.select(
            "context", "stream", "class", "start_ns", "end_ns"
        ).group_by("context", "stream", "class", maintain_order=True)
    ]  # fmt: skip


def rank_timings(
    busy: list[Activity], windows: pl.DataFrame, hidden: Hidden = NOTHING_HIDDEN
) -> pl.DataFrame:
    """Returns: one row per window with every column of metrics section 2 (`TIMINGS_SCHEMA`).

    Parts that the capture cannot tell are NULL, with the reason beside them: behind a CUDA graph
    nothing is known but the window, and without kernel names only copies and idle time are.

    Args:
        busy: as `activities` returns it.
        windows: as `windows_of` returns them.
        hidden: device work whose kernels are not there.
    """
    spans = Intervals(windows["start_ns"].to_numpy(), windows["end_ns"].to_numpy())
    compute = union_of(busy, "compute", None)
    parts = account(compute, union_of(busy, "comm"), union_of(busy, "copy"), spans)
    unnamed = any(each.activity is None for each in busy)
    reason = (
        pl.when("is_hidden")
        .then(pl.lit("graph_hidden"))
        .when(unnamed)
        .then(pl.lit("names_unknown"))
    )
    known = {part: ~pl.col("is_hidden") for part in PARTS[1:]}
    known |= {part: known[part] & (not unnamed) for part in _NEED_NAMES}
    return (
        windows.with_columns(
            *(pl.Series(name, values) for name, values in parts.items()),
            hidden.touches(windows).alias("is_hidden"),
        )
        .with_columns(
            reason.alias("reason"),
            *(pl.when(known[part]).then(part).alias(part) for part in known),
        )
        .with_columns(
            comm_fraction=_ratio("comm_ns", "window_ns"),
            exposed_comm_fraction=_ratio("exposed_comm_ns", "window_ns"),
            overlap_ratio=_ratio("overlap_ns", "comm_ns"),
            transfer_comm_ns=pl.lit(None, pl.Int64),
            transfer_overlap_ns=pl.lit(None, pl.Int64),
            transfer_overlap_ratio=pl.lit(None, pl.Float64),
        )
        .select(TIMINGS_SCHEMA.keys())
    )


def union_of(busy: list[Activity], *names: str | None) -> Union:
    """Returns: the busy time of some classes together, over all streams."""
    return Union.of(*(each.union.islands for each in busy if each.activity in names))


def _ratio(part: str, whole: str) -> pl.Expr:
    return pl.when(pl.col(whole) > 0).then(pl.col(part) / pl.col(whole))


STREAMS_SCHEMA = pl.Schema(
    {
        "stream": pl.Int64,
        "context": pl.Int64,
        "role": pl.String,
        "ops": pl.Int64,
        "busy_ns": pl.Int64,
        "comm_ns": pl.Int64,
        "compute_ns": pl.Int64,
        "first_ns": pl.Int64,
        "last_ns": pl.Int64,
    }
)


def stream_table(busy: list[Activity]) -> pl.DataFrame:
    """Returns: one row per (context, stream) of one rank (`STREAMS_SCHEMA`).

    Args:
        busy: as `activities` returns it.
    """
    streams: dict[tuple[int | None, int], list[Activity]] = {}
    for each in busy:
        streams.setdefault((each.context, each.stream), []).append(each)
    rows = [_stream_row(*place, mine) for place, mine in streams.items()]
    return pl.DataFrame(rows, schema=STREAMS_SCHEMA, orient="row").sort("context", "stream")


def _stream_row(context: int | None, stream: int, busy: list[Activity]) -> tuple[object, ...]:
    kinds = {each.activity for each in busy}
    everything = Union.of(*(each.union.islands for each in busy))
    kernels = kinds - {"copy"}
    role = "mixed" if len(kernels) > 1 else next(iter(kernels or kinds))
    unnamed = None in kinds
    return (
        stream,
        context,
        None if unnamed else role,
        sum(each.ops for each in busy),
        everything.total_ns,
        None if unnamed else union_of(busy, "comm").total_ns,
        None if unnamed else union_of(busy, "compute").total_ns,
        int(everything.start_ns[0]),
        int(everything.end_ns[-1]),
    )
