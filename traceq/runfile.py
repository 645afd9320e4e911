"""The run file: built beside its final name, published by rename, opened read-only.

This is the only module that opens DuckDB. A run file is complete in itself and never changes once
it has its name, so that readers never meet a half-written one and never block a writer.
"""

import os
import re
import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any, Self

import duckdb
import polars as pl

from traceq.errors import QueryError, RunFileError

SCHEMA_VERSION = 3
MAGIC = b"DUCK"
MAGIC_OFFSET = 8
_SEALED = {
    "access_mode": "READ_ONLY",
    "enable_external_access": "false",
    "lock_configuration": "true",
}


class ArrowTable:
    """A polars frame handed to DuckDB through the Arrow stream interface, without pyarrow."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self._frame = frame

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Returns: the frame as an Arrow C stream."""
        return self._frame.__arrow_c_stream__(requested_schema)


class RunWriter:
    """A run file under construction."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def append(self, table: str, frame: pl.DataFrame) -> None:
        """Appends rows to a table by column name; columns the frame lacks become NULL."""
        frame = frame.select(pl.exclude(pl.Null))
        if frame.is_empty():
            return
        columns = ", ".join(f'"{name}"' for name in frame.columns)
        self._connection.register("appended", ArrowTable(frame))
        self._connection.execute(f"INSERT INTO {table} ({columns}) SELECT {columns} FROM appended")
        self._connection.unregister("appended")

    def append_ops(self, part: Path, ranks: pl.DataFrame, names: pl.DataFrame) -> None:
        """Appends the device operations of one source from its Parquet part.

        Args:
            part: Parquet file in the source's own numbering and time.
            ranks: by key: rank, shift_ns [ns].
            names: by local name id: name_id.
        """
        self._connection.register("part_ranks", ArrowTable(ranks))
        self._connection.register("part_names", ArrowTable(names))
        self._connection.execute(
            """
            INSERT INTO device_ops
            SELECT r.rank, o.stream, o.start_ns + r.shift_ns, o.end_ns + r.shift_ns, n.name_id,
                   o.class, o.step, o.correlation, o.launch_ns + r.shift_ns, o.bytes
            FROM read_parquet($part) o
            JOIN part_ranks r USING (key)
            JOIN part_names n USING (local_id)
            """,
            {"part": str(part)},
        )
        for view in ("part_ranks", "part_names"):
            self._connection.unregister(view)

    def total_ops(self) -> None:
        """Fills kernel_totals from the device operations, once all are there."""
        self._connection.execute(
            """
            INSERT INTO kernel_totals
            SELECT name_id, class, count(DISTINCT rank), count(*), sum(end_ns - start_ns)::BIGINT,
                   min(end_ns - start_ns), quantile_disc(end_ns - start_ns, 0.5),
                   max(end_ns - start_ns)
            FROM device_ops GROUP BY name_id, class
            """
        )


class Run:
    """A finished run file, open for reading."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, name: str) -> None:
        self._connection = connection
        self.name = name

    def frame(
        self,
        sql: str,
        variables: Mapping[str, Any] | None = None,
        *,
        most_rows: int | None = None,
        limit_s: float | None = None,
    ) -> pl.DataFrame:
        """Returns: the rows of one SELECT as a polars frame.

        Args:
            sql: one statement that only reads.
            variables: values that the statement reads with ``getvariable``.
            most_rows: leave out further rows.
            limit_s: end the statement after so many seconds.

        Raises:
            QueryError: the statement is not a single SELECT, DuckDB refuses it, or it ran too long.
        """
        cursor = self._connection.cursor()
        try:
            statements = cursor.extract_statements(sql)
            if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                message = "only one SELECT statement can be run on a run file"
                raise QueryError(message)
            for name, value in (variables or {}).items():
                cursor.execute(f"SET VARIABLE {name} = $value", {"value": value})
            with _ended_after(cursor, limit_s):
                result = cursor.sql(sql)
                if most_rows is not None:
                    result = result.limit(most_rows)
                _refuse_unprintable(result.columns, [str(kind) for kind in result.types])
                return pl.DataFrame(result)
        except (duckdb.Error, pl.exceptions.ComputeError) as error:  # polars' own while it fetches
            said = _first_line(error)
            if isinstance(error, duckdb.InterruptException) or "INTERRUPT Error" in said:
                if limit_s is None:
                    raise KeyboardInterrupt from error
                said = f"ran longer than {limit_s:g} s: ask for less, or use traceq sql"
            message = f"{self.name}: {said}"
            raise QueryError(message) from error
        finally:
            cursor.close()

    def describe(self, sql: str) -> list[tuple[str, str]]:
        """Returns: (name, type) of each column of a SELECT, as DuckDB itself sees them."""
        cursor = self._connection.cursor()
        try:
            return [(row[0], row[1]) for row in cursor.execute(f"DESCRIBE {sql}").fetchall()]
        finally:
            cursor.close()

    def close(self) -> None:
        """Closes the file."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def create(path: Path) -> Iterator[RunWriter]:
    """Yields a writer; the file takes its name when the block ends well, and is gone otherwise.

    Raises:
        RunFileError: the name is taken, or the folder cannot be written.
    """
    path = path.resolve()
    refuse_taken(path)
    building = path.with_name(f".{path.name}.building-{os.getpid()}-{secrets.token_hex(4)}")
    try:
        connection = duckdb.connect(str(building))
    except duckdb.Error as error:
        message = f"{path.name}: cannot be written: {_first_line(error)}"
        raise RunFileError(message) from error
    try:
        try:
            connection.execute(f"BEGIN;\n{schema_sql()}\nCOMMIT;")  # one commit, not one a comment
            yield RunWriter(connection)
        finally:
            connection.close()
        if path.exists():
            message = f"{path.name}: was made by another process meanwhile"
            raise RunFileError(message)
        building.rename(path)
    except duckdb.Error as error:
        message = f"{path.name}: cannot be written: {_first_line(error)}"
        raise RunFileError(message) from error
    finally:
        building.unlink(missing_ok=True)
        building.with_name(building.name + ".wal").unlink(missing_ok=True)


def refuse_taken(path: Path) -> None:
    """Refuses a name that a new run file cannot have.

    Raises:
        RunFileError: the name is taken, its folder is missing, or DuckDB would misread it.
    """
    if path.exists():
        message = f"{path.name}: exists, and a run file is never changed: choose another name"
    elif not path.absolute().parent.is_dir():
        message = f"{path.name}: cannot be written: there is no such folder"
    elif "?" in str(path):
        message = f"{path.name}: a run file cannot have a question mark in its path"
    else:
        return
    raise RunFileError(message)


def open_run(path: str | Path, *, label: str | None = None, memory_limit: str | None = None) -> Run:
    """Returns: a run file opened read-only, without access to any other file.

    Args:
        path: the run file.
        label: what errors call it, by default its base name.
        memory_limit: what DuckDB may use, as in ``2GB``; by default most of the machine's.

    Raises:
        RunFileError: there is no such file, or it is not a run file of this version.
    """
    path = Path(path)
    label = label or path.name
    if not is_run_file(path):
        message = f"{label}: not a run file: make one with traceq report SOURCES --save"
        raise RunFileError(message)
    try:
        config: dict[str, Any] = dict(_SEALED)
        if memory_limit is not None:
            config["memory_limit"] = memory_limit
        connection = duckdb.connect(str(path.resolve()), read_only=True, config=config)
    except duckdb.Error as error:
        message = f"{label}: cannot be opened: {_first_line(error)}"
        raise RunFileError(message) from error
    try:
        rows = connection.execute("SELECT schema_version FROM run").fetchall()
    except duckdb.Error:
        rows = []
    if rows != [(SCHEMA_VERSION,)]:
        connection.close()
        message = f"{label}: not a run file of this traceq version: read its sources again"
        raise RunFileError(message)
    return Run(connection, label)


def is_run_file(path: Path) -> bool:
    """Returns: whether a file begins as a DuckDB database does."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(MAGIC_OFFSET + len(MAGIC))[MAGIC_OFFSET:] == MAGIC
    except OSError:
        return False


def schema_sql() -> str:
    """Returns: the statements that create every table of a run file."""
    return resources.files("traceq.model").joinpath("schema.sql").read_text(encoding="utf-8")


@contextmanager
def _ended_after(cursor: duckdb.DuckDBPyConnection, limit_s: float | None) -> Iterator[None]:
    """Interrupts what the cursor does in the block, once it has lasted so long."""
    if limit_s is None:
        yield
        return
    timer = threading.Timer(limit_s, cursor.interrupt)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _refuse_unprintable(columns: Sequence[str], types: Sequence[str]) -> None:
    twice = sorted({name for name in columns if columns.count(name) > 1})
    if twice:
        message = f"two columns are called {twice[0]}: tell them apart with AS"
        raise QueryError(message)
    for name, kind in zip(columns, types, strict=True):
        if any(word in kind for word in ("INTERVAL", "UNION", "BIT", "MAP")):
            message = f"column {name} is of type {kind}: cast it, as in {name}::VARCHAR"
            raise QueryError(message)


def _first_line(error: Exception) -> str:
    line = str(error).strip().splitlines()[0].removeprefix("got external error: ")
    return re.sub(r'"[^"]*/([^"/]+)"', r'"\1"', line)
