"""A CPU run: gloo's ranges communicate, operators outside of collective calls compute."""

import polars as pl

from traceq.ingest.accounting import Intervals, Union
from traceq.ingest.steps import step_of_launch
from traceq.ingest.tables import CLASS, NAMES_SCHEMA
from traceq.ingest.torch_profiler import collectives
from traceq.ingest.torch_profiler.context import Assembled, Context, impossible, longest_ns

_COLLECTIVE_CALL = r"^(?:c10d::|record_param_comms$)"
_NO_STEPS = pl.DataFrame(schema={"step": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64})


def assemble_cpu(context: Context, steps: pl.DataFrame) -> Assembled | None:
    """Returns: a CPU run as one rank, None when no gloo collective ran in it."""
    ranges = context.named("range")
    gloo = None if ranges is None else ranges.filter(pl.col("text").str.starts_with("gloo:"))
    if gloo is None or gloo.is_empty():
        return None
    compute = _outside_of_collectives(context.named("cpu_op"))
    parts = [gloo.with_columns(pl.lit("comm", CLASS).alias("class"))]
    if compute is not None:
        parts.append(compute.with_columns(pl.lit("compute", CLASS).alias("class")))
    both = pl.concat(parts, how="diagonal")
    why = impossible(both, longest_ns(context))
    ops = both.filter(why.is_null())
    names, ops = _cpu_names(ops)
    group = context.groups.default() if context.groups.only_one else None
    tensors = context.columns.tensors
    comm = ops.filter(pl.col("class") == "comm")
    described = [
        collectives.from_annotation(
            text, tensors[index][:2] if index is not None else (None, None), None, group
        )
        for text, index in comm.select("text", "tensors").iter_rows()
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
        device_steps=_NO_STEPS,
        device_kind="cpu",
        quarantined=both.with_columns(why).filter(pl.col("why").is_not_null()).select(
            pl.col("text").alias("name"), "length_ns", "why"
        ),
    )  # fmt: skip


def _thread_number(text: str, otherwise: int) -> int:
    return int(text) if text.isdecimal() else otherwise


def _outside_of_collectives(operators: pl.DataFrame | None) -> pl.DataFrame | None:
    if operators is None:
        return None
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
