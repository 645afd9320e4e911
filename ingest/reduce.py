"""What crosses ranks: numbers, one time axis, communicators, matching, waiting.

Works on the small tables of the sources; the operations themselves stay in their Parquet parts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from traceq.config import LARGEST_RANK, ReadOptions
from traceq.errors import SourceError
from traceq.ingest.clocks import Clock, align_clocks
from traceq.ingest.communicators import ASSUMED, Job, settle
from traceq.ingest.crossnotes import notes_across
from traceq.ingest.linking import with_links
from traceq.ingest.logged import with_logged
from traceq.ingest.matching import SYMMETRIC, match_collectives
from traceq.ingest.nccl_log import NcclLog
from traceq.ingest.ranks import Numbered, number_ranks
from traceq.ingest.tables import MEMBERS_SCHEMA, SourceTables
from traceq.ingest.waiting import with_arrivals
from traceq.model.reasons import Diagnostic, Severity


@dataclass(frozen=True, slots=True)
class Reduced:
    """The sources of a run as one.

    Attributes:
        numbered: every rank with its global number, in order.
        hosts: number of the host of each source, None when it does not name it.
        world_size: ranks of the whole job [1], None when unknown.
        shifts: what to add to the times of each source, by its position [ns].
        clocks: what aligning did to the clock of each source, by its position.
        comm: every communication operation, matched, on the common axis.
        communicators: one row per communicator that was used.
        notes: what to know about it.
    """

    numbered: list[Numbered]
    hosts: list[int | None]
    world_size: int | None
    shifts: list[int]
    clocks: dict[int, Clock]
    comm: pl.DataFrame
    communicators: pl.DataFrame
    notes: list[Diagnostic]


def reduce_ranks(
    sources: Sequence[SourceTables],
    local_names: Sequence[pl.DataFrame],
    options: ReadOptions,
    logs: Sequence[NcclLog] = (),
) -> Reduced:
    """Returns: the sources as one run.

    Args:
        sources: sources that were read.
        local_names: for each source, local_id and name_id.
        options: how to read.
        logs: NCCL_DEBUG logs of the run.

    Raises:
        SourceError: two sources claim one rank, or there are more than the user says.
    """
    numbered, notes = number_ranks(sources)
    hosts = host_numbers(sources)
    world_size = _world_size(sources, numbered, options.nranks)
    shifts, clock_notes = _shifts(sources)
    clock_of = _clock_of(numbered, hosts)
    job = Job(world_size, frozenset(entry.rank for entry in numbered), options.nranks)
    comm = _comm_of_all(sources, numbered, local_names, shifts)
    comm = comm.join(clock_of, on="source", maintain_order="left")
    pids = pl.DataFrame(
        [(entry.rank, entry.table.pid) for entry in numbered],
        schema={"rank": pl.Int32, "pid": pl.Int64},
        orient="row",
    )
    comm, log_notes = with_logged(comm, logs, pids)
    stated = {row["comm_id"]: row for source in sources for row in source.communicators}
    comm, communicators = settle(comm, members_of_all(sources, numbered), stated, job)
    clocks = _clocks(match_collectives(comm, repair=False), clock_of)
    shifts, comm = _aligned(sources, shifts, comm, clocks)
    matched = _without_scattered(match_collectives(_on_one_clock(comm, clocks)))
    comm = with_arrivals(matched, _initialised(sources))
    comm, communicators = with_links(comm, communicators, numbered, hosts, options)
    return Reduced(
        numbered, hosts, world_size, shifts, clocks, comm, communicators,
        [*notes, *clock_notes, *log_notes, *notes_across(comm, clocks, job)],
    )  # fmt: skip


def ranks_of(numbered: Sequence[Numbered], position: int) -> pl.DataFrame:
    """Returns: key and rank of the ranks of one source."""
    return pl.DataFrame(
        [(entry.key, entry.rank) for entry in numbered if entry.source == position],
        schema={"key": pl.Int32, "rank": pl.Int32},
        orient="row",
    )


def host_numbers(sources: Sequence[SourceTables]) -> list[int | None]:
    """Returns: the number of each source's host in order of appearance, None when unknown."""
    numbers: dict[str, int] = {}
    return [
        None if key is None else numbers.setdefault(key, len(numbers))
        for key in (source.facts.host_key for source in sources)
    ]


def members_of_all(sources: Sequence[SourceTables], numbered: Sequence[Numbered]) -> pl.DataFrame:
    """Returns: who is in which communicator: `MEMBERS_SCHEMA`, rank."""
    return pl.concat(
        [
            pl.DataFrame(schema={**MEMBERS_SCHEMA, "rank": pl.Int32}),
            *(
                source.members.join(ranks_of(numbered, position), on="key")
                for position, source in enumerate(sources)
            ),
        ]
    )


def _comm_of_all(
    sources: Sequence[SourceTables],
    numbered: Sequence[Numbered],
    local_names: Sequence[pl.DataFrame],
    shifts: Sequence[int],
) -> pl.DataFrame:
    """Returns: every communication operation: `COMM_SCHEMA`, source, rank, name_id."""
    return pl.concat(
        source.comm.join(ranks_of(numbered, position), on="key", maintain_order="left")
        .join(local_names[position], on="local_id", maintain_order="left")
        .with_columns(
            pl.col("start_ns", "end_ns") + shifts[position],
            source=pl.lit(position, pl.Int32),
        )
        for position, source in enumerate(sources)
    )


def _clock_of(numbered: Sequence[Numbered], hosts: Sequence[int | None]) -> pl.DataFrame:
    """Returns: the clock of each source: source, clock [id].

    Sources of one host have one clock; a source that does not name its host has its own.
    """
    numbers: dict[tuple[str, int], int] = {}
    clock_of: dict[int, int] = {}
    for entry in numbered:
        host = hosts[entry.source]
        key = ("source", entry.source) if host is None else ("host", host)
        clock_of[entry.source] = numbers.setdefault(key, len(numbers))
    return pl.DataFrame(
        list(clock_of.items()), schema={"source": pl.Int32, "clock": pl.Int64}, orient="row"
    )


def _clocks(comm: pl.DataFrame, clock_of: pl.DataFrame) -> dict[int, Clock]:
    """Returns: what aligning did to the clock of each source, by its position."""
    agreeing = comm.filter(
        pl.col("transfer_ns").is_not_null() & pl.col("op").is_in(list(SYMMETRIC))
    )
    clocks = align_clocks(agreeing.select("collective_id", "clock", "end_ns"))
    return {source: clocks[clock] for source, clock in clock_of.iter_rows() if clock in clocks}


def _aligned(
    sources: Sequence[SourceTables],
    shifts: Sequence[int],
    comm: pl.DataFrame,
    clocks: dict[int, Clock],
) -> tuple[list[int], pl.DataFrame]:
    """Returns: the shifts and operations with clocks corrected and the earliest start at 0."""
    corrected = [
        shift + (clocks[position].offset_ns if position in clocks else 0)
        for position, shift in enumerate(shifts)
    ]
    zero = min(
        rank.first_ns + shift
        for source, shift in zip(sources, corrected, strict=True)
        for rank in source.ranks
    )
    final = [shift - zero for shift in corrected]
    moves = pl.DataFrame(
        {
            "source": range(len(sources)),
            "move_ns": [new - old for new, old in zip(final, shifts, strict=True)],
        },
        schema={"source": pl.Int32, "move_ns": pl.Int64},
    )
    moved = comm.join(moves, on="source", maintain_order="left").with_columns(
        pl.col("start_ns", "end_ns") + pl.col("move_ns")
    )
    return final, moved.drop("move_ns")


def _on_one_clock(comm: pl.DataFrame, clocks: dict[int, Clock]) -> pl.DataFrame:
    """Gives aligned clocks one number, so that their times are compared."""
    together = pl.col("source").is_in(list(clocks))
    return comm.with_columns(clock=pl.when(together).then(-1).otherwise("clock"))


def _without_scattered(comm: pl.DataFrame) -> pl.DataFrame:
    """Undoes the matching of assumed communicators whose ranks do not leave together.

    Then they were not one communicator: the ends of half its collectives lie further apart than
    the collectives last.
    """
    assumed = comm.filter(pl.col("comm_id").str.starts_with(ASSUMED)).drop_nulls("transfer_ns")
    spread = assumed.group_by("comm_id", "collective_id").agg(
        apart_ns=pl.col("end_ns").max() - pl.col("end_ns").min(),
        own_ns=pl.col("transfer_ns").first(),
    )
    scattered = (
        spread.group_by("comm_id")
        .agg(pl.col("apart_ns", "own_ns").median())
        .filter(pl.col("apart_ns") > pl.col("own_ns"))["comm_id"]
    )
    undone = pl.col("comm_id").is_in(scattered.implode()).fill_null(value=False)
    return comm.with_columns(
        *(
            pl.when(~undone).then(name).alias(name)
            for name in ("collective_id", "transfer_ns", "wait_ns", "comm_id")
        ),
        match=pl.when(undone).then(pl.lit("unmatched")).otherwise("match"),
    )


def _initialised(sources: Sequence[SourceTables]) -> set[str]:
    """Returns: the communicators that were made inside the capture."""
    made = [source.members.filter(pl.col("kind") != "end") for source in sources]
    comms = {comm for frame in made for comm in frame["comm"].drop_nulls()}
    unnamed = any(frame["comm"].null_count() for frame in made)
    return comms | ({ASSUMED} if unnamed else set())


def _shifts(sources: Sequence[SourceTables]) -> tuple[list[int], list[Diagnostic]]:
    """Returns: what to add to each source's times so that the earliest device start is 0 [ns].

    Sources lie on UTC where all of them know it. Where one does not, only times inside a source can
    be compared, and each begins at its own first device start.
    """
    firsts = [min(rank.first_ns for rank in source.ranks) for source in sources]
    origins = [source.facts.utc_origin_ns for source in sources]
    known = [origin for origin in origins if origin is not None]
    if len(known) == len(sources):
        zero = min(first + origin for first, origin in zip(firsts, known, strict=True))
        return [origin - zero for origin in known], []
    if len(sources) == 1:
        return [-firsts[0]], []
    missing = len(sources) - len(known)
    message = (
        f"{missing} of {len(sources)} sources do not say when they began: each starts at its own "
        "zero, so times of different sources cannot be compared"
    )
    hint = "export with nsys 2021 or newer, which writes TARGET_INFO_SESSION_START_TIME"
    note = Diagnostic("clock_unknown", Severity.WARNING, message, hint, count=missing)
    return [-first for first in firsts], [note]


def _world_size(
    sources: Sequence[SourceTables], numbered: Sequence[Numbered], by_user: int | None
) -> int | None:
    """Returns: ranks of the whole job, None when sources disagree or say less than there are.

    Raises:
        SourceError: the user says less than there are.
    """
    stated = {s.facts.world_size for s in sources} - {None}
    needed = max(entry.rank for entry in numbered) + 1
    if by_user is not None and by_user < needed:
        message = f"--nranks {by_user}: rank {needed - 1} is there, so there are {needed} or more"
        raise SourceError(message)
    size = by_user or (stated.pop() if len(stated) == 1 else None)
    return size if size is not None and needed <= size <= LARGEST_RANK + 1 else None
