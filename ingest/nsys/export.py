"""One SQLite export, opened read-only: which tables and columns it has, and their rows.

Nothing here depends on a version number: a column that an export lacks is read as NULL. Large
tables are streamed in chunks of rowids through Arrow; small ones are read as plain rows. The file
is opened immutable, so that neither a lock nor a journal is ever left beside it.
"""

import os
import sqlite3
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

import adbc_driver_manager
import adbc_driver_sqlite
import polars as pl

from traceq.errors import SourceError
from traceq.ingest.nsys.preflight import refuse_unfinished
from traceq.model.reasons import REEXPORT

CHUNK_ROWS = 500_000
_MOST_CHUNKS = 10_000
_SIGNS_OF_NSYS = (
    "CUPTI_ACTIVITY_KIND_",
    "TARGET_INFO_",
    "META_DATA_EXPORT",
    "EXPORT_META_DATA",
    "NVTX_EVENTS",
)


# SQLite's own words that may be repeated; any other may quote what the file holds.
_FACTS = ("database disk image is malformed", "file is not a database", "no such column")


class Export:
    """An nsys SQLite export.

    Raises:
        SourceError: the file is cut short, locked, damaged, or not an nsys export.
    """

    def __init__(
        self, path: Path, label: str, on_rows: Callable[[int, int], None] | None = None
    ) -> None:
        self.label = label
        self._on_rows = on_rows
        self._rows_read = 0
        self._rows_expected = 0
        path = Path(os.path.realpath(path))
        self._uri = f"file:{quote(os.fsencode(path))}?mode=ro&immutable=1"
        refuse_unfinished(path, label)
        self._tables = self._read_schema()
        if not any(name.startswith(_SIGNS_OF_NSYS) for name in self._tables):
            message = (
                f"{label}: a SQLite database without any Nsight Systems table: export the report "
                f"with {REEXPORT} run.nsys-rep"
            )
            raise SourceError(message)

    def has(self, table: str) -> bool:
        """Returns: whether the export has a table."""
        return table in self._tables

    def tables(self, prefix: str) -> list[str]:
        """Returns: the tables whose names begin so, in order."""
        return sorted(name for name in self._tables if name.startswith(prefix))

    def columns(self, table: str) -> frozenset[str]:
        """Returns: the columns of a table, none when the export lacks it."""
        return self._tables.get(table, frozenset())

    def column(self, table: str, name: str) -> str:
        """Returns: the SQL of a column, or NULL when the table lacks it."""
        return f'"{name}"' if name in self.columns(table) else "NULL"

    def rows(self, table: str, columns: Iterable[str], where: str = "1") -> list[tuple[Any, ...]]:
        """Returns: the rows of a small table, NULL for columns it lacks; none without the table.

        Raises:
            SourceError: the table is damaged.
        """
        if not self.has(table):
            return []
        selected = ", ".join(self.column(table, name) for name in columns)
        return self._query(f'SELECT {selected} FROM "{table}" WHERE {where} ORDER BY 1')

    def holds(self, table: str, where: str) -> bool:
        """Returns: whether any row of a table meets a condition."""
        return bool(self._query(f'SELECT EXISTS (SELECT 1 FROM "{table}" WHERE {where})')[0][0])

    def count(self, table: str) -> int:
        """Returns: the number of rows of a table, 0 without the table."""
        return int(self._query(f'SELECT count(*) FROM "{table}"')[0][0]) if self.has(table) else 0

    def expect(self, tables: Iterable[str]) -> None:
        """Counts the rows that scans of these tables will read, for progress."""
        self._rows_expected = sum(
            last - first + 1
            for table in tables
            if self.has(table)
            for first, last in self._chunks(table)
        )

    def scan(
        self, table: str, select: Mapping[str, str], *, where: str = "1", threads: int = 1
    ) -> Iterator[pl.DataFrame]:
        """Yields: a large table in bounded chunks, in order of rowid.

        Args:
            table: name of the table; nothing is yielded when the export lacks it.
            select: SQL expression of each wanted column, by the name it gets.
            where: SQL condition on the rows.
            threads: chunks read at the same time.

        Raises:
            SourceError: the table is damaged.
        """
        if not self.has(table):
            return
        columns = ", ".join(f'{sql} AS "{name}"' for name, sql in select.items())
        chunks = self._chunks(table)

        def read(bounds: tuple[int, int]) -> pl.DataFrame:
            first, last = bounds
            return self._read(
                f'SELECT {columns} FROM "{table}" '
                f"WHERE rowid BETWEEN {first} AND {last} AND ({where})"
            )

        with ThreadPoolExecutor(threads) as pool:
            ahead = deque(pool.submit(read, bounds) for bounds in chunks[: threads + 1])
            for position, (first, last) in enumerate(chunks):
                chunk = ahead.popleft().result()
                if position + threads + 1 < len(chunks):
                    ahead.append(pool.submit(read, chunks[position + threads + 1]))
                self._rows_read += last - first + 1
                if self._on_rows is not None:
                    self._on_rows(self._rows_read, self._rows_expected)
                yield chunk

    @cached_property
    def strings(self) -> dict[int, str]:
        """Returns: the text of every id in StringIds; bytes that are not UTF-8 are replaced."""
        return {
            number: text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)
            for number, text in self.rows("StringIds", ("id", "value"))
            if isinstance(number, int) and text is not None
        }

    def _chunks(self, table: str) -> list[tuple[int, int]]:
        bounds = f'SELECT (SELECT min(rowid) FROM "{table}"), (SELECT max(rowid) FROM "{table}")'
        first, last = self._query(bounds)[0]
        if first is None:
            return []
        if last - first > _MOST_CHUNKS * CHUNK_ROWS:
            return self._sparse_chunks(table, first, last)
        return [
            (start, min(start + CHUNK_ROWS - 1, last))
            for start in range(first, last + 1, CHUNK_ROWS)
        ]

    def _sparse_chunks(self, table: str, first: int, last: int) -> list[tuple[int, int]]:
        """Returns: chunks by rows, not by rowids, for a table whose rowids are far apart."""
        chunks = []
        while first <= last:
            following = self._query(
                f'SELECT rowid FROM "{table}" WHERE rowid >= {first} ORDER BY rowid '
                f"LIMIT 1 OFFSET {CHUNK_ROWS}"
            )
            end = following[0][0] - 1 if following else last
            chunks.append((first, end))
            first = end + 1
        return chunks

    def _read(self, statement: str) -> pl.DataFrame:
        try:
            # Not through its DB-API, which imports pyarrow and pandas where they are there.
            with (
                adbc_driver_sqlite.connect(self._uri) as database,
                adbc_driver_manager.AdbcConnection(database) as connection,
                adbc_driver_manager.AdbcStatement(connection) as reading,
            ):
                reading.set_options(**{"adbc.sqlite.query.batch_rows": "65536"})
                reading.set_sql_query(statement)
                stream, _ = reading.execute_query()
                return pl.DataFrame(stream)
        except adbc_driver_manager.Error as error:
            raise self._damaged(error) from error

    def _query(self, statement: str) -> list[tuple[Any, ...]]:
        try:
            with closing(sqlite3.connect(self._uri, uri=True)) as connection:
                connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
                return connection.execute(statement).fetchall()
        except sqlite3.Error as error:
            raise self._damaged(error) from error

    def _read_schema(self) -> dict[str, frozenset[str]]:
        rows = self._query(
            "SELECT t.name, c.name FROM sqlite_master t, pragma_table_info(t.name) c "
            "WHERE t.type = 'table' AND t.sql NOT LIKE '%WITHOUT ROWID%'"
        )
        tables: dict[str, set[str]] = {}
        for table, column in rows:
            tables.setdefault(table, set()).add(column)
        return {table: frozenset(columns) for table, columns in tables.items()}

    def _damaged(self, error: Exception) -> SourceError:
        known = next((fact for fact in _FACTS if fact in str(error)), "its tables cannot be read")
        return SourceError(f"{self.label}: damaged: {known}: copy or export it again")
