"""One nsys export, from its tables to finished rank tables."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from traceq.config import ReadOptions
from traceq.errors import SourceError
from traceq.ingest.launches import link_launches
from traceq.ingest.nsys import activity, host, notes
from traceq.ingest.nsys.classing import classed, named_by_launch
from traceq.ingest.nsys.export import Export
from traceq.ingest.nsys.identity import Identity
from traceq.ingest.steps import any_step, find_steps, step_of_launch
from traceq.ingest.tables import (
    COLLECTIVE_SCHEMA,
    COMM_SCHEMA,
    NAMES_SCHEMA,
    OPS_SCHEMA,
    RankTable,
    SourceTables,
)
from traceq.ingest.timings import (
    SPAN_SCHEMA,
    Hidden,
    activities,
    rank_timings,
    stream_table,
    windows_of,
)
from traceq.model.reasons import RECAPTURE

_PID_MASK = 0xFFFFFF


@dataclass(frozen=True, slots=True)
class Capture:
    """An export as read, before it is split into ranks.

    Attributes:
        ops: one row per device operation, with key, local_id, class, step, launch_ns.
        keys: one row per rank: key, process, device.
        names: one row per distinct name.
        steps: training steps by process.
        graphs: CUDA graphs traced as a whole, with key.
        lost_graphs: by process, graph launches that left no device record [1].
        ranges: NVTX ranges of steps and NCCL calls.
        skipped: operations left out [1].
        unlinked: operations without their API call [1].
    """

    ops: pl.DataFrame
    keys: pl.DataFrame
    names: pl.DataFrame
    steps: pl.DataFrame
    graphs: pl.DataFrame
    lost_graphs: dict[int, int]
    ranges: host.Ranges
    skipped: int
    unlinked: int


def read_nsys(
    path: Path,
    *,
    label: str,
    part: Path,
    options: ReadOptions,
    threads: int = 1,
    on_rows: Callable[[int, int], None] | None = None,
) -> SourceTables:
    """Returns: the finished tables of one export; its device operations go to a Parquet part.

    Args:
        path: the SQLite file.
        label: what to call the file in messages.
        part: Parquet file to write.
        options: how to read.
        threads: chunks read at the same time.
        on_rows: told (rows read, rows to read) after each chunk.

    Raises:
        SourceError: the export cannot be read, or holds no GPU work.
    """
    export = Export(path, label, on_rows)
    export.expect((*activity.DEVICE_TABLES, host.RUNTIME, host.nvtx_table(export) or ""))
    capture = read_capture(export, options, threads)
    if capture.keys.is_empty():
        raise no_gpu_work(export)
    identity = Identity(export)
    ranks = [_rank(capture, identity, row) for row in capture.keys.iter_rows(named=True)]
    capture.ops.select(OPS_SCHEMA.keys()).write_parquet(part, compression="lz4")
    return SourceTables(
        facts=notes.source_facts(identity, capture, min(rank.first_ns for rank in ranks)),
        ranks=ranks,
        names=capture.names,
        comm=_comm(capture),
        part=part,
        diagnostics=notes.diagnose(identity, capture),
    )


def no_gpu_work(export: Export) -> SourceError:
    """Returns: the error of an export in which nothing ran on a device."""
    fact = (
        f"no {activity.KERNEL} table"
        if not export.has(activity.KERNEL)
        else "no usable rows in its kernel, copy and set tables"
    )
    forks = export.count("PROCESSES") > 1
    children = " --trace-fork-before-exec=true" if forks else ""
    return SourceError(
        f"{export.label}: {fact}: no GPU work was traced; "
        f"capture with --trace=cuda,nvtx{children}: {RECAPTURE}"
    )


def read_capture(export: Export, options: ReadOptions, threads: int) -> Capture:
    """Returns: the operations of an export, linked to their calls, classed and put in steps."""
    device = activity.read_ops(export, threads)
    graphs = activity.read_graphs(export)
    calls = host.read_calls(export, threads)
    ranges = host.read_ranges(export, any_step(options.step_pattern))
    names = activity.name_table(device, export.strings, options.comm_patterns)

    calls = calls.with_columns(host.launched_by_nccl(calls, ranges.named))
    ops = _link(device.frame, calls)
    graphs = _link(graphs, calls).drop("by_nccl")
    ops = _follow_graph_nodes(ops, host.read_node_origins(export), ranges.named)
    names = named_by_launch(names, ops)
    keys = _keys(ops, graphs)
    steps = find_steps(_of_workers(ranges.named, calls, keys), options.step_pattern)
    ops = classed(ops, names, keys, p2p_as_comm=options.p2p_as_comm)
    return Capture(
        ops=_in_steps(ops, steps),
        keys=keys,
        names=names.select(NAMES_SCHEMA.keys()),
        steps=steps,
        graphs=_in_steps(graphs.join(keys, on=["process", "device"]), steps),
        lost_graphs=_lost_graphs(calls, ops, graphs),
        ranges=ranges,
        skipped=device.skipped,
        unlinked=ops["launch_ns"].null_count(),
    )


def _link(ops: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Adds the launching call of each operation, found by correlation inside its own process."""
    if ops.is_empty():
        return ops.with_columns(launch_ns=pl.lit(None, pl.Int64), by_nccl=pl.lit(value=False))
    calls = calls.select("process", "correlation", "launch_ns", "by_nccl")
    return pl.concat(
        link_launches(group, calls.filter(pl.col("process") == process).drop("process"))
        for (process,), group in ops.group_by("process", maintain_order=True)
    ).with_columns(pl.col("by_nccl").fill_null(value=False))


def _follow_graph_nodes(
    ops: pl.DataFrame, origins: pl.DataFrame, ranges: pl.DataFrame
) -> pl.DataFrame:
    """Lets an operation of a CUDA graph count as NCCL's when its node was captured by NCCL."""
    if origins.is_empty() or ops["graph_node"].null_count() == ops.height:
        return ops
    captured = origins.with_columns(captured_by_nccl=host.launched_by_nccl(origins, ranges))
    return ops.join(
        captured.select("process", "graph_node", "captured_by_nccl"),
        on=["process", "graph_node"],
        how="left",
        maintain_order="left",
    ).with_columns(by_nccl=pl.col("by_nccl") | pl.col("captured_by_nccl").fill_null(value=False))


def _of_workers(ranges: pl.DataFrame, calls: pl.DataFrame, keys: pl.DataFrame) -> pl.DataFrame:
    """Returns: the ranges that can mark steps: of threads that call CUDA in processes that work.

    A data loader's ranges are not the training's. A process none of whose marking threads calls
    CUDA keeps all its ranges.
    """
    mine = ranges.join(keys.select("process").unique(), on="process", how="semi")
    callers = mine.join(calls.select("thread").unique(), on="thread", how="semi")
    others = mine.join(callers.select("process").unique(), on="process", how="anti")
    return pl.concat([callers, others])


def _keys(ops: pl.DataFrame, graphs: pl.DataFrame) -> pl.DataFrame:
    pairs = pl.concat([frame.select("process", "device").unique() for frame in (ops, graphs)])
    return pairs.unique().sort("process", "device").with_row_index("key").cast({"key": pl.Int32})


def _in_steps(ops: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    if steps.is_empty() or ops.is_empty():
        return ops.with_columns(step=pl.lit(None, pl.Int64))
    parts = [
        group.with_columns(
            step_of_launch(group["launch_ns"], steps.filter(pl.col("process") == process))
        )
        for (process,), group in ops.group_by("process", maintain_order=True)
    ]
    return pl.concat(parts)


def _lost_graphs(calls: pl.DataFrame, ops: pl.DataFrame, graphs: pl.DataFrame) -> dict[int, int]:
    key = ["process", "correlation"]
    launches = calls.filter("graph").select(key)
    lost = launches.join(ops.select(key), on=key, how="anti").join(graphs, on=key, how="anti")
    working = pl.concat([frame.select("process").unique() for frame in (ops, graphs)])
    lost = lost.join(working, on="process", how="semi")
    return dict(lost.group_by("process").len().iter_rows())


def _rank(capture: Capture, identity: Identity, row: dict[str, int]) -> RankTable:
    key, process, device = row["key"], row["process"], row["device"]
    ops = capture.ops.filter(pl.col("key") == key) if capture.keys.height > 1 else capture.ops
    graphs = capture.graphs.filter(pl.col("key") == key)
    hidden = Hidden(
        graphs.select(SPAN_SCHEMA.keys()), everywhere=capture.lost_graphs.get(process, 0) > 0
    )
    pid = process & _PID_MASK if process != activity.UNKNOWN_PROCESS else None
    alone = capture.keys.filter(pl.col("process") == process).height == 1
    rank, rank_source = _stated_rank(identity, process, alone=alone, only=capture.keys.height == 1)
    busy = activities(ops)
    windows = windows_of(ops, hidden)
    return RankTable(
        pid=pid,
        device=device,
        device_kind="gpu",
        gpu_name=identity.gpu_name(pid, device) if pid is not None else None,
        rank=rank,
        rank_source=rank_source,
        local_rank=identity.local_rank if capture.keys.height == 1 else None,
        first_ns=windows["start_ns"][0],
        timings=rank_timings(busy, windows, hidden),
        streams=stream_table(busy),
    )


def _stated_rank(
    identity: Identity, process: int, *, alone: bool, only: bool
) -> tuple[int | None, str | None]:
    """Returns: the rank that the capture itself states, and where; a process of one device has one.

    The environment is that of the traced command, so it speaks for a process only when the capture
    holds no other.
    """
    mpi = identity.mpi_ranks().get(process)
    if alone and mpi is not None:
        return mpi, "mpi"
    if only and identity.rank is not None:
        return identity.rank, "env"
    return None, None


def _comm(capture: Capture) -> pl.DataFrame:
    return (
        capture.ops.filter(pl.col("class") == "comm")
        .join(capture.names.select("local_id", "op"), on="local_id", how="left")
        .with_columns(
            pl.col("op").fill_null("unknown"),
            *(
                pl.lit(None, dtype).alias(name)
                for name, dtype in COLLECTIVE_SCHEMA.items()
                if name != "op"
            ),
        )
        .select(COMM_SCHEMA.keys())
    )
