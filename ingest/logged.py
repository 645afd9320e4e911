"""Sizes and groups from NCCL_DEBUG logs, where the trace itself has none.

A log tells every call of a process, a trace every operation of its window. They are laid beside
each other, operation by operation, only where they are as many: else which belongs to which is not
known. Their order is that of launching; without it, only operations of one stream have an order.
Calls of a group, which may share a kernel, are not placed.
"""

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from traceq.errors import SourceError
from traceq.ingest.damage import told_in_words
from traceq.ingest.nccl_log import NcclLog, read_nccl_log
from traceq.model.collectives import Op
from traceq.model.reasons import Diagnostic, Severity

_IN_GROUPS = (Op.SEND, Op.RECV, Op.SEND_RECV)


def read_logs(files: Sequence[str]) -> tuple[list[NcclLog], list[SourceError]]:
    """Returns: the logs, and those that could not be read."""
    logs, failures = [], []
    for file in files:
        try:
            with told_in_words(Path(file).name):
                logs.append(read_nccl_log(Path(file)))
        except SourceError as error:
            failures.append(error)
    return logs, failures


def with_logged(
    comm: pl.DataFrame, logs: Sequence[NcclLog], pids: pl.DataFrame
) -> tuple[pl.DataFrame, list[Diagnostic]]:
    """Returns: the operations with what logs tell of those without a size, and a note.

    Args:
        comm: communication operations of all ranks: `COMM_SCHEMA` and rank.
        logs: logs of the run.
        pids: rank and pid of the ranks; a pid that two ranks have belongs to none.
    """
    if not logs:
        return comm, []
    calls = _calls(logs).join(pids.filter(~pl.col("pid").is_duplicated()), on="pid")
    place, nth = ["rank", "op"], pl.int_range(pl.len())
    sizeless = pl.col("bytes").is_null() & pl.col("payload_bytes").is_null()
    rows = comm.with_row_index("row")
    ordered = (pl.col("launch_ns").null_count().over(place) == 0) | (
        pl.col("stream").n_unique().over(place) == 1
    )
    wanting = rows.filter(sizeless.all().over(place) & ~pl.col("op").is_in(list(_IN_GROUPS)))
    wanting = wanting.filter(ordered).select(
        "row",
        *place,
        nth=nth.over(place, order_by=["launch_ns", "start_ns"]),
        of=pl.len().over(place),
    )
    calls = calls.with_columns(nth=nth.over(place), of=pl.len().over(place))
    found = wanting.join(calls, on=[*place, "nth", "of"]).select(
        "row",
        *(pl.col(name).alias(f"logged_{name}") for name in _TOLD),
    )
    placed = (
        rows.join(found, on="row", how="left", maintain_order="left")
        .with_columns(
            *(pl.coalesce(name, f"logged_{name}").alias(name) for name in _TOLD),
            size_source=pl.when(pl.col("logged_payload_bytes").is_not_null())
            .then(pl.lit("nccl_log"))
            .otherwise("size_source"),
        )
        .select(comm.columns)
    )
    left = wanting.height - found.height
    if not left:
        return placed, []
    message = (
        f"{left} operations without a size could not be laid beside the NCCL log: it tells more or "
        "fewer calls of their process"
    )
    hint = "log the same stretch that is traced: capture the whole run, or shorten it"
    return placed, [Diagnostic("log_unplaced", Severity.WARNING, message, hint, count=left)]


_TOLD = ("payload_bytes", "dtype", "comm_id", "group_size")


def _calls(logs: Sequence[NcclLog]) -> pl.DataFrame:
    """Returns: the calls that launch something, with the identity of their communicators."""
    calls = pl.concat([log.calls for log in logs])
    comms = pl.concat([log.comms for log in logs])
    sure = (
        comms.group_by("pid", "comm")
        .agg(pl.col("comm_id", "group_size").unique())
        .filter((pl.col("comm_id").list.len() == 1) & (pl.col("group_size").list.len() == 1))
        .select("pid", "comm", pl.col("comm_id", "group_size").list.first())
        .rename({"group_size": "known"})
    )
    return (
        calls.join(sure, on=["pid", "comm"], how="left", maintain_order="left")
        .with_columns(group_size=pl.coalesce("group_size", "known"))
        .filter(pl.col("payload_bytes").ne_missing(0) & pl.col("group_size").ne_missing(1))
    )
