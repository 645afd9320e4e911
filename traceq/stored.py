"""A run of the store: what its catalog says of it, how that is read from its file, its name."""

import datetime as dt
import json
from collections.abc import Container, Iterable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from traceq.catalog import Run, Source, Tag
from traceq.errors import StoreError
from traceq.model.timing import lower_median
from traceq.runfile import open_run

COMPLETE, INCOMPLETE = "complete", "incomplete"
_LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class StoredSource:
    """A source of a run, as it was when it was read.

    Attributes:
        file_name: its base name.
        kind: `nsys` or `torch`.
        sha256: checksum of the file as given.
        size_bytes: its size.
    """

    file_name: str
    kind: str
    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run of the store.

    Attributes:
        name: its name, which no other run of the store has.
        path: the run file.
        status: `complete`, or `incomplete` when not every source was read whole.
        stored_at: when it was stored (UTC).
        world_size: ranks of the whole job, None when no source says it.
        rank_count: ranks that the run holds.
        nodes: hosts, None when unknown.
        gpus: GPU models.
        device_kind: `gpu`, `cpu`, or `mixed` when ranks differ.
        step_time_ns: lower median over steps of the slowest rank's step, None without steps.
        tags: its tags, sorted.
        sources: its sources, in the order in which they were read.
    """

    name: str
    path: Path
    status: str
    stored_at: dt.datetime
    world_size: int | None
    rank_count: int
    nodes: int | None
    gpus: tuple[str, ...]
    device_kind: str
    step_time_ns: int | None
    tags: tuple[str, ...]
    sources: tuple[StoredSource, ...]


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What the catalog keeps of a run file.

    Attributes:
        name: name of the run.
        created_at: when the file was made (UTC, without saying so).
        config: the options that it was read with.
        sources: its sources, in order.
        columns: the values of the catalog's other columns that follow from the file.
    """

    name: str
    created_at: dt.datetime
    config: dict[str, Any]
    sources: tuple[StoredSource, ...]
    columns: dict[str, Any]


def read_facts(path: Path, label: str) -> RunFacts:
    """Returns: what the catalog keeps of a run file.

    Args:
        path: the run file.
        label: what errors call it.

    Raises:
        RunFileError: it is not a run file of this version.
        QueryError: it is damaged.
    """
    with open_run(path, label=label) as run:
        heading = run.frame("SELECT * FROM run").row(0, named=True)
        ranks = run.frame("SELECT device_kind, gpu_name FROM ranks ORDER BY rank")
        sources = run.frame(
            "SELECT file_name, kind, sha256, bytes, complete FROM sources ORDER BY source_id"
        ).rows()
        unread = run.frame("SELECT 1 AS x FROM diagnostics WHERE code = 'source_unreadable'")
        steps = run.frame(
            "SELECT max(window_ns) AS ns FROM rank_timings WHERE scope = 'step' GROUP BY step"
        )["ns"]
    kinds = set(ranks["device_kind"])
    whole = unread.is_empty() and all(complete for *_, complete in sources)
    return RunFacts(
        name=heading["name"],
        created_at=heading["created_at"],
        config=json.loads(heading["config"]),
        sources=tuple(StoredSource(*entry) for *entry, _ in sources),
        columns={
            "status": COMPLETE if whole else INCOMPLETE,
            "world_size": heading["world_size"],
            "rank_count": ranks.height,
            "nodes": heading["nodes"],
            "gpus": sorted(ranks["gpu_name"].drop_nulls().unique()),
            "device_kind": kinds.pop() if len(kinds) == 1 else "mixed",
            "step_time_ns": lower_median(steps),
        },
    )


def as_row(
    facts: RunFacts,
    *,
    token: str,
    fingerprint: str,
    name: str,
    stored_at: dt.datetime,
    tags: Iterable[str] = (),
) -> Run:
    """Returns: a run as a new row of the catalog."""
    return Run(
        token=token,
        fingerprint=fingerprint,
        name=name,
        stored_at=stored_at,
        tags=[Tag(name=tag) for tag in sorted(set(tags))],
        sources=[
            Source(
                position=position,
                file_name=source.file_name,
                kind=source.kind,
                sha256=source.sha256,
                size_bytes=source.size_bytes,
            )
            for position, source in enumerate(facts.sources)
        ],
        **facts.columns,
    )


def as_stored(row: Run, path: Path) -> StoredRun:
    """Returns: a row of the catalog as a run of the store."""
    return StoredRun(
        name=row.name,
        path=path,
        status=row.status,
        stored_at=row.stored_at.replace(tzinfo=dt.UTC),
        world_size=row.world_size,
        rank_count=row.rank_count,
        nodes=row.nodes,
        gpus=tuple(row.gpus),
        # Missing only where the file of a row from before that column cannot be read.
        device_kind=row.device_kind or ("gpu" if row.gpus else "cpu"),
        step_time_ns=row.step_time_ns,
        tags=tuple(tag.name for tag in row.tags),
        sources=tuple(
            StoredSource(each.file_name, each.kind, each.sha256, each.size_bytes)
            for each in row.sources
        ),
    )


def refuse_name(name: str) -> None:
    """Refuses what cannot be the name of a run.

    Raises:
        StoreError: it is empty, too long, has a slash, or is not of printable characters.
    """
    _refuse_odd(name, "name")
    if "/" in name:
        message = f"{name}: a name cannot have a slash in it: choose another"
        raise StoreError(message)


def refuse_tag(tag: str) -> None:
    """Refuses what cannot be a tag.

    Raises:
        StoreError: it is empty, too long, or not of printable characters.
    """
    _refuse_odd(tag, "tag")


def _refuse_odd(text: str, what: str) -> None:
    if not 1 <= len(text) <= _LONGEST_NAME:
        fact = f"must have from 1 to {_LONGEST_NAME} characters"
    elif not text.isprintable() or text != text.strip():
        fact = "must be of printable characters, without a space at its ends"
    else:
        return
    message = f"{text[:40]!r}: a {what} {fact}: choose another"
    raise StoreError(message)


def free_name(wanted: str, taken: Container[str]) -> str:
    """Returns: a name that is not taken, made of another text.

    >>> free_name("a/b", {"ab", "ab (2)"})
    'ab (3)'
    """
    kept = "".join(each for each in wanted if each.isprintable() and each != "/").strip()
    base = kept[: _LONGEST_NAME - 10].strip() or "run"
    numbered = (f"{base} ({number})" for number in count(2))
    return base if base not in taken else next(name for name in numbered if name not in taken)
