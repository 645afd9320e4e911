"""The store: run files in one folder."""

import hashlib
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from traceq.config import ReadOptions
from traceq.errors import SourceError, TraceqError
from traceq.ingest.detect import find_sources
from traceq.ingest.pipeline import ingest_run
from traceq.report import build_report
from traceq.runfile import open_run


class StoreError(TraceqError):
    """A run that is not in the store, or cannot be kept in it."""


@dataclass(frozen=True, slots=True)
class StoredSource:
    """A file that a run was read from."""

    file_name: str
    kind: str
    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run in the store."""

    name: str
    path: Path
    status: str
    stored_at: datetime
    world_size: int | None
    rank_count: int
    nodes: int | None
    gpus: tuple[str, ...]
    device_kind: str
    step_time_ns: int | None
    tags: tuple[str, ...] = ()
    sources: tuple[StoredSource, ...] = ()


@dataclass(frozen=True, slots=True)
class Stored:
    """What became of the sources."""

    run: StoredRun
    failures: list[SourceError] = field(default_factory=list)
    created: bool = True


class Store:
    """A folder of run files."""

    def __init__(self, folder: Path | None = None, catalog_url: str | None = None) -> None:
        self.folder = folder or Path(os.environ["TRACEQ_STORE"])
        self.catalog_url = catalog_url

    def runs(self, *, tag: str | None = None) -> list[StoredRun]:
        """Returns: the runs, newest first."""
        found = [_stored(path) for path in (self.folder / "runs").glob("*.duckdb")]
        found = [run for run in found if tag is None or tag in run.tags]
        return sorted(found, key=lambda run: run.stored_at, reverse=True)

    def find(self, name: str) -> StoredRun:
        """Returns: a run by name.

        Raises:
            StoreError: there is none.
        """
        for run in self.runs():
            if run.name == name:
                return run
        message = f"{name}: no such run in the store: see traceq runs list"
        raise StoreError(message)

    def ingest(
        self,
        sources: Iterable[str | Path],
        *,
        name: str | None = None,
        options: ReadOptions | None = None,
        tags: tuple[str, ...] = (),  # noqa: ARG002
        jobs: int = 1,
        on_progress: Callable[[str, float], None] | None = None,
    ) -> Stored:
        """Returns: the run made of sources, or the one that holds them already."""
        listed = [str(source) for source in sources]
        sums = {
            hashlib.sha256(each.path.read_bytes()).hexdigest()
            for each in find_sources(listed).sources
        }
        for run in self.runs():
            if sums and {source.sha256 for source in run.sources} == sums:
                return Stored(run, [], created=False)
        name = name or Path(listed[0]).name
        folder = self.folder / "runs"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / (re.sub(r"[^\w.-]", "_", name) + ".duckdb")
        done = ingest_run(
            listed, path, options=options, name=name, jobs=jobs, on_progress=on_progress
        )
        return Stored(_stored(path), done.failures)


def _stored(path: Path) -> StoredRun:
    with open_run(path) as run:
        report = build_report(run)
        rows = run.frame("SELECT file_name, kind, sha256, bytes FROM sources").rows()
    step_ms: Any = report.metrics["step_time_ms"]
    return StoredRun(
        name=report.name,
        path=path,
        status="complete" if report.complete else "incomplete",
        stored_at=datetime.fromtimestamp(path.stat().st_mtime, UTC),
        world_size=report.run["world_size"],
        rank_count=len(report.ranks),
        nodes=report.run["nodes"],
        gpus=tuple(report.run["gpus"]),
        device_kind=report.ranks[0]["device_kind"],
        step_time_ns=None if step_ms is None else round(step_ms * 1e6),
        sources=tuple(StoredSource(*row) for row in rows),
    )
