"""Rank tables of all sources to one run file: ranks numbered, times on one axis, names merged."""

import datetime as dt
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version

import polars as pl

from traceq.config import ReadOptions
from traceq.errors import SourceError
from traceq.ingest.linking import link_models
from traceq.ingest.nccl_log import NcclLog
from traceq.ingest.ranks import Numbered
from traceq.ingest.reduce import Reduced, ranks_of, reduce_ranks
from traceq.ingest.tables import SourceTables
from traceq.ingest.waiting import overlap_of_transfers
from traceq.model.reasons import Diagnostic, Severity
from traceq.runfile import SCHEMA_VERSION, RunWriter

_INTERNAL = ("source", "key", "local_id", "launch_ns", "clock", "payload_bytes", "sent_peers")


@dataclass(frozen=True, slots=True)
class Heading:
    """What the user says about a run.

    Attributes:
        name: its name, None to derive it.
        options: the options that were set.
        baselines: reference measurements, one row per size.
        logs: NCCL_DEBUG logs of the run.
    """

    name: str | None
    options: ReadOptions
    baselines: pl.DataFrame
    logs: Sequence[NcclLog] = ()


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
    names, local_names = _merge_names(sources)
    reduced = reduce_ranks(sources, local_names, heading.options, heading.logs)
    _write_heading(writer, sources, reduced, heading)
    _write_sources(writer, sources, reduced)
    exposed = _write_ranks(writer, sources, reduced)
    writer.append("kernel_names", names)
    for position, source in enumerate(sources):
        ranks = ranks_of(reduced.numbered, position).with_columns(
            shift_ns=pl.lit(reduced.shifts[position], pl.Int64)
        )
        writer.append_ops(source.part, ranks, local_names[position])
        source.part.unlink()
    comm = reduced.comm.drop(_INTERNAL).with_row_index("row")
    writer.append("nccl_kernels", comm.join(exposed, on="row", how="left").drop("row"))
    writer.append("communicators", reduced.communicators)
    writer.append("link_models", link_models(reduced.comm))
    writer.append("baselines", heading.baselines)
    _write_diagnostics(writer, [*reduced.notes, *_failed(failures)], sources)


def _failed(failures: Sequence[SourceError]) -> list[Diagnostic]:
    return [
        Diagnostic("source_unreadable", Severity.ERROR, str(failure), None) for failure in failures
    ]


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
    reduced: Reduced,
    heading: Heading,
) -> None:
    hosts, numbered = reduced.hosts, reduced.numbered
    nodes = None if None in hosts else len(set(hosts))
    per_node = set(Counter(hosts[entry.source] for entry in numbered).values())
    row = {
        "name": heading.name or _derived_name(sources),
        "created_at": dt.datetime.now(dt.UTC).replace(tzinfo=None),
        "traceq_version": version("traceq"),
        "schema_version": SCHEMA_VERSION,
        "world_size": reduced.world_size,
        "nodes": nodes,
        "gpus_per_node": per_node.pop() if nodes is not None and len(per_node) == 1 else None,
        "config": json.dumps(heading.options.as_json(), sort_keys=True),
    }
    writer.append("run", pl.DataFrame([row]))


def _derived_name(sources: Sequence[SourceTables]) -> str:
    first = sources[0].facts.file_name.split(".")[0]
    return first if len(sources) == 1 else f"{first} and {len(sources) - 1} more"


def _write_sources(writer: RunWriter, sources: Sequence[SourceTables], reduced: Reduced) -> None:
    hosts, clocks = reduced.hosts, reduced.clocks
    rows = [
        {
            "source_id": position,
            "file_name": s.facts.file_name,
            "kind": s.facts.kind,
            "sha256": s.facts.sha256,
            "bytes": s.facts.size,
            "tool_version": s.facts.tool_version,
            "capture_version": s.facts.capture_version,
            "nccl_version": s.facts.nccl_version,
            "driver_version": s.facts.driver_version,
            "cuda_version": s.facts.cuda_version,
            "schema_version": s.facts.schema_version,
            "host": _label(hosts[position]),
            "utc_origin_ns": s.facts.utc_origin_ns,
            "clock_offset_ns": clocks[position].offset_ns if position in clocks else None,
            "clock_residual_p95_ns": (
                clocks[position].residual_p95_ns if position in clocks else None
            ),
            "clock_collectives": clocks[position].collectives if position in clocks else None,
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
    writer: RunWriter, sources: Sequence[SourceTables], reduced: Reduced
) -> pl.DataFrame:
    """Writes ranks, streams and windows.

    Returns: exposed_transfer_ns of each operation of `reduced.comm` that is matched, by its row.
    """
    numbered, hosts = reduced.numbered, reduced.hosts
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
    exposures = [pl.DataFrame(schema={"row": pl.UInt32, "exposed_transfer_ns": pl.Int64})]
    comm = reduced.comm.with_row_index("row")
    for entry in numbered:
        shift = reduced.shifts[entry.source]
        mine = comm.filter(pl.col("rank") == entry.rank).with_columns(
            pl.col("start_ns", "end_ns") - shift
        )
        timings, exposed = _with_transfers(entry, sources[entry.source], mine)
        exposures.append(exposed)
        rank = pl.lit(entry.rank).alias("rank")
        streams = entry.table.streams.with_columns(rank, pl.col("first_ns", "last_ns") + shift)
        writer.append("streams", streams)
        writer.append(
            "rank_timings", timings.with_columns(rank, pl.col("start_ns", "end_ns") + shift)
        )
    return pl.concat(exposures)


def _with_transfers(
    entry: Numbered, source: SourceTables, comm: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Returns: the windows of a rank with the overlap of transfers, and row, exposed_transfer_ns.

    Args:
        entry: the rank.
        source: its source.
        comm: its communication in its own time, with row.
    """
    timings = entry.table.timings
    if comm["wait_ns"].null_count() == comm.height:
        return timings, comm.select("row", exposed_transfer_ns=pl.lit(None, pl.Int64))
    parts, exposed = overlap_of_transfers(source.part, entry.key, comm, timings)
    known = pl.col("comm_ns").is_not_null()
    total, overlap = pl.col("transfer_comm_ns"), pl.col("transfer_overlap_ns")
    trimmed = (
        timings.with_columns(*parts)
        .with_columns(pl.when(known).then(total), pl.when(known).then(overlap))
        .with_columns(transfer_overlap_ratio=pl.when(total > 0).then(overlap / total))
    )
    return trimmed, comm.select("row", exposed.alias("exposed_transfer_ns"))


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
