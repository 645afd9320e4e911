"""The columns of a trace as one rank: its operations classed, linked, described, put in steps."""

from collections.abc import Sequence
from typing import Any

import polars as pl

from traceq.ingest.launches import link_launches
from traceq.ingest.steps import find_steps, step_of_launch
from traceq.ingest.tables import CLASS, NAMES_SCHEMA
from traceq.ingest.torch_profiler.columns import DEVICE_KINDS
from traceq.ingest.torch_profiler.context import (
    PLACED_SCHEMA,
    Assembled,
    Context,
    impossible,
    longest_ns,
)
from traceq.ingest.torch_profiler.cpu_run import assemble_cpu
from traceq.ingest.torch_profiler.description import describe
from traceq.model.collectives import Op
from traceq.model.families import classify
from traceq.model.names import copy_name, short_name

_GRAPH_LAUNCH = r"^(?:cu(?:da)?|hip)GraphLaunch"
_RANGES = pl.Schema(
    {
        "process": pl.Int64(),
        "thread": pl.Int32(),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "name": pl.String(),
    }
)
_CALLS = pl.Schema(
    {
        "correlation": pl.Int64(),
        "launch_ns": pl.Int64(),
        "call_thread": pl.Int32(),
        "graph": pl.Boolean(),
    }
)


def assemble(context: Context) -> Assembled | None:
    """Returns: the trace as one rank, None when nothing in it can be measured."""
    device = context.columns.frame(*DEVICE_KINDS)
    steps = find_steps(host_ranges(context), context.options.step_pattern)
    if device is not None:
        return _gpu(context, device, steps)
    return assemble_cpu(context, steps)


def host_ranges(context: Context) -> pl.DataFrame:
    """Returns: finished annotations of the host, as `find_steps` wants them."""
    frame = context.named("range")
    if frame is None:
        return pl.DataFrame(schema=_RANGES)
    return frame.filter(pl.col("length_ns") >= 0).select(
        pl.lit(0, pl.Int64).alias("process"),
        "thread",
        "start_ns",
        "end_ns",
        pl.col("text").alias("name"),
    )


def _gpu(context: Context, device: pl.DataFrame, steps: pl.DataFrame) -> Assembled | None:
    why = impossible(device, longest_ns(context))
    quarantined = context.with_names(device.with_columns(why).drop_nulls("why"))
    possible = device.filter(why.is_null())
    if possible.is_empty():
        return None
    ops = _of_own_device(possible)
    calls = _calls(context)
    ops = link_launches(ops, calls)
    names, ops = _classed(ops, context)
    described, ops, assumed = describe(ops, names, context)
    launches = calls.filter("graph")
    used = launches.join(ops.select("correlation"), on="correlation", how="semi")
    return Assembled(
        ops=ops.select(
            "device",
            "context",
            "stream",
            "start_ns",
            (pl.col("start_ns") + pl.col("length_ns")).alias("end_ns"),
            "local_id",
            "class",
            step_of_launch(ops["launch_ns"], steps),
            "correlation",
            "launch_ns",
            "bytes",
            "described",
        ),
        names=names,
        described=described,
        device_steps=_device_steps(context, steps),
        device_kind="gpu",
        quarantined=quarantined.select(pl.col("text").alias("name"), "length_ns", "why"),
        elsewhere=possible.height - ops.height,
        unlinked=ops["launch_ns"].null_count(),
        lost_graphs=launches.height if used.is_empty() else 0,
        assumed_group=assumed,
    )


def _of_own_device(ops: pl.DataFrame) -> pl.DataFrame:
    """Returns: the operations of the only device that ran kernels; all, where that is not one."""
    own = ops.filter(pl.col("kind") == "kernel")["device"].unique()
    return (
        ops.filter(pl.col("device").eq_missing(pl.lit(own.item(), pl.Int64)))
        if len(own) == 1
        else ops
    )


def _calls(context: Context) -> pl.DataFrame:
    frame = context.columns.frame("call")
    if frame is None:
        return pl.DataFrame(schema=_CALLS)
    frame = frame.drop_nulls(["correlation", "start_ns"]).filter(pl.col("correlation") != 0)
    return context.with_names(frame).select(
        "correlation",
        pl.col("start_ns").alias("launch_ns"),
        pl.col("thread").alias("call_thread"),
        pl.col("text").str.contains(_GRAPH_LAUNCH).alias("graph"),
    )


def _classed(ops: pl.DataFrame, context: Context) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Returns: the table of names, and the operations with local_id and class."""
    distinct = ops.group_by("kind", "name", maintain_order=True).agg(
        pl.col("collective").is_not_null().any()
    )
    rows: list[tuple[Any, ...]] = []
    numbers: list[int] = []
    seen: dict[tuple[Any, ...], int] = {}
    for kind, number, carries in distinct.iter_rows():
        text = context.names[number]
        row = (
            _kernel_row(text, carries, context.options.comm_patterns)
            if kind == "kernel"
            else _copy_row(kind, text)
        )
        local_id = seen.setdefault(row, len(seen))
        if local_id == len(rows):
            rows.append((local_id, *row))
        numbers.append(local_id)
    names = pl.DataFrame(rows, schema=NAMES_SCHEMA, orient="row")
    keyed = distinct.with_columns(local_id=pl.Series(numbers, dtype=pl.Int32)).join(
        names.select("local_id", "class", called="name"), on="local_id"
    )
    if context.options.p2p_as_comm:
        is_peer = pl.col("called") == "memcpy PtoP"
        keyed = keyed.with_columns(
            pl.when(is_peer).then(pl.lit("comm", CLASS)).otherwise("class").alias("class")
        )
    keyed = keyed.select("kind", "name", "local_id", "class")
    return names, ops.join(keyed, on=["kind", "name"], how="left", maintain_order="left")


def _kernel_row(text: str, carries: bool, user: Sequence[str]) -> tuple[Any, ...]:
    short = short_name(text)
    found = classify(short, tuple(user)) or classify(text, tuple(user))
    if found is not None:
        return text, short, "comm", found.family, found.op.value
    if carries:
        return text, short, "comm", "torch", Op.UNKNOWN.value
    return text, short, "compute", None, None


def _copy_row(kind: str, text: str) -> tuple[Any, ...]:
    name = "memset" if kind == "set" else copy_name(text)
    return name, name, "copy", None, None


def _device_steps(context: Context, steps: pl.DataFrame) -> pl.DataFrame:
    """Returns: the windows of steps that the trace marks on a device (`PLACED_SCHEMA`).

    Every stream that took part in a step has a mark of its name. Should a name return, the marks of
    a stream are told apart by their order, if there are as many as there are such steps.
    """
    frame = context.named("device_range")
    if frame is None or steps.is_empty():
        return pl.DataFrame(schema=PLACED_SCHEMA)
    marks = frame.filter(pl.col("length_ns") >= 0).select(
        "device", "thread", "start_ns", "end_ns", pl.col("text").alias("name")
    )
    return (
        _counted(marks.sort("start_ns"), "device", "thread", "name")
        .join(_counted(steps.select("step", "name"), "name"), on=["name", "nth", "times"])
        .group_by("device", "step")
        .agg(pl.col("start_ns").min(), pl.col("end_ns").max())
        .sort("device", "step")
        .cast(PLACED_SCHEMA)
    )


def _counted(rows: pl.DataFrame, *of: str) -> pl.DataFrame:
    return rows.with_columns(nth=pl.int_range(pl.len()).over(of), times=pl.len().over(of))
