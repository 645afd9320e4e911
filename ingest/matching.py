"""Which operations of different ranks are one collective, and how long it really transferred.

Inside a communicator the key is the sequence number where every record has one, else the
operation and how often it was called before. A kernel on a rank that arrived early spins until the
last rank arrives, so the shortest duration is that of the last to arrive, and the transfer itself:
no clock is needed to know it. But all ranks leave together, so where clocks can be compared, ends
that lie apart tell calls that do not belong together.

Source: docs/metrics.md, matching.
"""

import polars as pl

from traceq.ingest.realign import realigned
from traceq.model.collectives import Op

# What every rank of a group takes part in at once; of the first five each rank waits for all.
SYMMETRIC = (Op.ALL_REDUCE, Op.ALL_GATHER, Op.REDUCE_SCATTER, Op.ALL_TO_ALL, Op.BARRIER)
COLLECTIVE = (*SYMMETRIC, Op.BROADCAST, Op.REDUCE, Op.GATHER, Op.SCATTER)
_UNEVEN = (Op.ALL_TO_ALL, Op.GATHER, Op.SCATTER, Op.BARRIER)  # ranks may rightly differ in size
_MOSTLY = 0.5  # of the calls of an operation
_LOPSIDED = 1.5  # largest over smallest share in an exchange
_LOOSE_NS = 100_000  # clocks of GPUs that share a host may differ by that
# A rank with an empty share in an exchange sends to fewer peers, and it looks like a send_recv.
_EXCHANGES = (Op.ALL_TO_ALL, Op.SEND_RECV)


def match_collectives(comm: pl.DataFrame, *, repair: bool = True) -> pl.DataFrame:
    """Returns: the operations, in their order, with collective_id, match, transfer_ns and wait_ns.

    `matched` is a collective with all ranks of its group, `partial` one that lacks ranks, of which
    transfer_ns is then an upper bound, `mismatched` one whose ranks disagree on operation or size.
    Where a rank called an operation less often than its peers, or at other times, and nothing
    numbers the calls, its calls are laid against theirs; if it is not clear which belong together,
    they stay `unmatched`, and so does a collective whose ranks neither leave together nor were ever
    all inside, or are more than its group has. Of an exchange in which one rank sends much more
    than another nobody's waiting is known: its kernel takes as long as what it sends. Nor is it
    where a rank was held up on its way out.

    Args:
        comm: rank, clock [id], op, comm_id, seq, group_size, bytes, send_bytes, start_ns, end_ns;
            of all ranks. Times of one clock can be compared.
        repair: lay the calls of ranks that lack some against those of the others; else they are
            left out.
    """
    exchanges = pl.col("op").is_in(list(_EXCHANGES))
    rows = comm.with_row_index("row").with_columns(
        kind=pl.when(exchanges).then(pl.lit(Op.ALL_TO_ALL.value)).otherwise("op")
    )
    exchanging = (pl.col("op") == Op.ALL_TO_ALL).any().over("comm_id")
    candidates = rows.filter(
        pl.col("comm_id").is_not_null()
        & (pl.col("op").is_in(list(COLLECTIVE)) | (exchanges & exchanging))
    )
    keyed = _keyed(candidates, repair=repair)
    groups = _groups(keyed)
    found = keyed.join(groups, on=["comm_id", "part", "key"]).select(
        "row", "collective_id", "match", "transfer_ns", "present", "kind", "unclear"
    )
    length = pl.col("end_ns") - pl.col("start_ns")
    waits = pl.col("kind").is_in(list(SYMMETRIC)) & (pl.col("present") > 1) & ~pl.col("unclear")
    return (
        rows.drop("kind")
        .join(found, on="row", how="left")
        .sort("row")
        .with_columns(
            pl.col("collective_id").cast(pl.Int64),
            pl.col("match").fill_null("unmatched"),
            op=pl.when(exchanges).then(pl.coalesce("kind", "op")).otherwise("op"),
            wait_ns=pl.when(waits).then(length - pl.col("transfer_ns")),
        )
        .drop("row", "present", "kind", "unclear")
    )


def _groups(keyed: pl.DataFrame) -> pl.DataFrame:
    """Returns: one row per collective: comm_id, part, key, its number, match and transfer."""
    ends = pl.col("end_ns")
    together = keyed.group_by("comm_id", "part", "key", "clock").agg(
        apart_ns=ends.max() - ends.min(), met=pl.col("start_ns").max() <= ends.min()
    )
    together = together.group_by("comm_id", "part", "key").agg(
        pl.col("apart_ns").max(), pl.col("met").all()
    )
    groups = (
        keyed.group_by("comm_id", "part", "key")
        .agg(
            present=pl.len(),
            once=pl.col("rank").n_unique() == pl.len(),
            ops=pl.col("kind").n_unique(),
            alone=(pl.col("op") == Op.SEND_RECV).all(),
            sizes=pl.col("bytes").drop_nulls().n_unique(),
            uneven=pl.col("kind").is_in(list(_UNEVEN)).all(),
            unclear=pl.col("send_bytes").max() > _LOPSIDED * pl.col("send_bytes").min(),
            symmetric=pl.col("kind").is_in(list(SYMMETRIC)).all(),
            group_size=pl.col("group_size").first(),
            first_ns=pl.col("start_ns").min(),
            shortest_ns=(ends - pl.col("start_ns")).min(),
            spacing_ns=pl.col("spacing_ns").first(),
        )
        .filter(~pl.col("alone"))
        .join(together, on=["comm_id", "part", "key"])
    )
    limit = pl.max_horizontal("shortest_ns", pl.col("spacing_ns") / 2, pl.lit(_LOOSE_NS))
    agrees = (pl.col("ops") == 1) & ((pl.col("sizes") <= 1) | pl.col("uneven")) & pl.col("once")
    return (
        groups.filter(
            (~pl.col("symmetric") | pl.col("met") | (pl.col("apart_ns") <= limit))
            & (pl.col("present") <= pl.col("group_size")).fill_null(value=True)
        )
        .sort("first_ns", "comm_id", "part", "key")
        .with_row_index("collective_id")
        .with_columns(
            match=pl.when(~agrees)
            .then(pl.lit("mismatched"))
            .when(pl.col("present") == pl.col("group_size"))
            .then(pl.lit("matched"))
            .otherwise(pl.lit("partial")),
            transfer_ns=pl.when(agrees).then("shortest_ns"),
        )
        .select(
            *("comm_id", "part", "key", "collective_id", "match", "transfer_ns", "present"),
            unclear=pl.col("unclear").fill_null(value=False)
            | (pl.col("symmetric") & (pl.col("apart_ns") > limit)),
        )
    )


def _keyed(rows: pl.DataFrame, *, repair: bool) -> pl.DataFrame:
    """Returns: the operations that can be matched, with their `part` and `key`.

    `spacing_ns` is the usual time between the calls of an operation on a communicator.
    """
    place = ["comm_id", "kind"]
    ordinal = pl.int_range(pl.len(), dtype=pl.Int64)
    gap = (pl.col("end_ns") - pl.col("end_ns").shift(1)).over(*place, "rank", order_by="ordinal")
    rows = (
        rows.with_columns(
            numbered=pl.col("seq").is_not_null().all().over("comm_id"),
            ordinal=ordinal.over(*place, "rank", order_by=["start_ns", "row"]),
        )
        .with_columns(gap=gap)
        .with_columns(spacing_ns=pl.col("gap").median().over(place))
        .drop("gap")
    )
    rows = _repaired(rows) if repair else _without_short(rows)
    return rows.filter(pl.col("numbered") | pl.col("ordinal").is_not_null()).with_columns(
        part=pl.when("numbered").then(pl.lit("")).otherwise("kind"),
        key=pl.when("numbered").then("seq").otherwise("ordinal"),
    )


def _without_short(rows: pl.DataFrame) -> pl.DataFrame:
    calls = pl.len().over("comm_id", "kind", "rank")
    whole = calls == calls.max().over("comm_id", "kind")
    return rows.filter(pl.col("numbered") | whole)


def _repaired(rows: pl.DataFrame) -> pl.DataFrame:
    """Corrects ordinals where ranks differ in how often or when they called, or in sizes."""
    place = ["comm_id", "kind"]
    counted = rows.filter(~pl.col("numbered"))
    odd = _odd(counted)
    if odd.is_empty():
        return rows
    of_odd = counted.join(odd, on=place, how="semi").with_columns(
        bytes=pl.when(~pl.col("kind").is_in(list(_UNEVEN))).then("bytes")
    )
    columns = ("row", "rank", "clock", "ordinal", "end_ns", "bytes")
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


def _odd(counted: pl.DataFrame) -> pl.DataFrame:
    """Returns: the operations whose calls are not simply one after the other on all ranks."""
    place = ["comm_id", "kind"]
    calls = counted.group_by(*place, "rank").len()
    uneven = calls.group_by(place).agg((pl.col("len").n_unique() > 1).alias("odd"))
    disagreeing = (
        counted.filter(~pl.col("kind").is_in(list(_UNEVEN)))
        .group_by(*place, "ordinal")
        .agg(odd=pl.col("bytes").drop_nulls().n_unique() > 1)
        .group_by(place)
        .agg(pl.col("odd").mean() > _MOSTLY)
    )
    scattered = (
        counted.filter(pl.col("kind").is_in(list(SYMMETRIC)))
        .group_by(*place, "clock", "ordinal")
        .agg(pl.col("end_ns").max() - pl.col("end_ns").min(), pl.col("spacing_ns").first())
        .group_by(place)
        .agg((pl.col("end_ns") > pl.col("spacing_ns") / 2).mean().alias("odd") > _MOSTLY)
    )
    parts = [uneven, disagreeing, scattered]
    return (
        pl.concat(part.select(*place, pl.col("odd").fill_null(value=False)) for part in parts)
        .filter("odd")
        .select(place)
        .unique(maintain_order=True)
    )
