"""What assembling a trace works on, and what comes of it; and which times cannot be."""

from dataclasses import dataclass

import polars as pl

from traceq.config import ReadOptions
from traceq.ingest import timings
from traceq.ingest.torch_profiler.collectives import Described, Groups
from traceq.ingest.torch_profiler.columns import Columns

_FAR_NS = 10**13
_DAY_NS = 86_400 * 10**9
_NONE = pl.Series("start_ns", [], dtype=pl.Int64)
PLACED_SCHEMA = pl.Schema(
    {"device": pl.Int64(), "step": pl.Int64(), "start_ns": pl.Int64(), "end_ns": pl.Int64()}
)


@dataclass(frozen=True, slots=True)
class Assembled:
    """A trace as one rank.

    Attributes:
        ops: device, context, stream [id], start_ns, end_ns [ns], local_id, class, step,
            correlation, launch_ns, bytes, described (position, NULL when not communication).
        names: one row per distinct name (`NAMES_SCHEMA`).
        described: what is known of each communication operation.
        device_steps: step windows that the trace itself places on a device (`PLACED_SCHEMA`).
        device_kind: `gpu`, or `cpu` for a run without device rows.
        quarantined: operations whose times are impossible: name, length_ns, why.
        elsewhere: copies and sets left out, on devices other than the only one with kernels [1].
        unlinked: operations without their API call [1].
        lost_graphs: graph launches, when none of them has a kernel [1].
        assumed_group: the default group was taken for want of any other.
    """

    ops: pl.DataFrame
    names: pl.DataFrame
    described: list[Described]
    device_steps: pl.DataFrame
    device_kind: str
    quarantined: pl.DataFrame
    elsewhere: int = 0
    unlinked: int = 0
    lost_graphs: int = 0
    assumed_group: bool = False


@dataclass(frozen=True, slots=True)
class Context:
    """What assembling needs beside the columns."""

    columns: Columns
    names: list[str]
    groups: Groups
    options: ReadOptions

    def named(self, kind: str) -> pl.DataFrame | None:
        """Returns: the events of a kind with their names and ends, NULL times left out."""
        frame = self.columns.frame(kind)
        if frame is None:
            return None
        return self.with_names(frame.drop_nulls(["start_ns", "length_ns"])).with_columns(
            end_ns=pl.col("start_ns") + pl.col("length_ns")
        )

    def with_names(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Returns: a frame with `text`, the name of each event."""
        texts = pl.DataFrame(
            {"name": range(len(self.names)), "text": self.names},
            schema={"name": pl.Int32, "text": pl.String},
        )
        return frame.join(texts, on="name", how="left", maintain_order="left")


def longest_ns(context: Context) -> int:
    """Returns: how long an operation can be at most: as long as the trace [ns].

    The trace's own record says it, where there is one.
    """
    whole = context.columns.frame("trace")
    lengths = [] if whole is None else whole["length_ns"].drop_nulls().to_list()
    if lengths and max(lengths) > 0:
        return int(max(lengths))
    starts = [
        frame["start_ns"].drop_nulls()
        for kind in ("kernel", "copy", "set", "call", "range", "cpu_op")
        if (frame := context.columns.frame(kind)) is not None
    ]
    return timings.longest_ns(pl.concat([_NONE, *starts]))


def impossible(device: pl.DataFrame, longest_ns: int) -> pl.Series:
    """Returns: why the times of an operation cannot be, NULL when they can; shape (operations,)."""
    start, length = pl.col("start_ns"), pl.col("length_ns")
    middle = device["start_ns"].median()
    far = isinstance(middle, float) and middle > _FAR_NS
    return device.select(
        why=pl.when(start.is_null() | length.is_null())
        .then(pl.lit("no duration"))
        .when(length < 0)
        .then(pl.lit("negative duration"))
        .when((start == 0) & ((length == 0) | far))
        .then(pl.lit("no timestamp"))
        .when(length > longest_ns)
        .then(pl.lit("longer than the trace"))
        .when((start.cast(pl.Float64) - middle).abs() > _DAY_NS)
        .then(pl.lit("more than a day from the others"))
    )["why"]
