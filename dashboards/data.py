"""What the pages show: runs of the store, their reports and rows, kept in memory once read.

A run file never changes under its real path, so everything is kept by that path.
"""

import ipaddress
from functools import cache
from pathlib import Path

import polars as pl
import streamlit as st

from traceq.compare.comparison import Comparison, Scaling, compare_runs
from traceq.dashboards.login import login_required
from traceq.errors import TraceqError
from traceq.query import run_query
from traceq.report import Report, build_report
from traceq.runfile import Run, open_run
from traceq.store import Store, StoredRun
from traceq.storefolder import default_folder

SQL_ROWS = 10_000
SQL_LIMIT_S = 10.0
MEMORY_LIMIT = "2GB"
_names: dict[str, str] = {}


def store_folder() -> Path:
    """Returns: the folder of the store."""
    return default_folder().resolve()


@cache
def _store(folder: Path) -> Store:
    return Store(folder)


def stored_runs() -> list[StoredRun]:
    """Returns: the runs of the store, newest first.

    Raises:
        StoreError: the store cannot be read.
    """
    return _store(store_folder()).runs()


def uploads_allowed() -> bool:
    """Returns: whether files can be uploaded: only where nobody unknown can come in."""
    if login_required():
        return True
    address = st.get_option("server.address") or "127.0.0.1"
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return bool(address == "localhost")


def real_path(run: StoredRun) -> str:
    """Returns: the path by which a run is kept in memory.

    Raises:
        TraceqError: its file is gone.
    """
    path = run.path.resolve()
    if not path.exists():
        message = f"{run.name}: its file is gone from the store: see traceq runs rescan"
        raise TraceqError(message)
    _names[str(path)] = run.name  # what errors call it
    return str(path)


# A run that falls out is closed once nobody reads it any more.
@st.cache_resource(max_entries=16, show_spinner=False)
def _opened(path: str) -> Run:
    return open_run(path, label=_names.get(path), memory_limit=MEMORY_LIMIT)


def opened(path: str) -> Run:
    """Returns: the run file at a real path, open for reading; a cursor serves each call.

    Raises:
        RunFileError: it is not a run file of this version.
    """
    return _opened(path)


@st.cache_resource(max_entries=32, show_spinner="Adding up the run")
def report(path: str) -> Report:
    """Returns: the report of a run, as the command line prints it.

    Raises:
        TraceqError: the run file is damaged.
    """
    return build_report(opened(path))


@st.cache_resource(max_entries=256, show_spinner="Reading the run")
def rows(
    path: str, query: str, parameters: tuple[tuple[str, str | float], ...] = ()
) -> pl.DataFrame:
    """Returns: the rows of a canned query.

    Raises:
        QueryError: there is no such query or parameter.
    """
    return run_query(opened(path), query, dict(parameters))


@st.cache_resource(max_entries=16, show_spinner="Comparing the runs")
def comparison(paths: tuple[str, ...], scaling: Scaling) -> Comparison:
    """Returns: the runs at real paths compared with the first, as the command line prints it.

    Raises:
        TraceqError: there are fewer than two, or a run file is damaged.
    """
    return compare_runs([opened(path) for path in paths], scaling)


def free_rows(path: str, statement: str) -> pl.DataFrame:
    """Returns: the first rows of a statement that only reads, one more than are shown.

    Raises:
        QueryError: it is no single SELECT, DuckDB refuses it, or it runs too long.
    """
    return opened(path).frame(statement, most_rows=SQL_ROWS + 1, limit_s=SQL_LIMIT_S)


@st.cache_resource(max_entries=32, show_spinner=False)
def tables(path: str) -> pl.DataFrame:
    """Returns: one row per column of the run file: table_name, column_name, data_type, comment."""
    return opened(path).frame(
        "SELECT table_name, column_name, data_type, comment FROM duckdb_columns() "
        "WHERE NOT internal ORDER BY table_oid, column_index"
    )
