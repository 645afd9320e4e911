"""Which operations of different ranks are one collective, and how long it really transferred.

Inside a communicator the key is the sequence number where every record has one, else the
operation and how often it was called before. A kernel on a rank that arrived early spins until the
last rank arrives, so the shortest duration is that of the last to arrive, and the transfer itself:
no clock is needed to know it.

Source: docs/metrics.md, matching.
"""

import polars as pl

from traceq.ingest.realign import realigned
from traceq.model.collectives import Op

# What every rank of a group takes part in at once; of the first five each rank waits for all.
SYMMETRIC = (Op.ALL_REDUCE, Op.ALL_GATHER, Op.REDUCE_SCATTER, Op.ALL_TO_ALL, Op.BARRIER)
COLLECTIVE = (*SYMMETRIC, Op.BROADCAST, Op.REDUCE, Op.GATHER, Op.SCATTER)
_MOSTLY = 0.5  # of the calls of an operation
_UNEVEN = (Op.ALL_TO_ALL, Op.GATHER, Op.SCATTER, Op.BARRIER)  # ranks may rightly differ in size


def match_collectives(comm: pl.DataFrame, *, repair: bool = True) -> pl.DataFrame:
    """Returns: the operations, in their order, with collective_id, match, transfer_ns and wait_ns.

    `matched` is a collective with all ranks of its group, `partial` one that lacks ranks, of which
    transfer_ns is then an upper bound, `mismatched` one whose ranks disagree on operation or size.
    Where a rank called an operation less often than its peers, and nothing numbers the calls, its
    calls are laid against theirs; if it is not clear which it lost, they stay `unmatched`.

    Args:
        comm: rank, clock [id], op, comm_id, seq, group_size, bytes, start_ns, end_ns; of all
            ranks. Times of one clock can be compared.
        repair: lay the calls of ranks that lack some against those of the others; else they are
            left out.
    """
    rows = comm.with_row_index("row")
    keyed = _keyed(
        rows.filter(pl.col("comm_id").is_not_null() & pl.col("op").is_in(list(COLLECTIVE))),
        repair=repair,
    )
    groups = keyed.group_by("comm_id", "part", "key").agg(
        present=pl.len(),
        once=pl.col("rank").n_unique() == pl.len(),
        ops=pl.col("op").n_unique(),
        sizes=pl.col("bytes").drop_nulls().n_unique(),
        uneven=pl.col("op").is_in(list(_UNEVEN)).all(),
        group_size=pl.col("group_size").first(),
        first_ns=pl.col("start_ns").min(),
        shortest_ns=(pl.col("end_ns") - pl.col("start_ns")).min(),
    )
    agrees = (pl.col("ops") == 1) & ((pl.col("sizes") <= 1) | pl.col("uneven")) & pl.col("once")
    groups = (
        groups.sort("first_ns", "comm_id", "part", "key")
        .with_row_index("collective_id")
        .with_columns(
            match=pl.when(~agrees)
            .then(pl.lit("mismatched"))
            .when(pl.col("present") == pl.col("group_size"))
            .then(pl.lit("matched"))
            .otherwise(pl.lit("partial")),
            transfer_ns=pl.when(agrees).then("shortest_ns"),
        )
        .select("comm_id", "part", "key", "collective_id", "match", "transfer_ns", "present")
    )
    found = keyed.join(groups, on=["comm_id", "part", "key"]).select(
        "row", "collective_id", "match", "transfer_ns", "present"
    )
    length = pl.col("end_ns") - pl.col("start_ns")
    waits = pl.col("op").is_in(list(SYMMETRIC)) & (pl.col("present") > 1)
    return (
        rows.join(found, on="row", how="left")
        .sort("row")
        .with_columns(
            pl.col("collective_id").cast(pl.Int64),
            pl.col("match").fill_null("unmatched"),
            wait_ns=pl.when(waits).then(length - pl.col("transfer_ns")),
        )
        .drop("row", "present")
    )


def _keyed(rows: pl.DataFrame, *, repair: bool) -> pl.DataFrame:
    """Returns: the operations that can be matched, with their `part` and `key`."""
    numbered = pl.col("seq").is_not_null().all().over("comm_id")
    ordinal = pl.int_range(pl.len(), dtype=pl.Int64).over(
        "comm_id", "op", "rank", order_by=["start_ns", "row"]
    )
    rows = rows.with_columns(numbered=numbered, ordinal=ordinal)
    rows = _repaired(rows) if repair else _without_short(rows)
    return rows.filter(pl.col("numbered") | pl.col("ordinal").is_not_null()).with_columns(
        part=pl.when("numbered").then(pl.lit("")).otherwise("op"),
        key=pl.when("numbered").then("seq").otherwise("ordinal"),
    )


def _without_short(rows: pl.DataFrame) -> pl.DataFrame:
    calls = pl.len().over("comm_id", "op", "rank")
    whole = calls == calls.max().over("comm_id", "op")
    return rows.filter(pl.col("numbered") | whole)


def _repaired(rows: pl.DataFrame) -> pl.DataFrame:
    """Corrects ordinals where ranks called an operation differently often, or sizes disagree."""
    place = ["comm_id", "op"]
    counted = rows.filter(~pl.col("numbered"))
    calls = counted.group_by(*place, "rank").len()
    uneven = calls.group_by(place).agg((pl.col("len").n_unique() > 1).alias("odd"))
    disagreeing = (
        counted.filter(~pl.col("op").is_in(list(_UNEVEN)))
        .group_by(*place, "ordinal")
        .agg(odd=pl.col("bytes").drop_nulls().n_unique() > 1)
        .group_by(place)
        .agg(pl.col("odd").mean() > _MOSTLY)
    )
    odd = pl.concat([uneven, disagreeing]).filter("odd").select(place).unique(maintain_order=True)
    if odd.is_empty():
        return rows
    columns = ("row", "rank", "clock", "ordinal", "end_ns", "bytes")
    of_odd = counted.join(odd, on=place, how="semi")
    fixed = pl.concat(
        realigned(group.select(columns)) for _, group in of_odd.group_by(place, maintain_order=True)
    )
    return (
        rows.join(fixed.with_columns(is_fixed=True), on="row", how="left", suffix="_fixed")
        .with_columns(
            ordinal=pl.when(pl.col("is_fixed").fill_null(value=False))
            .then("ordinal_fixed")
            .otherwise("ordinal")
        )
        .drop("is_fixed", "ordinal_fixed")
    )
