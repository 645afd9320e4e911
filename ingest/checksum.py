"""What makes two runs the same: the content of their sources, and the options of the reading."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from traceq.config import ReadOptions
from traceq.ingest.baselines import baseline_file
from traceq.ingest.detect import Source
from traceq.ingest.ranks import ranks_of_user
from traceq.runfile import SCHEMA_VERSION


def file_checksum(path: Path) -> str:
    """Returns: the SHA-256 of a file as it is.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass(frozen=True, slots=True)
class Content:
    """What is to be read.

    Attributes:
        fingerprint: equal for the same sources, wherever they are, and the same options.
        checksums: SHA-256 of each source.
    """

    fingerprint: str
    checksums: frozenset[str]


def content_of(sources: Sequence[Source], options: ReadOptions, *, jobs: int = 1) -> Content:
    """Returns: what a reading of sources is of.

    Raises:
        ConfigError: the options give a rank to what is no source.
    """
    ranks = ranks_of_user(options.rank_map, sources)
    with ThreadPoolExecutor(jobs) as beside:
        checksums = list(beside.map(_any_checksum, [source.path for source in sources]))
    given = [ranks.get(source.path) for source in sources]
    named = [baseline_file(each) for each in options.baselines]
    key = fingerprint(
        zip(checksums, given, strict=True),
        options.as_json(),
        baselines=[(op and op.value, _any_checksum(path)) for op, path in named],
        nccl_logs=[_any_checksum(Path(each)) for each in options.nccl_logs],
    )
    return Content(key, frozenset(checksums))


def fingerprint(
    sources: Iterable[tuple[str, int | None]],
    options: Mapping[str, Any],
    *,
    baselines: Sequence[tuple[str | None, str]] = (),
    nccl_logs: Sequence[str] = (),
) -> str:
    """Returns: the checksum of a reading, which tells two apart that differ in anything given.

    Args:
        sources: checksum of each source, and the rank that the user gave to it; in any order.
        options: the options as plain data.
        baselines: operation that was named, and checksum, of each reference measurement.
        nccl_logs: checksum of each log.
    """
    everything = {
        "schema": SCHEMA_VERSION,
        "sources": sorted([each, "" if rank is None else str(rank)] for each, rank in sources),
        "options": options,
        "baselines": baselines,
        "nccl_logs": nccl_logs,
    }
    return hashlib.sha256(json.dumps(everything, sort_keys=True).encode()).hexdigest()


def _any_checksum(path: Path) -> str:
    """Returns: the checksum of a file, or a word of its own for one that reading will refuse."""
    try:
        return file_checksum(path)
    except OSError:
        return "unreadable"
