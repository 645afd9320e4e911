"""The small tables of one rank: its windows with their accounting, and its streams."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from traceq.ingest.accounting import PARTS, Intervals, Times, Union, account

TIMINGS_SCHEMA = pl.Schema(
    {
        "scope": pl.String,
        "step": pl.Int64,
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
        **dict.fromkeys(PARTS, pl.Int64),
        "comm_fraction": pl.Float64,
        "exposed_comm_fraction": pl.Float64,
        "overlap_ratio": pl.Float64,
        "transfer_overlap_ratio": pl.Float64,
        "reason": pl.String,
    }
)
_NEED_NAMES = ("compute_ns", "comm_ns", "overlap_ns", "exposed_comm_ns")


@dataclass(frozen=True, slots=True)
class Hidden:
    """Device work whose kernels the capture does not show.

    Attributes:
        start_ns: starts of hidden intervals [ns], shape (n,).
        end_ns: their ends [ns], shape (n,).
        everywhere: work is hidden whose time is not known either.
    """

    start_ns: Times
    end_ns: Times
    everywhere: bool

    def touches(self, windows: Intervals) -> npt.NDArray[np.bool_]:
        """Returns: whether hidden work may lie in each window; shape (windows,)."""
        if self.everywhere:
            return np.ones(len(windows.start_ns), dtype=np.bool_)
        begun = np.searchsorted(np.sort(self.start_ns), windows.end_ns, side="left")
        ended = np.searchsorted(np.sort(self.end_ns), windows.start_ns, side="right")
        return begun > ended


NOTHING_HIDDEN = Hidden(np.empty(0, np.int64), np.empty(0, np.int64), everywhere=False)


def windows_of(
    ops: pl.DataFrame, hidden: Hidden = NOTHING_HIDDEN, placed: pl.DataFrame | None = None
) -> pl.DataFrame:
    """Returns: one row per window: scope, step, start_ns, end_ns: the capture, then the steps.

    The capture reaches from the first device start to the last device end; a step from the first
    to the last device operation that was launched inside it.

    Args:
        ops: start_ns, end_ns [ns], step; of one rank.
        hidden: device work without kernels, which the capture reaches over too.
        placed: step, start_ns, end_ns of steps that the source itself places on the device.
    """
    starts = np.concatenate([ops["start_ns"].to_numpy(), hidden.start_ns])
    ends = np.concatenate([ops["end_ns"].to_numpy(), hidden.end_ns])
    capture = pl.DataFrame(
        {"scope": ["capture"], "step": [None], "start_ns": [starts.min()], "end_ns": [ends.max()]},
        schema={"scope": pl.String, "step": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64},
    )
    steps = (
        ops.drop_nulls("step")
        .group_by("step")
        .agg(pl.col("start_ns").min(), pl.col("end_ns").max())
    )
    if placed is not None:
        steps = pl.concat([placed, steps.join(placed, on="step", how="anti")])
    return pl.concat(
        [
            capture,
            steps.sort("start_ns").select(
                pl.lit("step").alias("scope"), "step", "start_ns", "end_ns"
            ),
        ]
    )


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
    compute = _union(busy, "compute", None)
    parts = account(compute, _union(busy, "comm"), _union(busy, "copy"), spans)
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
            pl.Series("is_hidden", hidden.touches(spans)),
        )
        .with_columns(
            reason.alias("reason"),
            *(pl.when(known[part]).then(part).alias(part) for part in known),
        )
        .with_columns(
            comm_fraction=_ratio("comm_ns", "window_ns"),
            exposed_comm_fraction=_ratio("exposed_comm_ns", "window_ns"),
            overlap_ratio=_ratio("overlap_ns", "comm_ns"),
            transfer_overlap_ratio=pl.lit(None, pl.Float64),
        )
        .select(TIMINGS_SCHEMA.keys())
    )


def _union(busy: list[Activity], *names: str | None) -> Union:
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
        None if unnamed else _union(busy, "comm").total_ns,
        None if unnamed else _union(busy, "compute").total_ns,
        int(everything.start_ns[0]),
        int(everything.end_ns[-1]),
    )
