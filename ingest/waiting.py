"""Who arrived late at each collective, which calls were warm-up, and overlap without the waiting.

Source: docs/metrics.md, waiting and stragglers.
"""

from collections.abc import Set as AbstractSet
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from traceq.ingest.accounting import Intervals, Union, account
from traceq.model.collectives import Op, bus_factor

_WARMUP_FACTOR = 10
_WARMUP_PEERS = 3  # a median of fewer says nothing
_NOTHING = Intervals(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))


def with_arrivals(comm: pl.DataFrame, initialised: AbstractSet[str]) -> pl.DataFrame:
    """Returns: matched operations with late_ns, last_share, warmup and bus_factor.

    `late_ns` is the median duration of the other ranks less the own: by how much a rank arrived
    later than its median peer, negative when earlier. `last_share` is 1 for the last rank to
    arrive, shared among ties, 0 for the others.

    Args:
        comm: operations as `matching.match_collectives` returns them.
        initialised: communicators that were made inside the capture.
    """
    factors = {
        (op, n): bus_factor(Op(op), n) if n is not None else None
        for op, n in comm.select("op", "group_size").unique().iter_rows()
    }
    table = pl.DataFrame(
        [(*key, factor) for key, factor in factors.items()],
        schema={"op": pl.String, "group_size": pl.Int32, "bus_factor": pl.Float64},
        orient="row",
    )
    kind = ["op", "group_size"]
    return (
        comm.join(table, on=kind, how="left", nulls_equal=True, maintain_order="left")
        .join(_lateness(comm), on=["collective_id", "rank"], how="left", maintain_order="left")
        .join(_warmups(comm, initialised), on="collective_id", how="left", maintain_order="left")
    )  # fmt: skip


def _lateness(comm: pl.DataFrame) -> pl.DataFrame:
    waiting = comm.drop_nulls("wait_ns").select(
        "collective_id", "rank", length=pl.col("end_ns") - pl.col("start_ns")
    )
    ordered = waiting.sort("collective_id", "length").with_columns(
        ranks=pl.len().over("collective_id"),
        nth=pl.int_range(1, pl.len() + 1).over("collective_id"),
        ties=pl.len().over("collective_id", "length"),
        shortest=pl.col("length").min().over("collective_id"),
    )
    late = _median_of_others(
        *(ordered[name].to_numpy().astype(np.int64) for name in ("length", "nth", "ranks"))
    )
    is_last = pl.col("length") == pl.col("shortest")
    return ordered.select(
        "collective_id",
        "rank",
        pl.Series("late_ns", late) - pl.col("length"),
        last_share=pl.when(is_last).then(1 / pl.col("ties")).otherwise(0.0),
    )


def _median_of_others(
    lengths: npt.NDArray[np.int64], nth: npt.NDArray[np.int64], ranks: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Returns: for each value of each sorted group, the median of the others; shape (n,).

    An even number of others takes the mean of the middle two, rounded down.

    Args:
        lengths: the values, group after group, each in order; shape (n,).
        nth: place of each value in its group, from 1; shape (n,).
        ranks: size of the group of each value, at least 2; shape (n,).
    """
    begin = np.arange(len(lengths)) - (nth - 1)
    low = ranks // 2  # of the others: the middle one of an odd count, the lower of an even count
    high = np.where(ranks % 2 == 0, low, low + 1)

    # The place-th of the others lies one further on where the own lies before it.
    lower, upper = (lengths[begin + place - 1 + (nth <= place)] for place in (low, high))
    median: npt.NDArray[np.int64] = (lower + upper) // 2
    return median


def _warmups(comm: pl.DataFrame, initialised: AbstractSet[str]) -> pl.DataFrame:
    """Returns: whether each collective was a warm-up.

    It is one when it is the first of its communicator, and that was made inside the capture or it
    took over ten times the median of its kind.
    """
    kind = ["comm_id", "op", "bucket"]
    calls = (
        comm.drop_nulls(["collective_id", "transfer_ns"])
        .unique("collective_id", keep="first", maintain_order=True)
        .with_columns(
            bucket=pl.col("bytes").log(2).floor(),
            first=pl.col("collective_id") == pl.col("collective_id").min().over("comm_id"),
        )
    )
    later = calls.filter(~pl.col("first")).group_by(kind).agg(
        usual_ns=pl.col("transfer_ns").median(), later=pl.len()
    )  # fmt: skip
    slow = (pl.col("transfer_ns") > _WARMUP_FACTOR * pl.col("usual_ns")) & (
        pl.col("later") >= _WARMUP_PEERS
    )
    made_here = pl.col("comm_id").is_in(list(initialised))
    return calls.join(later, on=kind, how="left", nulls_equal=True).select(
        "collective_id", warmup=pl.col("first") & (made_here | slow.fill_null(value=False))
    )


def overlap_of_transfers(
    part: Path, key: int, comm: pl.DataFrame, windows: pl.DataFrame
) -> tuple[pl.DataFrame, pl.Series]:
    """Returns: what compute hid of the transfers of one rank.

    One row per window: transfer_comm_ns, transfer_overlap_ns [ns]; and for each operation the part
    of its transfer in which no compute ran [ns], None where it is not matched.

    Matched collectives are trimmed to their last `transfer_ns`, so that waiting for a late rank
    does not count as communication that compute hid.

    Args:
        part: Parquet part with all operations of the source, in its own time.
        key: the rank inside the source.
        comm: start_ns, end_ns, transfer_ns, wait_ns of its communication, in its own time.
        windows: start_ns, end_ns of its windows, in its own time.
    """
    compute = pl.read_parquet(part, columns=["key", "class", "start_ns", "end_ns"]).filter(
        (pl.col("key") == key) & (pl.col("class") == "compute")
    )
    start = (
        pl.when(pl.col("wait_ns").is_not_null())
        .then(pl.col("end_ns") - pl.col("transfer_ns"))
        .otherwise("start_ns")
    )
    trimmed = comm.select(start.alias("start_ns"), "end_ns")
    hiding, transfers = Union.of(_intervals(compute)), _intervals(trimmed)
    parts = account(hiding, Union.of(transfers), Union.of(_NOTHING), _intervals(windows))
    exposed = pl.Series(transfers.end_ns - transfers.start_ns - hiding.measure_ns(transfers))
    known = comm["wait_ns"].is_not_null()
    return (
        pl.DataFrame(
            {"transfer_comm_ns": parts["comm_ns"], "transfer_overlap_ns": parts["overlap_ns"]}
        ),
        exposed.set(~known, None),
    )


def _intervals(frame: pl.DataFrame) -> Intervals:
    return Intervals(frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy())
