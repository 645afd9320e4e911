"""Rank tables of all sources to one run file: ranks numbered, times on one axis, names merged."""

import datetime as dt
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version

import polars as pl

from traceq.config import LARGEST_RANK, ReadOptions
from traceq.errors import SourceError
from traceq.ingest.clocks import Clock, align_clocks
from traceq.ingest.matching import match_collectives
from traceq.ingest.ranks import Numbered, number_ranks
from traceq.ingest.tables import SourceTables
from traceq.model.reasons import Diagnostic, Severity
from traceq.runfile import SCHEMA_VERSION, RunWriter


@dataclass(frozen=True, slots=True)
class Heading:
    """What the user says about a run: its name, and the options that were set."""

    name: str | None
    options: ReadOptions


def write_run(
    writer: RunWriter,
    sources: Sequence[SourceTables],
    failures: Sequence[SourceError],
    heading: Heading,
) -> None:
    """Writes every table of a run from its sources; their Parquet parts are used up.

    Args:
        writer: the run file under construction.
        sources: sources that were read.
        failures: errors of those that were not, which become diagnostics.
        heading: what the user says about the run.

    Raises:
        SourceError: two sources claim one rank.
    """
    numbered, notes = number_ranks(sources)
    hosts = _host_numbers(sources)
    names, local_names = _merge_names(sources)
    shifts, clock_notes = _shifts(sources)
    comm = match_collectives(_comm_of_all(sources, numbered, local_names, shifts))
    clocks = _clocks(comm, numbered, hosts)
    shifts, comm = _aligned(sources, shifts, comm, clocks)
    _write_heading(writer, sources, numbered, hosts, heading)
    _write_sources(writer, sources, hosts, clocks)
    _write_ranks(writer, numbered, hosts, shifts)
    writer.append("kernel_names", names)
    for position, source in enumerate(sources):
        ranks = _ranks_of(numbered, position).with_columns(
            shift_ns=pl.lit(shifts[position], pl.Int64)
        )
        writer.append_ops(source.part, ranks, local_names[position])
        source.part.unlink()
    writer.append(
        "nccl_kernels",
        comm.drop("source", "key", "local_id").with_columns(link=pl.lit("unknown")),
    )
    _write_communicators(writer, sources)
    _write_diagnostics(writer, [*notes, *clock_notes, *_failed(failures)], sources)


def _ranks_of(numbered: list[Numbered], position: int) -> pl.DataFrame:
    return pl.DataFrame(
        [(entry.key, entry.rank) for entry in numbered if entry.source == position],
        schema={"key": pl.Int32, "rank": pl.Int32},
        orient="row",
    )


def _comm_of_all(
    sources: Sequence[SourceTables],
    numbered: list[Numbered],
    local_names: list[pl.DataFrame],
    shifts: list[int],
) -> pl.DataFrame:
    """Returns: every communication operation: `COMM_SCHEMA`, source, rank, name_id."""
    return pl.concat(
        source.comm.join(_ranks_of(numbered, position), on="key", maintain_order="left")
        .join(local_names[position], on="local_id", maintain_order="left")
        .with_columns(
            pl.col("start_ns", "end_ns") + shifts[position],
            source=pl.lit(position, pl.Int32),
        )
        for position, source in enumerate(sources)
    )


def _clocks(
    comm: pl.DataFrame, numbered: list[Numbered], hosts: list[int | None]
) -> dict[int, Clock]:
    """Returns: what aligning did to the clock of each source, by its position.

    Sources of one host have one clock; a source that does not name its host has its own.
    """
    clock_of: dict[int, int] = {}
    numbers: dict[tuple[str, int], int] = {}
    for entry in numbered:
        host = hosts[entry.source]
        key = ("source", entry.source) if host is None else ("host", host)
        clock_of[entry.source] = numbers.setdefault(key, len(numbers))
    table = pl.DataFrame(
        list(clock_of.items()), schema={"source": pl.Int32, "clock": pl.Int64}, orient="row"
    )
    agreeing = comm.filter(pl.col("transfer_ns").is_not_null()).join(table, on="source")
    clocks = align_clocks(agreeing.select("collective_id", "clock", "end_ns"))
    return {source: clocks[clock] for source, clock in clock_of.items() if clock in clocks}


def _aligned(
    sources: Sequence[SourceTables],
    shifts: list[int],
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


def _failed(failures: Sequence[SourceError]) -> list[Diagnostic]:
    return [
        Diagnostic("source_unreadable", Severity.ERROR, str(failure), None) for failure in failures
    ]


def _host_numbers(sources: Sequence[SourceTables]) -> list[int | None]:
    numbers: dict[str, int] = {}
    return [
        None if key is None else numbers.setdefault(key, len(numbers))
        for key in (source.facts.host_key for source in sources)
    ]


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


def _merge_names(sources: Sequence[SourceTables]) -> tuple[pl.DataFrame, list[pl.DataFrame]]:
    columns = ["name", "short_name", "class", "family", "op"]
    stacked = pl.concat(
        [s.names.with_columns(source=pl.lit(position)) for position, s in enumerate(sources)]
    )
    names = stacked.select(columns).unique(maintain_order=True).with_row_index("name_id")
    mapped = stacked.join(names, on=columns, nulls_equal=True)
    local = [
        mapped.filter(pl.col("source") == position).select("local_id", "name_id")
        for position in range(len(sources))
    ]
    return names, local


def _write_heading(
    writer: RunWriter,
    sources: Sequence[SourceTables],
    numbered: list[Numbered],
    hosts: list[int | None],
    heading: Heading,
) -> None:
    world_size = _world_size(sources, numbered, heading.options.nranks)
    nodes = None if None in hosts else len(set(hosts))
    per_node = set(Counter(hosts[entry.source] for entry in numbered).values())
    row = {
        "name": heading.name or _derived_name(sources),
        "created_at": dt.datetime.now(dt.UTC).replace(tzinfo=None),
        "traceq_version": version("traceq"),
        "schema_version": SCHEMA_VERSION,
        "world_size": world_size,
        "nodes": nodes,
        "gpus_per_node": per_node.pop() if nodes is not None and len(per_node) == 1 else None,
        "config": json.dumps(heading.options.as_json(), sort_keys=True),
    }
    writer.append("run", pl.DataFrame([row]))


def _world_size(
    sources: Sequence[SourceTables], numbered: list[Numbered], by_user: int | None
) -> int | None:
    """Returns: ranks of the whole job, None when sources disagree or say less than there are."""
    stated = {s.facts.world_size for s in sources} - {None}
    size = by_user or (stated.pop() if len(stated) == 1 else None)
    needed = max(entry.rank for entry in numbered) + 1
    return size if size is not None and needed <= size <= LARGEST_RANK + 1 else None


def _derived_name(sources: Sequence[SourceTables]) -> str:
    first = sources[0].facts.file_name.split(".")[0]
    return first if len(sources) == 1 else f"{first} and {len(sources) - 1} more"


def _write_sources(
    writer: RunWriter,
    sources: Sequence[SourceTables],
    hosts: list[int | None],
    clocks: dict[int, Clock],
) -> None:
    rows = [
        {
            "source_id": position,
            "file_name": s.facts.file_name,
            "kind": s.facts.kind,
            "sha256": s.facts.sha256,
            "bytes": s.facts.size,
            "tool_version": s.facts.tool_version,
            "capture_version": s.facts.capture_version,
            "schema_version": s.facts.schema_version,
            "host": _label(hosts[position]),
            "utc_origin_ns": s.facts.utc_origin_ns,
            "clock_offset_ns": clocks[position].offset_ns if position in clocks else None,
            "clock_residual_p95_ns": (
                clocks[position].residual_p95_ns if position in clocks else None
            ),
            "complete": s.facts.complete,
            "events_read": s.facts.events_read,
            "events_skipped": s.facts.events_skipped,
        }
        for position, s in enumerate(sources)
    ]
    writer.append("sources", pl.DataFrame(rows, infer_schema_length=None))


def _label(host: int | None) -> str | None:
    return None if host is None else f"node{host}"


def _write_ranks(
    writer: RunWriter, numbered: list[Numbered], hosts: list[int | None], shifts: list[int]
) -> None:
    rows = [
        {
            "rank": entry.rank,
            "source_id": entry.source,
            "pid": entry.table.pid,
            "device": entry.table.device,
            "device_kind": entry.table.device_kind,
            "gpu_name": entry.table.gpu_name,
            "host": _label(hosts[entry.source]),
            "node": hosts[entry.source],
            "local_rank": entry.table.local_rank,
            "rank_source": entry.rank_source,
        }
        for entry in numbered
    ]
    writer.append("ranks", pl.DataFrame(rows, infer_schema_length=None))
    for table, times in (
        ("rank_timings", ("start_ns", "end_ns")),
        ("streams", ("first_ns", "last_ns")),
    ):
        for entry in numbered:
            frame = entry.table.timings if table == "rank_timings" else entry.table.streams
            shifted = frame.with_columns(pl.col(times) + shifts[entry.source])
            writer.append(table, shifted.with_columns(rank=pl.lit(entry.rank)))


def _write_communicators(writer: RunWriter, sources: Sequence[SourceTables]) -> None:
    """Writes each communicator once, with how often it was used over all ranks."""
    calls: Counter[str] = Counter()
    for source in sources:
        calls.update(dict(source.comm["comm_id"].drop_nulls().value_counts().iter_rows()))
    known = {row["comm_id"]: row for source in sources for row in source.communicators}
    rows = [row | {"link": "unknown", "calls": calls[comm_id]} for comm_id, row in known.items()]
    if rows:
        frame = pl.DataFrame(rows, infer_schema_length=None)
        writer.append("communicators", frame)


def _write_diagnostics(
    writer: RunWriter, notes: list[Diagnostic], sources: Sequence[SourceTables]
) -> None:
    rows = [(None, note) for note in notes] + [
        (position, note) for position, source in enumerate(sources) for note in source.diagnostics
    ]
    frame = pl.DataFrame(
        [
            (n.severity.value, n.code, position, n.rank, n.message, n.hint, n.count)
            for position, n in rows
        ],
        schema={
            "severity": pl.String,
            "code": pl.String,
            "source_id": pl.Int32,
            "rank": pl.Int32,
            "message": pl.String,
            "hint": pl.String,
            "count": pl.Int64,
        },
        orient="row",
    )
    writer.append("diagnostics", frame)
