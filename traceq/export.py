"""A run's timeline in the trace-event format, which ui.perfetto.dev opens."""

import json
from typing import Any

import polars as pl

from traceq.query import find_query
from traceq.runfile import Run

MOST_EVENTS = 200_000


def trace_events(run: Run, from_ns: int, to_ns: int, *, most: int = MOST_EVENTS) -> bytes:
    """Returns: what ran in a window as trace-event JSON: ranks are processes, streams threads.

    A window with more operations is cut at its end. The waiting part of a collective is a slice
    inside it, and a flow binds the parts of one collective across ranks.

    Args:
        run: an open run file.
        from_ns: start of the window [ns].
        to_ns: end of the window [ns].
        most: operations at most [1].

    Raises:
        QueryError: the run file is damaged.
    """
    # In order of time, so that what is left out is the end of every rank.
    sql = f"SELECT * FROM (\n{find_query('timeline').sql}\n) ORDER BY start_ns, rank, stream"
    rows = run.frame(sql, {"from_ns": from_ns, "to_ns": to_ns}, most_rows=most)
    events = [*_names(rows)]
    linked = rows.drop_nulls("collective_id").group_by("collective_id").agg(pl.col("rank").first())
    firsts = dict(linked.iter_rows())
    for row in rows.iter_rows(named=True):
        events += _events(row, firsts)
    return json.dumps({"displayTimeUnit": "ns", "traceEvents": events}).encode()


def _names(rows: pl.DataFrame) -> list[dict[str, Any]]:
    ranks = sorted(rows["rank"].unique())
    streams = sorted(rows.select("rank", "stream").unique().iter_rows())
    named: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": rank, "args": {"name": f"rank {rank}"}}
        for rank in ranks
    ]
    return named + [
        {"ph": "M", "name": "thread_name", "pid": rank, "tid": stream}
        | {"args": {"name": f"stream {stream}"}}
        for rank, stream in streams
    ]


_ARGUMENTS = ("op_count", "step", "op", "size_bytes", "collective_id", "transfer_ns", "wait_ns")


def _events(row: dict[str, Any], firsts: dict[int, int]) -> list[dict[str, Any]]:
    place = {"pid": row["rank"], "tid": row["stream"], "ts": row["start_ns"] / 1000}
    length = (row["end_ns"] - row["start_ns"]) / 1000
    said = {name: row[name] for name in _ARGUMENTS if row[name] is not None}
    events = [
        {
            "ph": "X",
            "name": row["name"],
            "cat": row["class"] or "unknown",
            "dur": length,
            "args": said,
        }
        | place
    ]
    if row["wait_ns"]:
        events.append(
            {"ph": "X", "name": "waiting", "cat": "wait", "dur": row["wait_ns"] / 1000} | place
        )
    collective = row["collective_id"]
    if collective is not None:
        begins = firsts[collective] == row["rank"]
        flow = {"name": "collective", "cat": "collective", "id": collective}
        events.append(flow | place | ({"ph": "s"} if begins else {"ph": "t"}))
    return events
