"""Which collective each communication operation belongs to, and what is known of it."""

from dataclasses import replace
from typing import Any

import polars as pl

from traceq.ingest.torch_profiler import collectives
from traceq.ingest.torch_profiler.collectives import ANNOTATION, Described
from traceq.ingest.torch_profiler.context import Context
from traceq.model.collectives import Op

# Operations that a kernel's name tells for sure.
_TOLD_BY_NAME = frozenset({Op.ALL_REDUCE, Op.ALL_GATHER, Op.REDUCE_SCATTER})
_SIZES = 2  # Input Dims and Input type come before the arguments of a collective


def describe(
    ops: pl.DataFrame, names: pl.DataFrame, context: Context
) -> tuple[list[Described], pl.DataFrame, bool]:
    """Returns: what is known of each communication operation; the rows point at it.

    The record's own arguments come first; then those of the operator `record_param_comms` around
    the launch, then the tensors of the `nccl:<op>` annotation around it.
    """
    comm = ops.with_row_index("row").filter(pl.col("class") == "comm")
    around = _around(comm, context)
    ops_by_name = dict(names.select("local_id", "op").iter_rows())
    streams = comm["stream"].n_unique()
    default = context.groups.default() if context.groups.only_one and streams == 1 else None
    described: list[Described] = []
    assumed = False
    for row in around.iter_rows(named=True):
        by_name = Op(ops_by_name.get(row["local_id"]) or Op.UNKNOWN)
        each = _described_row(row, context, default) or Described(by_name)
        if each.source == ANNOTATION and _another(each.op, by_name):
            each = replace(each, op=by_name, size=None, exchanged=(None, None))
        if each.source == ANNOTATION and row["sharers"] > 1:
            each = replace(each, size=None, exchanged=(None, None))
        if each.op == Op.UNKNOWN:
            each = replace(each, op=by_name)
        assumed |= each.source == ANNOTATION and each.group is not None and each.group is default
        described.append(each)
    index = pl.Series([None] * ops.height, dtype=pl.Int32)
    if described:
        index = index.scatter(comm["row"].to_list(), range(len(described)))
    return described, ops.with_columns(described=index), assumed and not context.groups.configured


def _another(said: Op, by_name: Op) -> bool:
    """Returns: whether a kernel is not what its annotation says; a barrier is an all-reduce."""
    return by_name in _TOLD_BY_NAME and said not in {by_name, Op.UNKNOWN, Op.BARRIER}


def _described_row(
    row: dict[str, Any], context: Context, default: collectives.Group | None
) -> Described | None:
    columns = context.columns
    if row["collective"] is not None:
        return collectives.from_arguments(columns.collectives[row["collective"]], context.groups)
    if row["operator"] is not None:
        values = columns.tensors[row["operator"]][_SIZES:]
        if values[0] is not None:
            said = collectives.from_arguments(values, context.groups)
            return replace(said, source=ANNOTATION)
    if row["annotation"] is None:
        return None
    inputs = columns.tensors[row["annotation"]][:_SIZES]
    outer = columns.tensors[row["call"]][:_SIZES] if row["call"] is not None else None
    return collectives.from_annotation(row["annotation_text"], inputs, outer, default)


def _around(comm: pl.DataFrame, context: Context) -> pl.DataFrame:
    """Adds, to each communication operation, the ranges that enclose its launch on its thread."""
    ranges, operators = context.named("range"), context.named("cpu_op")
    enclosing = {
        "annotation": (ranges, r"^nccl:"),
        "operator": (operators, r"^record_param_comms$"),
        "call": (operators, r"^c10d::"),
    }
    for name, (frame, pattern) in enclosing.items():
        comm = _enclose(comm, name, frame, pattern)
    # Several kernels in one annotation have a share of its size each, and which is not known.
    innermost = pl.coalesce("operator", "annotation")
    return comm.with_columns(sharers=pl.len().over(innermost)).sort("row")


def _enclose(
    comm: pl.DataFrame, name: str, frame: pl.DataFrame | None, pattern: str
) -> pl.DataFrame:
    found = None if frame is None else frame.filter(
        pl.col("text").str.contains(pattern) & pl.col("tensors").is_not_null()
    )  # fmt: skip
    if found is None or found.is_empty():
        return comm.with_columns(
            pl.lit(None, pl.Int32).alias(name), pl.lit(None, pl.String).alias(f"{name}_text")
        )
    found = found.select(
        pl.col("thread").alias("call_thread"),
        pl.col("start_ns").alias("launch_ns"),
        pl.col("end_ns").alias("until_ns"),
        pl.col("tensors").alias(name),
        pl.col("text").alias(f"{name}_text"),
    ).sort("launch_ns")
    joined = comm.sort("launch_ns", nulls_last=True).join_asof(
        found, on="launch_ns", by="call_thread", strategy="backward", check_sortedness=False
    )
    inside = (pl.col("launch_ns") <= pl.col("until_ns")).fill_null(value=False)
    return joined.with_columns(
        pl.when(inside).then(column).alias(column) for column in (name, f"{name}_text")
    ).drop("until_ns")
