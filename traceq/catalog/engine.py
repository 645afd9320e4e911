"""How the catalog reaches its database: SQLite and PostgreSQL, their locks, and their errors."""

import sqlite3
from pathlib import Path
from typing import Any

from sqlalchemy import (
    URL,
    Connection,
    Engine,
    NullPool,
    create_engine,
    event,
    inspect,
    make_url,
    text,
)
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError

from traceq.errors import StoreError

REVISIONS = ("0001", "0002")
VERSION_TABLE = "catalog_version"
_BUSY_S = 60
_CONNECT_S = 10
_MIGRATION_LOCK = 0x7472_6365_71  # any number that all versions of traceq agree on
_POSTGRES = "postgresql+psycopg"
_HOW = "write sqlite:////FOLDER/catalog.sqlite or postgresql://USER@HOST/DATABASE"


def make_engine(place: Path | str) -> tuple[Engine, str | None]:
    """Returns: an engine whose connections end with their use, and the base name of a SQLite file.

    A transaction that writes, told by the execution option `writes`, has the right to write from
    its beginning, so that two never wait for each other.

    Raises:
        StoreError: the URL is none of a database that traceq can use.
    """
    url = URL.create("sqlite", database=str(place)) if isinstance(place, Path) else _url(place)
    lite = url.drivername == "sqlite"
    wait = {"timeout": _BUSY_S} if lite else {"connect_timeout": _CONNECT_S}
    try:
        engine = create_engine(url, poolclass=NullPool, connect_args=wait)
    except ImportError:
        message = "a catalog in PostgreSQL needs its driver: pip install 'traceq[postgres]'"
        raise StoreError(message) from None
    if lite:
        event.listen(engine, "connect", _connected)
    event.listen(engine, "begin", _begin_lite if lite else _begin_postgres)
    return engine, Path(url.database or "").name if lite else None


def _url(place: str) -> URL:
    try:
        url = make_url(place)
    except (ArgumentError, ValueError):
        message = f"the URL of the catalog cannot be read: {_HOW}"
        raise StoreError(message) from None
    if url.drivername in {"postgresql", "postgres", _POSTGRES}:
        return url.set(drivername=_POSTGRES)
    if url.drivername == "sqlite" and url.database not in {None, "", ":memory:"}:
        return url
    message = f"the URL of the catalog is of no database that traceq can use: {_HOW}"
    raise StoreError(message)


def _connected(connection: sqlite3.Connection, _: object) -> None:
    connection.isolation_level = None  # transactions are begun below, with tables made inside too
    connection.execute("PRAGMA foreign_keys = ON")


def _begin_lite(connection: Connection) -> None:
    writes = connection.get_execution_options().get("writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _begin_postgres(connection: Connection) -> None:
    if connection.get_execution_options().get("writes"):
        # Should a machine be gone without a word, its locks are held until the server notices.
        connection.exec_driver_sql("SET LOCAL lock_timeout = '30s'")


def migrate(engine: Engine, label: str) -> None:
    """Brings a catalog to the newest revision; of several processes one does, and others wait.

    Raises:
        StoreError: it is of a newer traceq.
    """
    with engine.connect() as connection:
        if revision_of(connection, label) == REVISIONS[-1]:
            return
    lite = engine.dialect.name == "sqlite"
    if lite:
        _write_ahead(engine)
    with engine.execution_options(writes=True).begin() as connection:
        if not lite:
            connection.execute(text(f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})"))
        if revision_of(connection, label) != REVISIONS[-1]:
            upgrade(connection, REVISIONS[-1])


def revision_of(connection: Connection, label: str) -> str | None:
    """Returns: the revision of a catalog, None when it has no tables yet.

    Raises:
        StoreError: it is of a newer traceq.
    """
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    query = text(f"SELECT version_num FROM {VERSION_TABLE}")
    revision: str | None = connection.execute(query).scalar()
    if revision is not None and revision not in REVISIONS:
        message = f"{label}: is of a newer traceq: install that version to use it"
        raise StoreError(message)
    return revision


def upgrade(connection: Connection, revision: str) -> None:
    """Migrates inside the transaction of a connection."""
    from alembic import command  # noqa: PLC0415  # needed once in the life of a catalog
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", "traceq:migrations")
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    config.attributes["version_table"] = VERSION_TABLE
    command.upgrade(config, revision)


def _write_ahead(engine: Engine) -> None:
    """Lets readers go on while one writes, which a SQLite file remembers of itself."""
    raw = engine.raw_connection()
    try:
        raw.cursor().execute("PRAGMA journal_mode = WAL")
    except sqlite3.Error as error:
        raise OperationalError(None, None, error) from error
    finally:
        raw.close()


_WORDS = (
    ("locked", "busy for a minute: another process is writing it: try again"),
    ("not a database", "not a catalog: move it away, and traceq runs rescan finds the runs again"),
    ("malformed", "damaged: move it away, and traceq runs rescan finds the runs again"),
    ("readonly", "cannot be written: make it and its folder writable, or set TRACEQ_STORE"),
    ("unable to open", "cannot be opened: make its folder writable, or set TRACEQ_STORE"),
    ("full", "cannot be written: no space is left"),
)


def in_words(error: DBAPIError, file_name: str | None) -> str:
    """Returns: an error of the database in one line that names no host, user or path."""
    driver: Any = error.orig
    if file_name is not None:
        fact = str(driver)
        return f"{file_name}: " + next((told for sign, told in _WORDS if sign in fact), fact)
    state = getattr(driver, "sqlstate", None)
    if state == "55P03":
        return "catalog: busy: another process holds what is needed: try again"
    if isinstance(error, OperationalError):
        return (
            "catalog: its server cannot be reached, or refuses: see that it runs, and that user, "
            "password and database in TRACEQ_CATALOG are right"
        )
    diag = getattr(driver, "diag", None)
    fact = getattr(diag, "message_primary", None) or type(driver).__name__
    return f"catalog: its server refuses: {fact}"
