"""A run for other tools: its timeline for ui.perfetto.dev, its tables as Parquet."""

import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import msgspec
import polars as pl
from polars.io.plugins import register_io_source

from traceq.errors import QueryError, RunFileError
from traceq.query import run_query
from traceq.runfile import Run

MOST_EVENTS = 200_000
_AT_ONCE = 50_000
_END_NS = (1 << 63) - 1
_ARGUMENTS = ("op_count", "step", "size_bytes", "collective_id", "transfer_ns", "wait_ns")

_BY_RANK = ("device_ops", "nccl_kernels")

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
    begin = _flows(run, window)
    streams = run.frame("SELECT DISTINCT rank, stream FROM device_ops ORDER BY ALL")
    ranks = streams["rank"].unique().sort().to_list()
    yield b'{"displayTimeUnit":"ns","traceEvents":[\n' + _names(streams).encode()
    for number, rank in enumerate(ranks):
        if on_progress is not None:
            on_progress(f"rank {rank}", number / len(ranks))
        chosen = window | {"first_rank": rank, "last_rank": rank}
        for low, high in _pieces(run, chosen):
            rows = run_query(run, "timeline", chosen | {"from_ns": low, "to_ns": high})
            if low != from_ns:
                rows = rows.filter(pl.col("start_ns") >= low)
            if rows.height:
                yield b",\n" + _events(rows, begin).encode()
    yield b"]}\n"


def _flows(run: Run, window: dict[str, int]) -> pl.DataFrame:
    """Returns: where the flow of each collective begins: collective_id, first_rank."""
    return run.frame(
        "SELECT collective_id, first(rank ORDER BY start_ns, rank) AS first_rank FROM nccl_kernels "
        "WHERE collective_id IS NOT NULL AND start_ns < getvariable('to_ns') "
        "AND (end_ns > getvariable('from_ns') OR start_ns >= getvariable('from_ns')) "
        "GROUP BY collective_id",
        window,
    )


def _pieces(run: Run, window: dict[str, int]) -> Iterator[tuple[int, int]]:
    """Yields windows [ns] in which few operations of a rank begin, which make up the whole."""
    starts = run.frame(
        "SELECT start_ns FROM (SELECT start_ns, row_number() OVER (ORDER BY start_ns) AS number "
        "FROM device_ops WHERE rank = getvariable('first_rank') "
        "AND start_ns > getvariable('from_ns') AND start_ns < getvariable('to_ns')) "
        f"WHERE number % {_AT_ONCE} = 0 ORDER BY start_ns",
        window,
    )
    yield from pairwise((window["from_ns"], *starts["start_ns"].unique().sort(), window["to_ns"]))


def _cut(run: Run, window: dict[str, int], most: int) -> int:
    """Returns: where a window must end to hold at most so many operations [ns]."""
    later = run.frame(
        "SELECT start_ns FROM device_ops WHERE start_ns < getvariable('to_ns') "
        "AND (end_ns > getvariable('from_ns') OR start_ns >= getvariable('from_ns')) "
        "ORDER BY start_ns "
        f"LIMIT 1 OFFSET {most}",
        window,
    )
    return int(later.item()) if later.height else window["to_ns"]


def _names(streams: pl.DataFrame) -> str:
    """Returns: events that name ranks and streams, as JSON, separated by commas."""
    form = '{{"ph":"M","name":"{}_name","pid":{},"tid":{},"args":{{"name":"{} {}"}}}}'.format
    threads = [form("thread", *row, "stream", row[1]) for row in streams.iter_rows()]
    ranks = streams["rank"].unique().sort()
    return ",\n".join([form("process", rank, 0, "rank", rank) for rank in ranks] + threads)


def _events(rows: pl.DataFrame, begin: pl.DataFrame) -> str:
    """Returns: the events of operations as JSON, separated by commas.

    Args:
        rows: columns of the query `timeline`.
        begin: where the flow of each collective begins: collective_id, first_rank.
    """
    name, kind, op = (_quoted(rows, column) for column in ("name", "class", "op"))
    place = pl.format('"pid":{},"tid":{},"ts":{}', "rank", "stream", _us(pl.col("start_ns")))
    length = _us(pl.col("end_ns") - pl.col("start_ns"))
    arguments = [pl.format(f',"{argument}":{{}}', argument) for argument in _ARGUMENTS]
    said = _joined(*arguments, pl.format(',"op":{}', op)).str.slice(1)
    phase = pl.when(pl.col("first_rank") == pl.col("rank")).then(pl.lit("s"))
    events = (
        pl.format(
            '{{"ph":"X","name":{},"cat":{},{},"dur":{},"args":{{{}}}}}',
            name,
            kind.fill_null('"unknown"'),
            place,
            length,
            said,
        ),
        # A viewer binds a flow to the innermost slice that is open.
        pl.format(
            ',\n{{"ph":"{}","name":"collective","cat":"collective",{},"id":{}}}',
            *(phase.otherwise(pl.lit("t")), place, "collective_id"),
        ),
        pl.when(pl.col("wait_ns") > 0).then(
            pl.format(
                ',\n{{"ph":"X","name":"waiting","cat":"wait",{},"dur":{}}}',
                *(place, _us(pl.col("wait_ns"))),
            )
        ),
    )
    known = rows.join(begin, on="collective_id", how="left", maintain_order="left")
    text: str = known.select(_joined(*events).str.join(",\n")).item()
    return text


def _quoted(rows: pl.DataFrame, column: str) -> pl.Expr:
    texts = rows[column].drop_nulls().cast(pl.String).unique()
    quoted = {text: msgspec.json.encode(text).decode() for text in texts}
    return pl.col(column).cast(pl.String).replace_strict(quoted, return_dtype=pl.String)


def _joined(*texts: pl.Expr) -> pl.Expr:
    """Returns: those of some texts that are not NULL, one behind the other."""
    return pl.concat_str(text.fill_null("") for text in texts)


def _us(ns: pl.Expr) -> pl.Expr:
    """Returns: microseconds as text, exact to the nanosecond."""
    return pl.format("{}.{}", ns // 1000, (ns % 1000).cast(pl.String).str.zfill(3))


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
        RunFileError: a table cannot be written.
    """
    tables = run.frame(
        "SELECT table_name AS name FROM duckdb_tables() WHERE NOT internal ORDER BY name"
    )["name"].to_list()
    strange = [table for table in tables if not re.fullmatch(r"\w+", table)]
    if strange:
        message = f"{run.name}: holds a table that traceq did not make: {strange[0]!r}"
        raise QueryError(message)
    for number, table in enumerate(tables):
        if on_progress is not None:
            on_progress(table, number / len(tables))
        try:
            _table(run, table).sink_parquet(folder / f"{table}.parquet")
        except pl.exceptions.ComputeError as error:  # what polars makes of a full disk
            message = f"{table}.parquet: cannot be written: {str(error).splitlines()[0]}"
            raise RunFileError(message) from error


def _table(run: Run, table: str) -> pl.LazyFrame:
    rows = f'SELECT * FROM "{table}"'
    if table not in _BY_RANK:
        return run.frame(rows).lazy()
    ranks = run.frame(f"SELECT DISTINCT rank FROM ({rows}) ORDER BY rank")["rank"].to_list()

    def parts(*_: object) -> Iterator[pl.DataFrame]:
        for rank in ranks:
            yield run.frame(f"{rows} WHERE rank = {rank}")

    return register_io_source(parts, schema=run.frame(f"{rows} LIMIT 0").schema)
