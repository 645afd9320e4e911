"""Where uploaded files lie until they are read: a folder of this process inside the store.

A batch is what one person uploads for one run. It goes with its files and its reading process when
the run is read, when it is cancelled, when its browser is closed, and when the server ends.
"""

import fcntl
import os
import secrets
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from traceq.dashboards.job import Job
from traceq.errors import TraceqError

MOST_FILES = 4096
GRACE_S = 10.0
_NAME_BYTES = 200


class UploadError(TraceqError):
    """An upload that cannot be taken; `status` is that of the answer."""

    status = 400


@dataclass(frozen=True, slots=True)
class Upload:
    """A file that arrived whole."""

    name: str
    path: Path
    size_bytes: int


@dataclass
class Batch:
    """Files of one person for one run.

    Attributes:
        key: what the page and the upload route call it.
        session: session of the browser that uploads.
        folder: where its files lie, made with the first.
        files: by number: what arrived.
        job: the process that reads them, once started.
        closed: whether it is gone.
        seen_s: when its browser was last there [s, monotonic].
    """

    key: str
    session: str
    folder: Path
    files: dict[int, Upload] = field(default_factory=dict)
    job: Job | None = None
    closed: bool = False
    seen_s: float = field(default_factory=time.monotonic)

    def place(self, number: int, name: str) -> Path:
        """Returns: where a file may be written, in a folder of its own.

        Raises:
            UploadError: the batch is closed or full, or the name is none of a file.
        """
        if self.closed or self.job is not None:
            message = "this upload has ended: open the page again"
            raise UploadError(message)
        if not 0 <= number < MOST_FILES:
            message = f"more than {MOST_FILES} files: use traceq ingest"
            raise UploadError(message)
        refuse_name(name)
        folder = self.folder / str(number)
        self.folder.mkdir(mode=0o700, exist_ok=True)
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            message = "another file of this upload has its number: upload it again"
            raise UploadError(message) from None
        return folder / name

    def close(self) -> None:
        """Ends its process and removes its files."""
        self.closed = True
        if self.job is not None:
            self.job.cancel()
        shutil.rmtree(self.folder, ignore_errors=True)


def refuse_name(name: str) -> None:
    """Refuses a name that is not that of one plain file.

    Raises:
        UploadError: it has parts of a path, control characters, a leading dot, or no end.
    """
    odd = not name or name.startswith(".") or not name.isprintable()
    if odd or "/" in name or "\\" in name or len(name.encode()) > _NAME_BYTES:
        message = "not the name of a file: rename it and upload it again"
        raise UploadError(message)


class Inbox:
    """The batches of one server process."""

    def __init__(self, store_folder: Path) -> None:
        self.token = secrets.token_urlsafe(32)
        root = store_folder / ".inbox"
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder = root / f"{os.getpid()}-{secrets.token_hex(4)}"
        gate = os.open(root, os.O_RDONLY)  # so that no folder is taken for left behind too soon
        try:
            fcntl.flock(gate, fcntl.LOCK_EX)
            _remove_left_behind(root)
            self.folder.mkdir(mode=0o700)
            self._lock_file = (self.folder / "lock").open("w")
            fcntl.flock(self._lock_file, fcntl.LOCK_EX)
        finally:
            os.close(gate)
        self._batches: dict[str, Batch] = {}
        self._guard = threading.Lock()
        self._ended = threading.Event()

    def open_batch(self, session: str) -> Batch:
        """Returns: a new batch, which takes no room before its first file."""
        key = secrets.token_urlsafe(16)
        batch = Batch(key, session, self.folder / secrets.token_hex(8))
        with self._guard:
            self._batches[key] = batch
        return batch

    def batch(self, key: str) -> Batch | None:
        """Returns: a batch that is still open, or None."""
        with self._guard:
            return self._batches.get(key)

    def drop(self, batch: Batch) -> None:
        """Closes a batch and forgets it."""
        with self._guard:
            self._batches.pop(batch.key, None)
        batch.close()

    def sweep(self, is_there: Callable[[str], bool], now_s: float) -> None:
        """Drops the batches whose browser has been gone for longer than a lost connection lasts.

        Args:
            is_there: tells whether a session is connected.
            now_s: the time [s, monotonic].
        """
        with self._guard:
            batches = list(self._batches.values())
        for batch in batches:
            if is_there(batch.session):
                batch.seen_s = now_s
            elif now_s - batch.seen_s > GRACE_S:
                self.drop(batch)

    def watch(self, is_there: Callable[[str], bool], every_s: float = 2.0) -> None:
        """Sweeps in the background until the inbox is closed."""

        def sweep_on() -> None:
            while not self._ended.wait(every_s):
                self.sweep(is_there, time.monotonic())

        threading.Thread(target=sweep_on, name="inbox", daemon=True).start()

    def close(self) -> None:
        """Drops every batch, and the folder."""
        self._ended.set()
        with self._guard:
            batches = list(self._batches.values())
        for batch in batches:
            self.drop(batch)
        self._lock_file.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def _remove_left_behind(root: Path) -> None:
    """Removes the folders of processes that were killed: nobody holds their locks."""
    for folder in root.iterdir():
        try:
            with (folder / "lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue
        shutil.rmtree(folder, ignore_errors=True)


@cache
def inbox_of(store_folder: Path) -> Inbox:
    """Returns: the inbox of this process in a store."""
    return Inbox(store_folder)
