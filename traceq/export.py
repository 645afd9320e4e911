"""A run for other tools: its timeline for ui.perfetto.dev, its tables as Parquet."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
from polars.io.plugins import register_io_source

from traceq.errors import QueryError
from traceq.query import run_query
from traceq.runfile import Run

MOST_EVENTS = 200_000
_AT_ONCE = 50_000
_END_NS = (1 << 63) - 1
_ARGUMENTS = ("op_count", "step", "op", "size_bytes", "collective_id", "transfer_ns", "wait_ns")

Progress = Callable[[str, float], None]


def trace_events(
    run: Run,
    from_ns: int = 0,
    to_ns: int = _END_NS,
    *,
    most: int | None = None,
    on_progress: Progress | None = None,
) -> Iterator[bytes]:
    """Yields pieces of trace-event JSON of what ran in a window, one rank after the other.

    Ranks are processes and streams threads, on the run's aligned clocks. The waiting part of a
    collective is a slice inside it, and a flow binds the parts of one collective across ranks.

    Args:
        run: an open run file.
        from_ns: start of the window [ns].
        to_ns: end of the window [ns].
        most: operations at most [1]; a window with more is cut at its end.
        on_progress: told which rank is written and which share of them is.

    Raises:
        QueryError: the run file is damaged.
    """
    window = {"from_ns": from_ns, "to_ns": to_ns}
    if most is not None:
        window["to_ns"] = _cut(run, window, most)
    begun: set[int] = set()
    yield b'{"displayTimeUnit":"ns","traceEvents":['
    first = True
    ranks = run.frame("SELECT DISTINCT rank FROM device_ops ORDER BY rank")["rank"].to_list()
    for number, rank in enumerate(ranks):
        if on_progress is not None:
            on_progress(f"rank {rank}", number / len(ranks))
        chosen = window | {"first_rank": rank, "last_rank": rank}
        rows = run_query(run, "timeline", chosen).sort("start_ns", maintain_order=True)
        for events in _of_rank(rank, rows, begun):
            yield b"" if first else b","
            yield msgspec.json.encode(events)[1:-1]
            first = False
    yield b"]}\n"


def _cut(run: Run, window: dict[str, int], most: int) -> int:
    """Returns: where a window must end to hold at most so many operations [ns]."""
    later = run.frame(
        "SELECT start_ns FROM device_ops WHERE start_ns < getvariable('to_ns') "
        "AND end_ns >= getvariable('from_ns') ORDER BY start_ns "
        f"LIMIT 1 OFFSET {most}",
        window,
    )
    return int(later.item()) if later.height else window["to_ns"]


def _of_rank(rank: int, rows: pl.DataFrame, begun: set[int]) -> Iterator[list[dict[str, Any]]]:
    """Yields lists of the events of a rank, none of them empty."""
    if rows.is_empty():
        return
    named: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": rank, "args": {"name": f"rank {rank}"}}
    ]
    yield named + [
        {"ph": "M", "name": "thread_name", "pid": rank, "tid": stream}
        | {"args": {"name": f"stream {stream}"}}
        for stream in rows["stream"].unique().sort()
    ]
    for part in rows.iter_slices(_AT_ONCE):
        yield [event for row in part.iter_rows(named=True) for event in _events(row, begun)]


def _events(row: dict[str, Any], begun: set[int]) -> Iterator[dict[str, Any]]:
    place = {"pid": row["rank"], "tid": row["stream"], "ts": row["start_ns"] / 1000}
    yield place | {
        "ph": "X",
        "name": row["name"],
        "cat": row["class"] or "unknown",
        "dur": (row["end_ns"] - row["start_ns"]) / 1000,
        "args": {name: row[name] for name in _ARGUMENTS if row[name] is not None},
    }
    if row["wait_ns"]:
        yield place | {"ph": "X", "name": "waiting", "cat": "wait", "dur": row["wait_ns"] / 1000}
    collective = row["collective_id"]
    if collective is not None:
        flow = {"name": "collective", "cat": "collective", "id": collective}
        yield place | flow | {"ph": "t" if collective in begun else "s"}
        begun.add(collective)


def steps_window(run: Run, first: int, last: int) -> tuple[int, int]:
    """Returns: start of the first and end of the last of some steps, over all ranks [ns].

    Raises:
        QueryError: the run has none of these steps.
    """
    found = run.frame(
        "SELECT min(start_ns) FILTER (chosen), max(end_ns) FILTER (chosen), min(step), max(step) "
        "FROM (SELECT *, step BETWEEN getvariable('first') AND getvariable('last') AS chosen "
        "FROM rank_timings WHERE scope = 'step')",
        {"first": first, "last": last},
    )
    start, end, least, most = found.row(0)
    if start is None:
        there = "no steps" if least is None else f"steps {least} to {most}"
        message = f"{run.name}: no steps {first} to {last}: the run has {there}"
        raise QueryError(message)
    return int(start), int(end)


def write_tables(run: Run, folder: Path, *, on_progress: Progress | None = None) -> None:
    """Writes each table of a run as one Parquet file; memory is that of one rank's rows.

    Args:
        run: an open run file.
        folder: an empty folder.
        on_progress: told which table is written and which share of them is.

    Raises:
        QueryError: the run file is damaged.
    """
    columns = run.frame(
        "SELECT table_name AS name, list(column_name) AS columns FROM duckdb_columns() "
        "WHERE NOT internal GROUP BY table_oid, table_name ORDER BY table_oid"
    )
    for number, (table, names) in enumerate(columns.iter_rows()):
        if on_progress is not None:
            on_progress(table, number / columns.height)
        _table(run, table, by_rank="rank" in names).sink_parquet(folder / f"{table}.parquet")


def _table(run: Run, table: str, *, by_rank: bool) -> pl.LazyFrame:
    rows = f'SELECT * FROM "{table}"'
    if not by_rank:
        return run.frame(rows).lazy()
    ranks = run.frame(f"SELECT DISTINCT rank FROM ({rows}) ORDER BY rank")["rank"].to_list()

    def parts(*_: object) -> Iterator[pl.DataFrame]:
        for rank in ranks:
            yield run.frame(f"{rows} WHERE rank = {rank}")

    return register_io_source(parts, schema=run.frame(f"{rows} LIMIT 0").schema)
