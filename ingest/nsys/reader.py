"""One nsys export, from its tables to finished rank tables."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from traceq.config import ReadOptions
from traceq.errors import SourceError
from traceq.ingest.launches import link_launches
from traceq.ingest.leads import leads_of_all
from traceq.ingest.nsys import activity, host, nccl, notes
from traceq.ingest.nsys.attribution import attribute
from traceq.ingest.nsys.classing import classed, named_by_launch
from traceq.ingest.nsys.export import Export
from traceq.ingest.nsys.identity import Identity
from traceq.ingest.steps import any_step, find_steps, step_of_launch
from traceq.ingest.tables import (
    COLLECTIVE_SCHEMA,
    COMM_SCHEMA,
    MEMBERS_SCHEMA,
    NAMES_SCHEMA,
    OPS_SCHEMA,
    RankTable,
    SourceTables,
)
from traceq.ingest.timings import (
    SPAN_SCHEMA,
    Activity,
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
        comm: communication operations, with what their NCCL calls say.
        members: who is in which communicator.
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
    comm: pl.DataFrame
    members: pl.DataFrame
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
    ops = capture.ops
    of_ranks = (
        [ops.filter(pl.col("key") == key) for key in capture.keys["key"]]
        if capture.keys.height > 1
        else [ops]
    )
    busy = [activities(mine) for mine in of_ranks]
    ranks = [
        _rank(capture, identity, row, its_busy, windows_of(mine, _hidden(capture, row)))
        for row, its_busy, mine in zip(
            capture.keys.iter_rows(named=True), busy, of_ranks, strict=True
        )
    ]
    comm = leads_of_all(_comm(capture), ops, busy, capture.names).select(COMM_SCHEMA.keys())
    ops.select(OPS_SCHEMA.keys()).write_parquet(part, compression="lz4")
    return SourceTables(
        facts=notes.source_facts(identity, capture, min(rank.first_ns for rank in ranks)),
        ranks=ranks,
        names=capture.names,
        comm=comm,
        part=part,
        diagnostics=notes.diagnose(identity, capture),
        members=_members(capture),
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

    of_nccl = nccl.read_nccl(export, ranges.named)
    calls = _placed(calls, ranges.named, of_nccl)
    ops = _link(device.frame, calls)
    graphs = _link(graphs, calls).drop("by_nccl")
    origins = _placed(host.read_node_origins(export), ranges.named, of_nccl)
    ops = _follow_graph_nodes(ops, origins)
    names = named_by_launch(names, ops)
    keys = _keys(ops, graphs)
    steps = find_steps(_of_workers(ranges.named, calls, keys), options.step_pattern)
    ops = _in_steps(classed(ops, names, keys, p2p_as_comm=options.p2p_as_comm), steps)
    return Capture(
        ops=ops.drop("nccl_launch", "graph_node"),
        keys=keys,
        names=names.select(NAMES_SCHEMA.keys()),
        steps=steps,
        graphs=_in_steps(graphs.join(keys, on=["process", "device"]), steps),
        lost_graphs=_lost_graphs(calls, ops, graphs),
        ranges=ranges,
        comm=attribute(_communication(ops, names), of_nccl),
        members=of_nccl.members,
        skipped=device.skipped,
        unlinked=ops["launch_ns"].null_count(),
    )


def _link(ops: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Adds the launching call of each operation, found by correlation inside its own process."""
    if ops.is_empty():
        return ops.with_columns(
            launch_ns=pl.lit(None, pl.Int64),
            by_nccl=pl.lit(value=False),
            nccl_launch=pl.lit(None, pl.Int32),
        )
    calls = calls.select("process", "correlation", "launch_ns", "by_nccl", "nccl_launch")
    return pl.concat(
        link_launches(group, calls.filter(pl.col("process") == process).drop("process"))
        for (process,), group in ops.group_by("process", maintain_order=True)
    ).with_columns(pl.col("by_nccl").fill_null(value=False))


def _placed(calls: pl.DataFrame, ranges: pl.DataFrame, of_nccl: nccl.Nccl) -> pl.DataFrame:
    """Adds whether each call lies inside a call of NCCL, and in which range that launches."""
    inside = host.launched_by_nccl(calls, ranges)
    launch = pl.Series("nccl_launch", [None], pl.Int32).new_from_index(0, len(inside))
    if inside.any():
        rows = inside.arg_true()
        launch = launch.scatter(rows, nccl.launch_of(calls[rows], of_nccl.launches))
    return calls.with_columns(inside, launch)


def _communication(ops: pl.DataFrame, names: pl.DataFrame) -> pl.DataFrame:
    """Returns: the communication operations, as `attribute` wants them."""
    in_graph = pl.col("graph_node").is_not_null()
    return (
        ops.filter(pl.col("class") == "comm")
        .join(
            names.select("local_id", "op", copied=pl.col("class") == "copy"),
            on="local_id",
            how="left",
            maintain_order="left",
        )
        .with_columns(
            pl.col("op").fill_null("unknown"),
            pl.col("copied").fill_null(value=False),
            replay=pl.when(in_graph).then("correlation"),
        )
    )


def _follow_graph_nodes(ops: pl.DataFrame, origins: pl.DataFrame) -> pl.DataFrame:
    """Lets an operation of a CUDA graph count as NCCL's when its node was captured by NCCL."""
    if origins.is_empty() or ops["graph_node"].null_count() == ops.height:
        return ops
    captured = origins.select(
        "process", "graph_node", captured_by_nccl="by_nccl", captured_launch="nccl_launch"
    )
    return (
        ops.join(captured, on=["process", "graph_node"], how="left", maintain_order="left")
        .with_columns(
            by_nccl=pl.col("by_nccl") | pl.col("captured_by_nccl").fill_null(value=False),
            nccl_launch=pl.coalesce("captured_launch", "nccl_launch"),
        )
        .drop("captured_by_nccl", "captured_launch")
    )


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


def _hidden(capture: Capture, row: dict[str, int]) -> Hidden:
    graphs = capture.graphs.filter(pl.col("key") == row["key"])
    lost = capture.lost_graphs.get(row["process"], 0)
    return Hidden(graphs.select(SPAN_SCHEMA.keys()), everywhere=lost > 0)


def _rank(
    capture: Capture,
    identity: Identity,
    row: dict[str, int],
    busy: list[Activity],
    windows: pl.DataFrame,
) -> RankTable:
    process, device = row["process"], row["device"]
    pid = process & _PID_MASK if process != activity.UNKNOWN_PROCESS else None
    alone = capture.keys.filter(pl.col("process") == process).height == 1
    only = capture.keys.height == 1
    stated = _stated_rank(identity, process, alone=alone, only=only)
    of_nccl = _rank_in_largest(capture, row, identity.world_size)
    if of_nccl is None or (stated is not None and stated[0] >= of_nccl[1]):
        rank, rank_source = stated or (None, None)
    else:
        rank, rank_source = of_nccl[0], "nccl_init"
    return RankTable(
        pid=pid,
        device=device,
        device_kind="gpu",
        gpu_name=identity.gpu_name(pid, device) if pid is not None else None,
        rank=rank,
        rank_source=rank_source,
        local_rank=identity.local_rank if only else None,
        first_ns=windows["start_ns"][0],
        timings=rank_timings(busy, windows, _hidden(capture, row)),
        streams=stream_table(busy),
        fallback=stated,
    )


def _rank_in_largest(
    capture: Capture, row: dict[str, int], world_size: int | None
) -> tuple[int, int] | None:
    """Returns: the rank in the largest communicator, and how many it has.

    None when that cannot be all ranks of the job.
    """
    mine = _members(capture).filter(
        (pl.col("key") == row["key"]) & pl.col("kind").is_in(["init", "end"])
    )
    if mine.is_empty():
        return None
    largest = mine.filter(pl.col("nranks") == mine["nranks"].max())
    sizes, ranks = largest["nranks"].unique(), largest["comm_rank"].unique()
    if len(ranks) != 1 or (world_size is not None and sizes.item() != world_size):
        return None
    rank = ranks.item()
    return None if rank is None else (int(rank), int(sizes.item()))


def _stated_rank(
    identity: Identity, process: int, *, alone: bool, only: bool
) -> tuple[int, str] | None:
    """Returns: the rank that the capture itself states, and where; a process of one device has one.

    The environment is that of the traced command, so it speaks for a process only when the capture
    holds no other.
    """
    mpi = identity.mpi_ranks().get(process)
    if alone and mpi is not None:
        return mpi, "mpi"
    if only and identity.rank is not None:
        return identity.rank, "env"
    return None


def _comm(capture: Capture) -> pl.DataFrame:
    told = capture.comm.columns
    return capture.comm.with_columns(
        pl.lit(None, dtype).alias(name)
        for name, dtype in COLLECTIVE_SCHEMA.items()
        if name not in told or name == "bytes"
    )


def _members(capture: Capture) -> pl.DataFrame:
    """Returns: who is in which communicator, by rank of this source (`MEMBERS_SCHEMA`).

    A process of one device is one rank; of several, the device that the range names decides.
    """
    keys = capture.keys.with_columns(alone=pl.len().over("process") == 1)
    return (
        capture.members.join(keys, on="process")
        .filter(pl.col("alone") | (pl.col("device") == pl.col("cuda_device")))
        .select(MEMBERS_SCHEMA.keys())
        .cast(MEMBERS_SCHEMA)
    )
