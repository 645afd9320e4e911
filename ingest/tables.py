"""What a reader hands on: one source as finished rank tables, in the source's own time."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from traceq.model.reasons import Diagnostic

CLASS = pl.Enum(["compute", "comm", "copy"])

# One row per device operation, in the Parquet part of a source. `key` counts the ranks of the
# source, `local_id` its names.
OPS_SCHEMA = pl.Schema(
    {
        "key": pl.Int32(),
        "stream": pl.Int64(),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "local_id": pl.Int32(),
        "class": CLASS,
        "step": pl.Int64(),
        "correlation": pl.Int64(),
        "launch_ns": pl.Int64(),
        "bytes": pl.Int64(),
    }
)

NAMES_SCHEMA = pl.Schema(
    {
        "local_id": pl.Int32(),
        "name": pl.String(),
        "short_name": pl.String(),
        "class": CLASS,
        "family": pl.String(),
        "op": pl.String(),
    }
)

# What is known of a communication operation beyond its times.
COLLECTIVE_SCHEMA = pl.Schema(
    {
        "op": pl.String(),
        "comm_id": pl.String(),
        "group_size": pl.Int32(),
        "seq": pl.Int64(),
        "bytes": pl.Int64(),
        "dtype": pl.String(),
        "wire_bytes": pl.Int64(),
        "size_source": pl.String(),
        # What an NCCL call states: bytes from which S follows once the group is known, and the
        # number of peers that a group of sends went to, when they are 0, 1, ... without a gap.
        "payload_bytes": pl.Int64(),
        "sent_peers": pl.Int32(),
        # Of an exchange, what this rank sent and received.
        "send_bytes": pl.Int64(),
        "recv_bytes": pl.Int64(),
    }
)

# What the rank did from the end of the previous collective of the communicator, which all ranks
# left together, to the start of this one; and how much of the operation no compute hid.
LEAD_SCHEMA = pl.Schema(
    {
        "lead_compute_ns": pl.Int64(),
        "lead_comm_ns": pl.Int64(),
        "lead_copy_ns": pl.Int64(),
        "lead_idle_ns": pl.Int64(),
        "lead_ops": pl.Int64(),
        "lead_signature": pl.Int64(),
        "exposed_ns": pl.Int64(),
    }
)

COMM_SCHEMA = pl.Schema(
    {
        "key": pl.Int32(),
        "stream": pl.Int64(),
        "step": pl.Int64(),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "local_id": pl.Int32(),
        "launch_ns": pl.Int64(),
        **COLLECTIVE_SCHEMA,
        **LEAD_SCHEMA,
    }
)

# Who said to be which rank of which communicator, and when: NCCL's own ranges.
MEMBERS_SCHEMA = pl.Schema(
    {
        "key": pl.Int32(),
        "start_ns": pl.Int64(),
        "kind": pl.String(),
        "comm": pl.String(),
        "parent": pl.String(),
        "nranks": pl.Int32(),
        "comm_rank": pl.Int32(),
        "color": pl.Int32(),
        "split_key": pl.Int32(),
    }
)


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """What is known about one source as a whole.

    Attributes:
        file_name: base name of the input.
        kind: `nsys` or `torch`.
        sha256: checksum of the input as given.
        size: its size [bytes].
        tool_version: version of the tool that wrote it.
        capture_version: version of the tool that captured it.
        nccl_version: version of NCCL that ran, None when unknown.
        driver_version: version of the GPU driver, None when unknown.
        cuda_version: version of CUDA that the driver supports, None when unknown.
        schema_version: version of its format.
        host_key: opaque key that is equal for sources of one host, None when unknown; never stored.
        utc_origin_ns: UTC of time zero [ns since 1970], None when unknown.
        complete: False when events are known to be lost.
        events_read: device operations read [1].
        events_skipped: device operations left out [1].
        world_size: ranks of the whole job [1], None when the source does not say it.
        user_rank: rank that the user gave to this source, None when none.
    """

    file_name: str
    kind: str
    sha256: str = ""
    size: int = 0
    tool_version: str | None = None
    capture_version: str | None = None
    nccl_version: str | None = None
    driver_version: str | None = None
    cuda_version: str | None = None
    schema_version: str | None = None
    host_key: str | None = None
    utc_origin_ns: int | None = None
    complete: bool = True
    events_read: int = 0
    events_skipped: int = 0
    world_size: int | None = None
    user_rank: int | None = None


@dataclass(frozen=True, slots=True)
class RankTable:
    """One rank of a source: who it is, and the small tables about it.

    Attributes:
        pid: process id as the profiler saw it.
        device: device ordinal inside the process.
        device_kind: `gpu` or `cpu`.
        gpu_name: GPU model, None when unknown.
        rank: rank number that the source states, None when it states none.
        rank_source: where that number came from.
        fallback: rank and where it came from, should that of NCCL be one of a part of the job.
        local_rank: rank inside the host, None when unknown.
        first_ns: first device start [ns].
        timings: one row per window, columns of `rank_timings` less `rank`.
        streams: one row per stream, columns of `streams` less `rank`.
    """

    pid: int | None
    device: int | None
    device_kind: str
    gpu_name: str | None
    rank: int | None
    rank_source: str | None
    local_rank: int | None
    first_ns: int
    timings: pl.DataFrame
    streams: pl.DataFrame
    fallback: tuple[int, str] | None = None


@dataclass(frozen=True, slots=True)
class SourceTables:
    """One source, read: facts, ranks, names, communication, and the part with all operations.

    `communicators` has one row per group that was used: comm_id, name, description, group_size,
    ranks. `members` says who is in which communicator (`MEMBERS_SCHEMA`).
    """

    facts: SourceFacts
    ranks: list[RankTable]
    names: pl.DataFrame
    comm: pl.DataFrame
    part: Path
    diagnostics: list[Diagnostic] = field(default_factory=list)
    communicators: list[dict[str, Any]] = field(default_factory=list)
    members: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=MEMBERS_SCHEMA))


@dataclass(frozen=True, slots=True)
class Answer:
    """One question to a source.

    Attributes:
        question: what a user would ask.
        verdict: `yes`, `no` or `partly`.
        evidence: what in the source says so.
        remedy: how to capture or export so that it can be answered, None when it can.
    """

    question: str
    verdict: str
    evidence: str
    remedy: str | None = None
