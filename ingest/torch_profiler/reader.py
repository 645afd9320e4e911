"""One torch.profiler trace, from its events to finished rank tables."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

from traceq.config import ReadOptions
from traceq.errors import SourceError
from traceq.ingest.leads import leads_of_all
from traceq.ingest.tables import COMM_SCHEMA, OPS_SCHEMA, RankTable, SourceFacts, SourceTables
from traceq.ingest.timings import (
    SPAN_SCHEMA,
    Activity,
    Hidden,
    activities,
    rank_timings,
    stream_table,
    windows_of,
)
from traceq.ingest.torch_profiler import collectives, notes
from traceq.ingest.torch_profiler.assembly import assemble
from traceq.ingest.torch_profiler.blocks import Blocks
from traceq.ingest.torch_profiler.columns import Columns
from traceq.ingest.torch_profiler.context import Assembled, Context
from traceq.ingest.torch_profiler.stream import EventStream
from traceq.ingest.versions import cuda_version_text, version_text

_UTC_ALREADY_NS = 10**17  # 1973 in ns; no trace runs for three years
_UTC_BEFORE_NS = 4 * 10**18  # 2096
_PID_DIGITS = 18


def read_torch(
    path: Path,
    *,
    label: str,
    compression: str | None,
    part: Path,
    options: ReadOptions,
    on_share: Callable[[float], None] | None = None,
) -> SourceTables:
    """Returns: the finished tables of one trace; its operations go to a Parquet part.

    Args:
        path: the trace.
        label: what to call the file in messages.
        compression: `gzip`, `zstd` or None.
        part: Parquet file to write.
        options: how to read.
        on_share: told the share of the file read so far.

    Raises:
        SourceError: it is no trace, or nothing in it can be measured.
    """
    stream, columns, trace = assemble_file(path, label, compression, options, on_share)
    if trace is None:
        raise notes.nothing_to_measure(label, stream, columns)
    devices = trace.ops["device"].unique().sort().to_list()
    ops = trace.ops.with_columns(
        key=pl.col("device").replace_strict(
            devices, list(range(len(devices))), return_dtype=pl.Int32
        )
    )
    ops.select(OPS_SCHEMA.keys()).write_parquet(part, compression="lz4")
    of_ranks = [ops.filter(pl.col("key") == key) for key in range(len(devices))]
    busy = [activities(mine) for mine in of_ranks]
    ranks = [
        _rank(trace, mine, its_busy, device, stream=stream, columns=columns)
        for mine, its_busy, device in zip(of_ranks, busy, devices, strict=True)
    ]
    return SourceTables(
        facts=_facts(
            label, stream, trace, min(rank.first_ns for rank in ranks), halves=columns.halves
        ),
        ranks=ranks,
        names=trace.names,
        comm=_comm(ops, busy, trace),
        part=part,
        diagnostics=notes.diagnose(
            stream, columns, trace, has_steps=bool(ops["step"].null_count() < ops.height)
        ),
        communicators=collectives.communicators(trace.described),
    )


def assemble_file(
    path: Path,
    label: str,
    compression: str | None,
    options: ReadOptions,
    on_share: Callable[[float], None] | None = None,
) -> tuple[EventStream, Columns, Assembled | None]:
    """Returns: a trace read to its end, its columns, and it as one rank when it can be measured.

    Raises:
        SourceError: it is no trace.
    """
    stream, columns = _read_events(path, compression, on_share)
    if not stream.found_events:
        fact = stream.blocks.damage or "it has no array of events"
        message = f"{label}: not a torch.profiler trace that can be read: {fact}: record it again"
        raise SourceError(message)
    groups = collectives.Groups(dictionary(stream, "distributedInfo"))
    return stream, columns, assemble(Context(columns, columns.names.texts(), groups, options))


def _read_events(
    path: Path, compression: str | None, on_share: Callable[[float], None] | None
) -> tuple[EventStream, Columns]:
    stream = EventStream(Blocks(path, compression))
    columns = Columns()
    size = path.stat().st_size or 1
    for batch in stream:
        columns.add(batch)
        if on_share is not None:
            on_share(min(1.0, stream.blocks.read_bytes / size))
    return stream, columns


def dictionary(stream: EventStream, key: str) -> dict[str, Any]:
    """Returns: a top-level object of a trace, empty when it has none."""
    value = stream.metadata.get(key)
    return value if isinstance(value, dict) else {}


def _rank(
    trace: Assembled,
    ops: pl.DataFrame,
    busy: list[Activity],
    device: int | None,
    *,
    stream: EventStream,
    columns: Columns,
) -> RankTable:
    hidden = Hidden(pl.DataFrame(schema=SPAN_SCHEMA), everywhere=trace.lost_graphs > 0)
    stated = collectives.rank_number(dictionary(stream, "distributedInfo").get("rank"))
    known = stated is not None and trace.ops["device"].n_unique() == 1
    placed = trace.device_steps.filter(pl.col("device").eq_missing(pl.lit(device, pl.Int64))).drop(
        "device"
    )
    pid = max(columns.pids, key=columns.pids.__getitem__, default=b"")
    return RankTable(
        pid=int(pid) if pid.isdigit() and len(pid) <= _PID_DIGITS else None,
        device=device,
        device_kind=trace.device_kind,
        gpu_name=gpu_name(stream, device),
        rank=stated if known else None,
        rank_source="torch" if known else None,
        local_rank=None,
        first_ns=int(ops["start_ns"].min()),  # type: ignore[arg-type]
        timings=rank_timings(busy, windows_of(ops, hidden, placed), hidden),
        streams=stream_table(busy),
    )


def gpu_name(stream: EventStream, device: int | None) -> str | None:
    """Returns: the model of a device, None when the trace does not tell it."""
    properties = stream.metadata.get("deviceProperties")
    for each in properties if isinstance(properties, list) else []:
        if isinstance(each, dict) and each.get("id") == device and each.get("name"):
            return str(each["name"])
    return None


def base_time_ns(stream: EventStream) -> int | None:
    """Returns: what a trace adds to its times to have UTC, None when it does not say [ns]."""
    base = stream.metadata.get("baseTimeNanoseconds")
    believed = isinstance(base, int) and _UTC_ALREADY_NS < base < _UTC_BEFORE_NS
    return base if believed else None


def _facts(
    label: str, stream: EventStream, trace: Assembled, first_ns: int, *, halves: int
) -> SourceFacts:
    version = stream.metadata.get("schemaVersion")
    host = stream.metadata.get("host_name")
    job = dictionary(stream, "distributedInfo")
    return SourceFacts(
        file_name=label,
        kind="torch",
        nccl_version=version_text(job.get("nccl_version")),
        cuda_version=cuda_version_text(stream.metadata.get("cuda_driver_version")),
        schema_version=str(version) if version is not None else None,
        host_key=hashlib.sha256(host.encode()).hexdigest() if isinstance(host, str) else None,
        utc_origin_ns=0 if first_ns > _UTC_ALREADY_NS else base_time_ns(stream),
        complete=notes.is_complete(stream) and not halves,
        events_read=trace.ops.height,
        events_skipped=trace.quarantined.height,
        world_size=collectives.rank_count(job.get("world_size")),
    )


def _comm(ops: pl.DataFrame, busy: list[list[Activity]], trace: Assembled) -> pl.DataFrame:
    described = collectives.frame(trace.described).with_row_index("described")
    comm = (
        ops.filter(pl.col("class") == "comm")
        .drop("bytes")
        .join(described.cast({"described": pl.Int32}), on="described", how="left")
        .with_columns(pl.col("op").fill_null("unknown"))
    )
    return leads_of_all(comm, ops, busy, trace.names).select(COMM_SCHEMA.keys())
