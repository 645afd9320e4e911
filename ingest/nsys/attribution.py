"""Which NCCL call each communication operation of an export carries out, and what the call said.

A range that launches asks for one call or, as a group, for several; and one or several kernels come
of it. One for one they are paired in order. One kernel of several calls carries their sum, where
operation and communicator agree. Where neither holds, the size of each is unknown.
"""

import polars as pl

from traceq.ingest.nsys.nccl import Nccl, comm_id
from traceq.model.collectives import Op

_ANY, _PEERS = "any", "peers"
_OF_PEERS = (Op.SEND, Op.RECV, Op.SEND_RECV, Op.ALL_TO_ALL, Op.GATHER, Op.SCATTER)
# What a call is about, or what is common to the calls of a group.
_SIZES = ("payload_bytes", "sent_peers", "send_bytes", "recv_bytes")
_TOLD = ("called", "comm_id", *_SIZES, "dtype", "seq", "size_source")


def attribute(ops: pl.DataFrame, nccl: Nccl) -> pl.DataFrame:
    """Returns: the operations with what their calls say: op, comm_id, dtype, seq and sizes.

    Copies of one launching range are one operation, from the first start to the last end: together
    they are a collective of the copy engines.

    Args:
        ops: communication operations of the export: process, key, start_ns, end_ns, launch_ns
            [ns], op by the name, copied (bool), nccl_launch, replay [id].
        nccl: NCCL's calls.
    """
    ops = _merged_copies(ops)
    calls = _calls(nccl)
    ops = ops.with_columns(
        bucket=pl.when(pl.col("copied") | (pl.col("op") == Op.UNKNOWN))
        .then(pl.lit(_ANY))
        .otherwise(_bucket("op"))
    )
    ops = _first_come(ops, calls).with_row_index("row")
    vague = ops.filter(pl.col("bucket") == _ANY)["nccl_launch"].drop_nulls().unique().implode()
    vaguely = pl.when(pl.col("nccl_launch").is_in(vague)).then(pl.lit(_ANY)).otherwise("bucket")
    ops, calls = (frame.with_columns(bucket=vaguely) for frame in (ops, calls))
    place = ("nccl_launch", "bucket")
    ops = ops.with_columns(
        kernels=pl.len().over(*place, "replay"),
        nth=pl.int_range(pl.len()).over(*place, "replay", order_by=["launch_ns", "start_ns"]),
    )
    groups = _groups(calls)
    numbered = calls.with_columns(nth=pl.int_range(pl.len()).over(place)).select(
        *place, "nth", *_TOLD
    )
    paired = ops.join(groups.select(*place, "asked", "pairs"), on=place, how="left").filter(
        (pl.col("kernels") == pl.col("asked")) & ((pl.col("kernels") == 1) | pl.col("pairs"))
    )
    one_for_one = paired.join(numbered, on=[*place, "nth"]).select("row", *_TOLD)
    rest = ops.join(one_for_one, on="row", how="anti").join(groups, on=place)
    # Where as many calls ran as many kernels elsewhere, one kernel of them lacks its siblings.
    alike = ["process", "asked", "called"]
    alone = (pl.col("kernels") == 1) & (
        ~pl.col("pairs") | (pl.col("asked") == 1) | (pl.col("most") < pl.col("asked"))
    )
    rest = rest.join(
        ops.join(groups, on=place).group_by(alike).agg(pl.col("kernels").max().alias("most")),
        on=alike,
        how="left",
    )
    shared = rest.with_columns(pl.when(alone).then(name).alias(name) for name in _SIZES).select(
        "row", *_TOLD
    )
    return (
        ops.join(pl.concat([one_for_one, shared]), on="row", how="left", maintain_order="left")
        .with_columns(
            op=pl.coalesce("called", "op"),
            size_source=pl.when(pl.col("payload_bytes").is_not_null()).then("size_source"),
            linked=pl.col("called").is_not_null(),
        )
        .drop("row", "called", "bucket", "kernels", "nth")
    )


def _bucket(op: str) -> pl.Expr:
    """Returns: what kernels and calls have in common: exchanges of all kinds run as one kind."""
    return (
        pl.when(pl.col(op).is_in([o.value for o in _OF_PEERS])).then(pl.lit(_PEERS)).otherwise(op)
    )


def _calls(nccl: Nccl) -> pl.DataFrame:
    return (
        nccl.calls.drop_nulls("launch")
        .select(
            "process",
            pl.col("launch").alias("nccl_launch"),
            pl.col("op").alias("called"),
            pl.col("comm").map_elements(comm_id, return_dtype=pl.String).alias("comm_id"),
            pl.col("payload_bytes").cast(pl.Int64, strict=False),
            pl.col("peer").cast(pl.Int32, strict=False),
            pl.lit(None, pl.Int32).alias("sent_peers"),
            *(pl.lit(None, pl.Int64).alias(name) for name in ("send_bytes", "recv_bytes")),
            "dtype",
            "seq",
            "size_source",
        )
        .with_columns(bucket=_bucket("called"))
    )


def _merged_copies(ops: pl.DataFrame) -> pl.DataFrame:
    """Makes the copies of one launching range one operation, where it launched no kernel."""
    place = ["nccl_launch", "replay", "key"]
    engine = pl.col("copied") & pl.col("nccl_launch").is_not_null()
    only_copies = ops.filter(engine).join(
        ops.filter(~pl.col("copied")),
        on=["nccl_launch", "replay"],
        how="anti",
        nulls_equal=True,
    )
    if only_copies.is_empty():
        return ops
    merged = (
        only_copies.sort("start_ns")
        .group_by(place, maintain_order=True)
        .agg(pl.all().exclude("end_ns").first(), pl.col("end_ns").max())
        .select(ops.columns)
    )
    others = ops.join(only_copies.select(place).unique(), on=place, how="anti", nulls_equal=True)
    return pl.concat([others, merged]).sort("start_ns", maintain_order=True)


def _groups(calls: pl.DataFrame) -> pl.DataFrame:
    """Returns: what the calls of each launching range have in common, one row per kind of call."""
    sends = pl.col("called") == Op.SEND
    kinds = pl.col("called").n_unique()
    exchange = (kinds == 2) & sends.any() & (pl.col("called") == Op.RECV).any()  # noqa: PLR2004
    peers, heard = pl.col("peer").filter(sends), pl.col("peer").filter(~sends)
    all_known = pl.col("payload_bytes").null_count() == 0
    same_comm = pl.col("comm_id").n_unique() == 1
    complete = (
        (peers.n_unique() == peers.max() + 1)
        & (peers.min() == 0)
        & (heard.n_unique() == peers.n_unique())
        & (heard.max() == peers.max())
        & (peers.null_count() + heard.null_count() == 0)
    )
    return calls.group_by("nccl_launch", "bucket").agg(
        pl.len().alias("asked"),
        (~pl.col("called").is_in([Op.SEND.value, Op.RECV.value]).any()).alias("pairs"),
        pl.when(kinds == 1)
        .then(pl.col("called").first())
        .when(exchange)
        .then(pl.lit(Op.SEND_RECV.value))
        .otherwise(pl.lit(Op.UNKNOWN.value))
        .alias("called"),
        pl.when(same_comm).then(pl.col("comm_id").first()).alias("comm_id"),
        pl.when(all_known & same_comm & (kinds == 1))
        .then(pl.col("payload_bytes").sum())
        .when(all_known & same_comm & exchange)
        .then(pl.col("payload_bytes").filter(sends).sum())
        .alias("payload_bytes"),
        pl.when(exchange & complete).then(peers.n_unique().cast(pl.Int32)).alias("sent_peers"),
        *(
            pl.when(all_known & same_comm & exchange)
            .then(pl.col("payload_bytes").filter(which).sum())
            .alias(name)
            for name, which in (("send_bytes", sends), ("recv_bytes", ~sends))
        ),
        pl.when(pl.col("dtype").n_unique() == 1).then(pl.col("dtype").first()).alias("dtype"),
        pl.when(pl.len() == 1).then(pl.col("seq").first()).alias("seq"),
        pl.col("size_source").first(),
    )


def _first_come(ops: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Gives kernels that were launched from another thread to the calls that have none, in order.

    That is what a communicator that does not block does. It is only done where they are as many.
    """
    served = ops["nccl_launch"].drop_nulls().unique().implode()
    asking = calls["nccl_launch"].unique().implode()
    waiting = calls.filter(~pl.col("nccl_launch").is_in(served))
    astray = (
        ~pl.col("copied")
        & pl.col("launch_ns").is_not_null()
        & ~pl.col("nccl_launch").is_in(asking).fill_null(value=False)
    )
    place = ("process", "bucket")
    units = waiting.unique(["process", "nccl_launch", "bucket"], maintain_order=True).select(
        *place, "nccl_launch"
    )
    rows = ops.with_row_index("row")
    lost = rows.filter(astray).select("row", *place, "launch_ns", "start_ns")
    nth = pl.int_range(pl.len())
    units = units.with_columns(nth=nth.over(place), of=pl.len().over(place))
    lost = lost.with_columns(
        nth=nth.over(place, order_by=["launch_ns", "start_ns"]), of=pl.len().over(place)
    )
    found = lost.join(units, on=[*place, "nth", "of"]).select("row", given="nccl_launch")
    return (
        rows.join(found, on="row", how="left", maintain_order="left")
        .with_columns(nccl_launch=pl.coalesce("given", "nccl_launch"))
        .drop("row", "given")
    )
