"""The store: run files in a folder, and a catalog that says which there are.

A crash at any moment, `kill -9` included, leaves the store consistent, because

- an ingest builds its run, with all that it needs meanwhile, in a folder of its own whose lock it
  holds (`traceq.storefolder`);
- one transaction of the catalog adds the row, which makes token, name and fingerprint unique,
  then moves the file to its place, then commits; only then is the building folder removed;
- a removal first commits that the run is being removed, then removes the file, then the row;
- who opens a store cleans it first. Of each building folder whose lock is free, the file is removed
  if no row has its token, then the folder: a commit comes before the end of the building folder, so
  that a row is never missed. Removals that were begun are ended.

A run file that merely has no row is never removed: losing the catalog loses no run, since `rescan`
adopts such files. One catalog belongs to one folder.
"""

import datetime as dt
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from traceq.catalog import Catalog, Run, TakenError
from traceq.config import ReadOptions
from traceq.errors import SourceError, StoreError, TraceqError
from traceq.stored import (
    StoredRun,
    StoredSource,
    as_row,
    as_stored,
    free_name,
    read_facts,
    refuse_name,
    refuse_tag,
)
from traceq.storefolder import CATALOG, StoreFolder, default_folder, new_token, told_fingerprint

if TYPE_CHECKING:
    from traceq.ingest.detect import Found

__all__ = ["Rescanned", "Store", "Stored", "StoredRun", "StoredSource", "existing_store"]

_Progress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class Stored:
    """What became of an ingest.

    Attributes:
        run: the run.
        failures: one error for each source that could not be read.
        created: False when the same sources were stored before, with the same options.
    """

    run: StoredRun
    failures: list[SourceError]
    created: bool


@dataclass(frozen=True, slots=True)
class Rescanned:
    """What a rescan changed in the catalog.

    Attributes:
        added: names of the runs whose files had no row.
        dropped: names of the runs whose files are gone.
        failures: one error for each file that could not be added.
    """

    added: list[str]
    dropped: list[str]
    failures: list[TraceqError]


class Store:
    """A store that is open; threads may share it."""

    def __init__(self, folder: Path | None = None, catalog_url: str | None = None) -> None:
        """Opens a store, made where it is missing, and cleans what a crash left.

        Args:
            folder: by default `$TRACEQ_STORE`, else `traceq` among the user's data.
            catalog_url: by default `$TRACEQ_CATALOG`, else a SQLite file in the folder.

        Raises:
            StoreError: the folder or the catalog cannot be used.
        """
        url = catalog_url or os.environ.get("TRACEQ_CATALOG")
        self._folder = StoreFolder(folder or default_folder())
        self._catalog = Catalog(url or self._folder.path / CATALOG)
        with self._folder.gate():
            self._catalog.migrate()
            self._clean()
        self._complete_rows()

    def runs(self, *, tag: str | None = None) -> list[StoredRun]:
        """Returns: the runs, newest first; with a tag those that have it.

        Raises:
            StoreError: the catalog cannot be read.
        """
        return [self._stored(row) for row in self._catalog.runs(tag=tag)]

    def get(self, name: str) -> StoredRun | None:
        """Returns: the run of a name, None when there is none.

        Raises:
            StoreError: the catalog cannot be read.
        """
        row = self._catalog.find(name=name)
        return None if row is None else self._stored(row)

    def find(self, name: str) -> StoredRun:
        """Returns: the run of a name.

        Raises:
            StoreError: there is none, which names the nearest.
        """
        run = self.get(name)
        if run is None:
            raise self._unknown(name)
        return run

    def nearest(self, name: str) -> str | None:
        """Returns: the name in the store that is most like a name, None when none is."""
        names = [row.name for row in self._catalog.runs()]
        return next(iter(get_close_matches(name, names, n=1)), None)

    def ingest(
        self,
        sources: Iterable[str | Path],
        *,
        name: str | None = None,
        options: ReadOptions | None = None,
        tags: Sequence[str] = (),
        jobs: int | None = 1,
        on_progress: _Progress | None = None,
    ) -> Stored:
        """Returns: the run of some sources: a new one, or the one they were stored as before.

        Args:
            sources: files, folders and glob patterns.
            name: name of the run, else derived from the sources.
            options: how to read.
            tags: tags that the run shall have, also if it is there already.
            jobs: processes that read, None for as many as are worth it.
            on_progress: told (file name, share of all bytes read) as reading goes on.

        Raises:
            SourceError: no source could be read, or they changed meanwhile.
            StoreError: the name is taken or cannot be one, or the store cannot be written.
        """
        # A look at the store waits for no reader.
        from traceq.ingest.checksum import content_of  # noqa: PLC0415
        from traceq.ingest.detect import find_sources  # noqa: PLC0415
        from traceq.ingest.pipeline import all_failed, cores, ingest_run  # noqa: PLC0415

        options, paths = options or ReadOptions(), list(sources)
        for tag in tags:
            refuse_tag(tag)
        found = find_sources(paths)
        if not found.sources:
            raise all_failed(found.failures)
        content = content_of(found.sources, options, jobs=jobs or cores())
        if row := self._catalog.find(fingerprint=content.fingerprint):
            return self._there(row, found, tags)
        wanted = self._free_name(name, found.sources[0].file_name.split(".")[0])
        token = new_token(content.fingerprint)
        with self._building(token) as folder:
            done = ingest_run(
                paths, folder / "run.duckdb", options=options, name=wanted, jobs=jobs,
                on_progress=on_progress, scratch=folder,
            )  # fmt: skip
            facts = read_facts(done.path, wanted)
            if not content.checksums.issuperset(each.sha256 for each in facts.sources):
                message = f"{wanted}: its sources changed while they were read: ingest them again"
                raise SourceError(message)
            row = as_row(
                facts, token=token, fingerprint=content.fingerprint, name=wanted, tags=tags,
                stored_at=dt.datetime.now(dt.UTC).replace(tzinfo=None),
            )  # fmt: skip
            try:
                with self._catalog.adding(row):
                    self._folder.publish(token, done.path)
            except TakenError:
                if same := self._catalog.find(fingerprint=content.fingerprint):
                    return self._there(same, found, tags)
                raise self._taken(wanted) from None
        return Stored(self._stored(row), done.failures, created=True)

    def tag(self, name: str, add: Sequence[str] = (), remove: Sequence[str] = ()) -> StoredRun:
        """Returns: the run of a name, once it has some tags and lacks others.

        Raises:
            StoreError: there is no such run, or a tag cannot be one.
        """
        for tag in add:
            refuse_tag(tag)
        row = self._catalog.tag(name, add, remove)
        if row is None:
            raise self._unknown(name)
        return self._stored(row)

    def remove(self, name: str) -> None:
        """Removes a run, its file included.

        Raises:
            StoreError: there is no such run, or its file cannot be removed.
        """
        token = self._catalog.retire(name)
        if token is None:
            raise self._unknown(name)
        self._folder.unlink(token)
        self._catalog.forget(token)

    def rescan(self) -> Rescanned:
        """Returns: what changed once every run file has a row, and every row a run file.

        Raises:
            StoreError: the store cannot be read or written.
        """
        # In this order: a file whose building folder is not seen was committed before.
        files, building = self._folder.run_tokens(), set(self._folder.building_tokens())
        known = set(self._catalog.tokens())
        done = Rescanned([], [], [])
        for row in self._catalog.runs():
            if not self._folder.run_file(row.token).exists():
                self._catalog.forget(row.token)
                done.dropped.append(row.name)
        for token in files:
            if token not in known | building:
                try:
                    done.added.append(self._adopt(token))
                except TraceqError as error:
                    done.failures.append(error)
        return done

    def _adopt(self, token: str) -> str:
        from traceq.ingest.checksum import fingerprint  # noqa: PLC0415

        path = self._folder.run_file(token)
        facts = read_facts(path, path.name)
        plain = fingerprint(((each.sha256, None) for each in facts.sources), facts.config)
        key = told_fingerprint(token) or plain
        if same := self._catalog.find(fingerprint=key):
            message = f"{path.name}: its sources are stored already as {same.name}: remove the file"
            raise StoreError(message)
        name = self._free_name(None, facts.name)
        row = as_row(facts, token=token, fingerprint=key, name=name, stored_at=facts.created_at)
        with self._catalog.adding(row):
            pass
        return name

    def _clean(self) -> None:
        for token in self._folder.abandoned():
            self._settle(token)
        for token in self._catalog.tokens(removing=True):
            with suppress(StoreError):  # where it cannot be, whoever can will remove it
                self._folder.unlink(token)
                self._catalog.forget(token)

    def _settle(self, token: str) -> None:
        with self._catalog.absence(token) as absent:
            if absent:
                self._folder.unlink(token)
        self._folder.discard(token)

    @contextmanager
    def _building(self, token: str) -> Iterator[Path]:
        with self._folder.building(token) as folder:
            try:
                yield folder
            except BaseException:
                # A failed commit may have reached the server, so the catalog has the last word.
                with suppress(StoreError):
                    self._settle(token)
                raise
            self._folder.discard(token)

    def _complete_rows(self) -> None:
        for token in self._catalog.unread():
            with suppress(TraceqError):
                columns = read_facts(self._folder.run_file(token), token).columns
                self._catalog.complete(token, columns["device_kind"], columns["step_time_ns"])

    def _there(self, row: Run, found: "Found", tags: Sequence[str]) -> Stored:
        run = self.tag(row.name, tags) if set(tags) - {t.name for t in row.tags} else None
        return Stored(run or self._stored(row), found.failures, created=False)

    def _free_name(self, name: str | None, otherwise: str) -> str:
        """Returns: the name if it is free; without one, a free one made of another text."""
        if name is None:
            return free_name(otherwise, {row.name for row in self._catalog.runs()})
        refuse_name(name)
        if self._catalog.find(name=name):
            raise self._taken(name)
        return name

    def _stored(self, row: Run) -> StoredRun:
        return as_stored(row, self._folder.run_file(row.token))

    def _unknown(self, name: str) -> StoreError:
        near = self.nearest(name)
        more = f"did you mean {near}?" if near else "traceq runs list names those there are"
        return StoreError(f"{name}: no run of the store has that name: {more}")

    @staticmethod
    def _taken(name: str) -> StoreError:
        return StoreError(
            f"{name}: another run has that name: choose another, or remove it with traceq runs rm"
        )


def existing_store() -> Store | None:
    """Returns: the user's store, None when there is none yet; it is not made by looking.

    Raises:
        StoreError: it cannot be used.
    """
    folder = default_folder()
    if os.environ.get("TRACEQ_CATALOG"):
        return Store() if folder.is_dir() else None
    return Store() if (folder / CATALOG).is_file() else None
