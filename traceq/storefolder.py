"""The folder of a store, and the locks that tell what a process that is gone left in it.

    <store>/catalog.sqlite        the catalog, unless it is elsewhere
    <store>/runs/TOKEN.duckdb     run files, which never change
    <store>/building/TOKEN/       all that a live ingest needs, with its lock
    <store>/lock                  held for moments: to begin an ingest, and to clean

Locks are those of the kernel (flock), so that the end of a process, whatever ends it, releases
them. An ingest takes that of its building folder inside of the gate, and holds it until the folder
is gone.
"""

import fcntl
import os
import secrets
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from traceq.errors import StoreError

SUFFIX = ".duckdb"
CATALOG = "catalog.sqlite"


def default_folder() -> Path:
    """Returns: `$TRACEQ_STORE`, else traceq's place among the user's data; it may not exist.

    Raises:
        StoreError: nothing tells where the user's data is.
    """
    if chosen := os.environ.get("TRACEQ_STORE"):
        return Path(chosen)
    data = os.environ.get("XDG_DATA_HOME", "")
    if data.startswith("/"):  # the standard has it that another is to be ignored
        return Path(data, "traceq")
    try:
        return Path.home() / ".local" / "share" / "traceq"
    except RuntimeError:
        message = "the store has no place, since there is no home: set TRACEQ_STORE to a folder"
        raise StoreError(message) from None


def quick_file(name: str) -> Path | None:
    """Returns: the file of a run of the user's store, None where only its catalog can tell.

    A report of a kept run takes less time than to import what the catalog is made of, so its SQLite
    file is asked here, and nothing in it is changed. It is opened as by a writer, because one that
    may only read leaves files of the journal beside it.
    """
    if os.environ.get("TRACEQ_CATALOG"):
        return None
    folder = default_folder()
    place = f"file:{quote(str((folder / CATALOG).absolute()))}?mode=rw"
    try:
        with closing(sqlite3.connect(place, uri=True)) as catalog:
            rows = catalog.execute("SELECT token FROM runs WHERE name = ?", (name,)).fetchall()
    except sqlite3.Error:
        return None
    file = folder / "runs" / f"{rows[0][0]}{SUFFIX}" if rows else None
    return file if file is not None and file.is_file() else None


class StoreFolder:
    """The files of one store."""

    def __init__(self, folder: Path) -> None:
        """Makes the folder, where it is missing.

        Raises:
            StoreError: it cannot be made.
        """
        self.path = folder.absolute()
        self._runs, self._building = self.path / "runs", self.path / "building"
        with told(self.path.name):
            for each in (self._runs, self._building):
                each.mkdir(parents=True, exist_ok=True)

    def run_file(self, token: str) -> Path:
        """Returns: where the file of a run is, or would be."""
        return self._runs / f"{token}{SUFFIX}"

    def run_tokens(self) -> list[str]:
        """Returns: the tokens of all run files."""
        with told(self.path.name):
            files = sorted(self._runs.glob(f"*{SUFFIX}"))
        return [file.name.removesuffix(SUFFIX) for file in files if not file.name.startswith(".")]

    def building_tokens(self) -> list[str]:
        """Returns: the tokens of runs that are being built, or were when their process ended."""
        with told(self.path.name):
            return sorted(each.name for each in self._building.iterdir())

    @contextmanager
    def gate(self) -> Iterator[None]:
        """Keeps others from beginning an ingest, and from cleaning, while the block runs.

        Raises:
            StoreError: the folder cannot be written.
        """
        with told(self.path.name):
            held = _opened(self.path / "lock")
        try:
            with told(self.path.name):
                fcntl.flock(held, fcntl.LOCK_EX)
            yield
        finally:
            os.close(held)

    @contextmanager
    def building(self, token: str) -> Iterator[Path]:
        """Yields: a new folder to build a run in; its lock is held while the block runs.

        The block removes the folder, with `discard`, once what became of the run is settled. Left
        behind, it is settled by whoever opens the store next.

        Raises:
            StoreError: the folder cannot be made.
        """
        folder = self._building / token
        with self.gate(), told(self.path.name):
            folder.mkdir()
            held = _opened(folder / "lock")
            fcntl.flock(held, fcntl.LOCK_EX)
        try:
            yield folder
        finally:
            os.close(held)

    def abandoned(self) -> Iterator[str]:
        """Yields: each token whose building folder has no live process; its lock is held meanwhile.

        To be used inside of `gate`: a folder that is about to be locked is not yet abandoned.
        """
        for token in self.building_tokens():
            try:
                held = _opened(self._building / token / "lock")
            except OSError:
                continue  # its process removed it meanwhile
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                yield token
            except BlockingIOError:
                pass
            finally:
                os.close(held)

    def discard(self, token: str) -> None:
        """Removes the building folder of a run."""
        shutil.rmtree(self._building / token, ignore_errors=True)

    def publish(self, token: str, built: Path) -> None:
        """Gives a run file its place, for good also when the power fails.

        Raises:
            StoreError: it cannot be moved there.
        """
        with told(self.path.name):
            if self.run_file(token).exists():
                message = f"{self.run_file(token).name}: exists, and a run file is never changed"
                raise StoreError(message)
            built.rename(self.run_file(token))
            descriptor = os.open(self._runs, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def unlink(self, token: str) -> None:
        """Removes the file of a run, if it is there.

        Raises:
            StoreError: it cannot be removed.
        """
        with told(self.run_file(token).name):
            self.run_file(token).unlink(missing_ok=True)


def new_token(fingerprint: str) -> str:
    """Returns: a name for a run file that no other has, and that tells the fingerprint."""
    return f"{fingerprint}-{secrets.token_hex(8)}"


def told_fingerprint(token: str) -> str | None:
    """Returns: the fingerprint that the name of a run file tells, None when it is another name."""
    fingerprint, dash, rest = token.partition("-")
    whole = (len(fingerprint), dash, len(rest)) == (64, "-", 16)
    return fingerprint if whole and set(fingerprint + rest) <= set("0123456789abcdef") else None


@contextmanager
def told(name: str) -> Iterator[None]:
    """Turns a refusal of the system into one line about the store.

    Raises:
        StoreError: the block raised an OSError.
    """
    try:
        yield
    except OSError as error:
        message = (
            f"{name}: the store cannot be used: {error.strerror}: set TRACEQ_STORE to a folder of "
            "yours"
        )
        raise StoreError(message) from error


def _opened(lock: Path) -> int:
    return os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
