"""What a rank did before each collective: how it differs between ranks says why one was late.

The lead of a collective reaches from the end of the previous one on its communicator, which all
ranks left together, to its own start. So leads of different ranks can be compared without a clock.
The first collective has none. Kernels are counted from the start of the previous one instead: where
compute runs beside communication, a rank that waited ran there what the late rank still had to run.
"""

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from traceq.ingest.accounting import Intervals, account
from traceq.ingest.tables import LEAD_SCHEMA
from traceq.ingest.timings import Activity, union_of


def leads_of_all(
    comm: pl.DataFrame, ops: pl.DataFrame, busy: Sequence[list[Activity]], names: pl.DataFrame
) -> pl.DataFrame:
    """Returns: the communication operations of a source with `LEAD_SCHEMA`, each rank on its own.

    Args:
        comm: key, comm_id, stream, start_ns, end_ns of communication operations.
        ops: key, start_ns, class, local_id of all operations.
        busy: the busy time of each rank, by its key, as `timings.activities` returns it.
        names: local_id, name.
    """
    parts = []
    for (key,), mine in comm.group_by("key", maintain_order=True):
        of_rank = ops.filter(pl.col("key") == key) if len(busy) > 1 else ops
        parts.append(with_leads(mine, of_rank, busy[key], names))
    return pl.concat(parts) if parts else with_leads(comm, ops, [], names)


def with_leads(
    comm: pl.DataFrame, ops: pl.DataFrame, busy: list[Activity], names: pl.DataFrame
) -> pl.DataFrame:
    """Returns: the communication operations of one rank with the columns of `LEAD_SCHEMA`.

    Args:
        comm: comm_id, stream, start_ns, end_ns of the communication operations of one rank.
        ops: start_ns, class, local_id of all its operations.
        busy: its busy time, as `timings.activities` returns it.
        names: local_id, name.
    """
    if comm.is_empty():
        return comm.with_columns(
            pl.lit(None, kind).alias(name) for name, kind in LEAD_SCHEMA.items()
        )
    who = pl.coalesce("comm_id", pl.format("stream {}", "stream"))
    before = pl.col("end_ns").cum_max().shift(1).over(who, order_by=["start_ns", "end_ns"])
    previous = comm.select(before.alias("end_ns"))["end_ns"]
    begin = pl.DataFrame({"end_ns": previous, "start_ns": comm["start_ns"]}).min_horizontal()
    windows = Intervals(begin.to_numpy(), comm["start_ns"].to_numpy())
    own = Intervals(comm["start_ns"].to_numpy(), comm["end_ns"].to_numpy())
    compute = union_of(busy, "compute", None)
    parts = account(compute, union_of(busy, "comm"), union_of(busy, "copy"), windows)
    since = pl.col("start_ns").shift(1).over(who, order_by=["start_ns", "end_ns"])
    begun = comm.select(since.fill_null(pl.col("start_ns")))["start_ns"].to_numpy()
    counts, signatures = _kernels(ops, names, Intervals(begun, windows.end_ns))
    lead = {
        "lead_compute_ns": parts["compute_ns"],
        "lead_comm_ns": parts["exposed_comm_ns"],
        "lead_copy_ns": parts["exposed_copy_ns"],
        "lead_idle_ns": parts["idle_ns"],
        "lead_ops": counts,
        "lead_signature": signatures,
        "exposed_ns": own.end_ns - own.start_ns - compute.measure_ns(own),
    }
    known = pl.Series(previous.is_not_null())
    return comm.with_columns(pl.Series(name, lead[name]) for name in LEAD_SCHEMA).with_columns(
        pl.when(known).then(name).alias(name) for name in LEAD_SCHEMA if name != "exposed_ns"
    )


def _kernels(
    ops: pl.DataFrame, names: pl.DataFrame, windows: Intervals
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Returns: how many compute operations start in each window, and a sum of their names' hashes.

    Equal sums mean the same operations, whatever their order; shape (windows,) each.
    """
    compute = (
        ops.filter(pl.col("class") == "compute").select("start_ns", "local_id").sort("start_ns")
    )
    hashes = {
        key: int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), signed=True)
        for key, name in names.select("local_id", "name").iter_rows()
    }
    values = compute["local_id"].replace_strict(hashes, return_dtype=pl.Int64).to_numpy()
    sums = np.concatenate([[0], np.cumsum(values, dtype=np.int64)])
    starts = compute["start_ns"].to_numpy()
    begin = np.searchsorted(starts, windows.start_ns, side="left")
    end = np.maximum(np.searchsorted(starts, windows.end_ns, side="left"), begin)
    return (end - begin).astype(np.int64), sums[end] - sums[begin]
