"""A CPU run: gloo's ranges communicate, operators outside of collective calls compute."""

import polars as pl

from traceq.ingest.accounting import Intervals, Union
from traceq.ingest.steps import step_of_launch
from traceq.ingest.tables import CLASS, NAMES_SCHEMA
from traceq.ingest.torch_profiler import collectives
from traceq.ingest.torch_profiler.context import (
    PLACED_SCHEMA,
    Assembled,
    Context,
    impossible,
    longest_ns,
)

_DIGITS = 18  # of any number of 64 bits
_COLLECTIVE_CALL = r"^(?:c10d::|record_param_comms$)"
_EVENTS = pl.Schema(
    {
        "start_ns": pl.Int64(),
        "length_ns": pl.Int64(),
        "name": pl.Int32(),
        "thread": pl.Int32(),
        "tensors": pl.Int32(),
    }
)


def assemble_cpu(context: Context, steps: pl.DataFrame) -> Assembled | None:
    """Returns: a CPU run as one rank, None when no gloo collective ran in it."""
    annotations, operators = (_possible(context, kind) for kind in ("range", "cpu_op"))
    gloo = annotations.filter(pl.col("text").str.starts_with("gloo:"))
    usable = gloo.filter(pl.col("why").is_null())
    if usable.is_empty():
        return None
    compute = _outside_of_collectives(operators.filter(pl.col("why").is_null()))
    ops = pl.concat(
        [
            usable.with_columns(pl.lit("comm", CLASS).alias("class")),
            compute.with_columns(pl.lit("compute", CLASS).alias("class")),
        ]
    )
    names, ops = _cpu_names(ops)
    group = context.groups.default() if context.groups.only_one else None
    tensors = context.columns.tensors
    described = [
        collectives.from_annotation(
            text, tensors[index][:2] if index is not None else (None, None), None, group
        )
        for text, index in usable.select("text", "tensors").iter_rows()
    ]
    position = pl.when(pl.col("class") == "comm").then((pl.col("class") == "comm").cum_sum() - 1)
    threads = [_thread_number(text, n) for n, text in enumerate(context.columns.threads.texts())]
    return Assembled(
        ops=ops.select(
            pl.lit(None, pl.Int64).alias("device"),
            pl.lit(None, pl.Int64).alias("context"),
            pl.Series("stream", threads, dtype=pl.Int64)[ops["thread"]],
            "start_ns",
            "end_ns",
            "local_id",
            "class",
            step_of_launch(ops["start_ns"], steps),
            pl.lit(None, pl.Int64).alias("correlation"),
            pl.col("start_ns").alias("launch_ns"),
            pl.lit(None, pl.Int64).alias("bytes"),
            position.cast(pl.Int32).alias("described"),
        ),
        names=names,
        described=described,
        device_steps=pl.DataFrame(schema=PLACED_SCHEMA),
        device_kind="cpu",
        quarantined=pl.concat([gloo, operators]).drop_nulls("why").select(
            pl.col("text").alias("name"), "length_ns", "why"
        ),
    )  # fmt: skip


def _possible(context: Context, kind: str) -> pl.DataFrame:
    """Returns: the events of a kind with their names and ends, and why their times cannot be."""
    frame = context.columns.frame(kind)
    if frame is None:
        frame = pl.DataFrame(schema=_EVENTS)
    why = impossible(frame, longest_ns(context))
    return context.with_names(frame).with_columns(
        why, end_ns=pl.col("start_ns") + pl.col("length_ns")
    )


def _thread_number(text: str, otherwise: int) -> int:
    return int(text) if text.isdecimal() and len(text) <= _DIGITS else otherwise


def _outside_of_collectives(operators: pl.DataFrame) -> pl.DataFrame:
    calls = operators.filter(pl.col("text").str.contains(_COLLECTIVE_CALL))
    outside = [
        group.filter(~pl.Series(_inside(group, calls.filter(pl.col("thread") == thread))))
        for (thread,), group in operators.group_by("thread", maintain_order=True)
    ]
    return pl.concat(outside) if outside else operators


def _inside(operators: pl.DataFrame, calls: pl.DataFrame) -> list[bool]:
    """Returns: whether each operator of a thread is a collective call, or nested in one."""
    union = Union.of(Intervals(calls["start_ns"].to_numpy(), calls["end_ns"].to_numpy()))
    if not len(union.start_ns):
        return [False] * operators.height
    index = (
        pl.Series(union.start_ns).search_sorted(operators["start_ns"], side="right").cast(pl.Int64)
        - 1
    )
    ends = pl.Series(union.end_ns)[index.clip(0)]
    return ((index >= 0) & (operators["end_ns"] <= ends)).to_list()


def _cpu_names(ops: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    distinct = ops.select("text", "class").unique(maintain_order=True).with_row_index("local_id")
    rows = [
        (number, text, text, kind, *_communication(text, kind))
        for number, text, kind in distinct.iter_rows()
    ]
    names = pl.DataFrame(rows, schema=NAMES_SCHEMA, orient="row")
    return names, ops.join(
        distinct.cast({"local_id": pl.Int32}),
        on=["text", "class"],
        how="left",
        maintain_order="left",
    )


def _communication(text: str, kind: str) -> tuple[str | None, str | None]:
    return ("gloo", collectives.operation(text).value) if kind == "comm" else (None, None)
