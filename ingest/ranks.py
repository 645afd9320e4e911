"""Which global rank each rank of each source is, and how surely that is known."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from traceq.config import LARGEST_RANK
from traceq.errors import ConfigError, SourceError
from traceq.ingest.detect import Source
from traceq.ingest.tables import RankTable, SourceTables
from traceq.model.reasons import Diagnostic, Severity

_IN_FILE_NAME = re.compile(r"(?:^|[^a-z])rank[_.=-]?(\d{1,6})(?!\d)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Numbered:
    """A rank with its global number.

    Attributes:
        rank: global rank.
        rank_source: where the number came from.
        source: position of its source.
        key: its position inside the source.
        table: the rank itself.
    """

    rank: int
    rank_source: str
    source: int
    key: int
    table: RankTable


def ranks_of_user(rank_map: Mapping[str, int], sources: Sequence[Source]) -> dict[Path, int]:
    """Returns: the rank that the user gave to each source, by its path.

    A key is a file name, or as much of a path before it as tells two files of one name apart.

    Raises:
        ConfigError: no source is called so, or several are.
    """
    ranks: dict[Path, int] = {}
    for name, rank in rank_map.items():
        parts = Path(name).parts
        meant = [s.path for s in sources if s.path.absolute().parts[-len(parts) :] == parts]
        if len(meant) != 1:
            fact = "no source is" if not meant else f"{len(meant)} sources are"
            message = f"--rank-map {Path(name).name}={rank}: {fact} called that"
            raise ConfigError(message)
        ranks[meant[0]] = rank
    return ranks


def rank_in_file_name(name: str) -> int | None:
    """Returns: the rank that a file name tells, as in `rank3.sqlite`; None when it tells none."""
    match = _IN_FILE_NAME.search(name)
    return int(match.group(1)) if match else None


def number_ranks(
    sources: Sequence[SourceTables],
) -> tuple[list[Numbered], list[Diagnostic]]:
    """Returns: every rank with its number, in order, and what to know about the numbers.

    A number is taken from the user, else from what the source states, else from its file name, else
    the ranks left over are counted in order of source, process and device, which is said. Ranks in
    NCCL's largest communicators do not count where two are equal: then these are not the job.

    Raises:
        SourceError: two sources claim one rank, or a mapped source holds several.
    """
    by_nccl = [t.rank for s in sources for t in s.ranks if t.rank_source == "nccl_init"]
    whole_job = len(set(by_nccl)) == len(by_nccl)
    numbered: list[Numbered] = []
    left_over: list[Numbered] = []
    for position, source in enumerate(sources):
        for key, each in enumerate(source.ranks):
            table = each if whole_job else _without_nccl(each)
            rank, origin = _number(source, table)
            entry = Numbered(rank if rank is not None else -1, origin, position, key, table)
            (left_over if rank is None else numbered).append(entry)
    _refuse_double(numbered, sources)
    taken = {entry.rank for entry in numbered}
    free = (rank for rank in range(len(taken) + len(left_over)) if rank not in taken)
    numbered += [replace(entry, rank=rank) for entry, rank in zip(left_over, free, strict=False)]
    return sorted(numbered, key=lambda entry: entry.rank), _notes(numbered, sources)


def _without_nccl(table: RankTable) -> RankTable:
    if table.rank_source != "nccl_init":
        return table
    rank, origin = table.fallback or (None, None)
    return replace(table, rank=rank, rank_source=origin)


def _number(source: SourceTables, table: RankTable) -> tuple[int | None, str]:
    name = source.facts.file_name
    alone = len(source.ranks) == 1
    if source.facts.user_rank is not None:
        if not alone:
            message = f"{name}: holds {len(source.ranks)} ranks, so --rank-map cannot give it one"
            raise SourceError(message)
        return source.facts.user_rank, "user"
    if table.rank is not None and 0 <= table.rank <= LARGEST_RANK and table.rank_source:
        return table.rank, table.rank_source
    named = rank_in_file_name(name)
    if alone and named is not None:
        return named, "file_name"
    return None, "order"


def _refuse_double(numbered: list[Numbered], sources: Sequence[SourceTables]) -> None:
    holder: dict[int, Numbered] = {}
    for entry in numbered:
        other = holder.setdefault(entry.rank, entry)
        if other is not entry:
            names = [sources[each.source].facts.file_name for each in (other, entry)]
            message = (
                f"{names[0]} and {names[1]}: both claim rank {entry.rank} (by {other.rank_source} "
                f"and {entry.rank_source}): say which is which with --rank-map FILE=RANK"
            )
            raise SourceError(message)


def _notes(numbered: list[Numbered], sources: Sequence[SourceTables]) -> list[Diagnostic]:
    notes = []
    counted = [entry for entry in numbered if entry.rank_source == "order"]
    if counted and len(numbered) > 1:
        message = (
            f"no source states the rank of {len(counted)} of {len(numbered)} ranks: they are only "
            "counted in order of file, process and device"
        )
        hint = "give ranks with --rank-map FILE=RANK, or put rank<N> into each file name"
        notes.append(
            Diagnostic("rank_from_order", Severity.WARNING, message, hint, count=len(counted))
        )
    named = [entry for entry in numbered if entry.rank_source == "file_name"]
    if named:
        names = ", ".join(sources[entry.source].facts.file_name for entry in named[:3])
        more = ", ..." if len(named) > 3 else ""  # noqa: PLR2004
        message = f"the rank is taken from the file name of {len(named)} sources ({names}{more})"
        notes.append(
            Diagnostic("rank_from_file_name", Severity.INFO, message, None, count=len(named))
        )
    return notes
