"""Whether a SQLite file is whole and at rest, found without changing anything about it."""

import os
import sqlite3
import struct
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from traceq.errors import SourceError

_HEADER_BYTES = 100
_FORMAT_AT = 18
_WAL_FORMAT = 2
_JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")


def refuse_unfinished(path: Path, label: str) -> None:
    """Refuses a file that a plain read would misread: cut short, or still being written.

    Raises:
        SourceError: it is one, with what to do.

    Source: https://sqlite.org/fileformat2.html, the database header.
    """
    with path.open("rb") as file:
        header = file.read(_HEADER_BYTES)
    if len(header) < _HEADER_BYTES:
        message = (
            f"{label}: cut short at {len(header)} bytes, inside the header: copy or export it again"
        )
        raise SourceError(message)
    page = struct.unpack_from(">H", header, 16)[0]
    page_bytes = 65536 if page == 1 else page
    changes, pages = struct.unpack_from(">II", header, 24)
    valid_for = struct.unpack_from(">I", header, 92)[0]
    size = path.stat().st_size
    if changes == valid_for and size < pages * page_bytes:
        message = (
            f"{label}: cut short: {size} of {pages * page_bytes} bytes are there: "
            "copy or export it again"
        )
        raise SourceError(message)
    journal, log = (path.with_name(path.name + end) for end in ("-journal", "-wal"))
    if _is_hot(journal) or (
        header[_FORMAT_AT] == _WAL_FORMAT and log.exists() and log.stat().st_size > 0
    ):
        message = (
            f"{label}: another program is writing it, or died while writing: "
            "wait for the export to end, or export it again"
        )
        raise SourceError(message)
    if header[_FORMAT_AT] != _WAL_FORMAT:
        _refuse_locked(path, label)


def _is_hot(journal: Path) -> bool:
    if not journal.exists():
        return False
    with journal.open("rb") as file:
        return file.read(len(_JOURNAL_MAGIC)) == _JOURNAL_MAGIC


def _refuse_locked(path: Path, label: str) -> None:
    """Asks for a shared lock and lets it go; with a write-ahead log SQLite would write for that."""
    uri = f"file:{quote(os.fsencode(path))}?mode=ro"
    try:
        with closing(sqlite3.connect(uri, uri=True, timeout=0)) as probe:
            probe.execute("SELECT count(*) FROM sqlite_master").fetchall()
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            message = (
                f"{label}: locked by another program that is writing it: wait for the export to end"
            )
            raise SourceError(message) from error
    except sqlite3.DatabaseError:
        return  # said better by the reading itself
