"""Who is in which communicator, over the sources of all ranks, and the sizes that follow from it.

A torch trace states the ranks of its groups. NCCL's ranges state a hash that is equal on all ranks
of a communicator, and how many ranks it has where its creation or end was captured. A communicator
that was split off has the ranks that say so, once every rank of its parent is there to say. Where
all ranks of the job are there, those that use a communicator are those that it has.

Source: docs/metrics.md, communicators.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from traceq.ingest.matching import COLLECTIVE
from traceq.model.collectives import Op, size_bytes, wire_bytes

ASSUMED = "assumed"
_MOST_BYTES = 1 << 50  # no message is larger; a larger one is damage


@dataclass(frozen=True, slots=True)
class Job:
    """What is known of the job as a whole.

    Attributes:
        world_size: its ranks [1], None when unknown.
        present: the ranks there are.
        nranks: ranks of a communicator that no source tells, by the user.
    """

    world_size: int | None
    present: frozenset[int]
    nranks: int | None = None

    @property
    def whole(self) -> bool:
        """Returns: whether every rank of the job is there."""
        return self.world_size is not None and len(self.present) == self.world_size


@dataclass(slots=True)
class Group:
    """What is known of one communicator: its size, and its ranks by their order in it."""

    size: int | None = None
    ranks: dict[int, int] = field(default_factory=dict)

    def listed(self) -> list[int] | None:
        """Returns: its global ranks in its own order, None unless all are known."""
        if self.size is None or len(self.ranks) != self.size:
            return None
        if sorted(self.ranks) != list(range(self.size)):
            return None
        return [self.ranks[position] for position in range(self.size)]


def settle(
    comm: pl.DataFrame, members: pl.DataFrame, stated: Mapping[str, Mapping[str, Any]], job: Job
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Returns: the operations with comm_id, group_size and sizes settled, and their communicators.

    A communicator has comm_id, name, description, group_size, ranks and calls; its ranks stand
    there alone, since a list beside every operation would outgrow everything else.

    Args:
        comm: communication operations of all ranks: `COMM_SCHEMA` and rank.
        members: what NCCL's ranges say, `MEMBERS_SCHEMA` and rank.
        stated: what traces state of their groups, by comm_id.
        job: what is known of the job.
    """
    groups = _groups(members)
    _count_users(groups, comm, job)
    comm = _assume(comm, _only_sizes(members), job)
    known = pl.DataFrame(
        [(comm_id, group.size) for comm_id, group in groups.items()],
        schema={"comm_id": pl.String, "known_size": pl.Int32},
        orient="row",
    )
    comm = _sized(
        comm.join(known, on="comm_id", how="left", maintain_order="left")
        .with_columns(pl.coalesce("group_size", "known_size"))
        .drop("known_size")
    )
    used = comm.drop_nulls("comm_id").group_by("comm_id", maintain_order=True)
    rows = used.agg(pl.col("group_size").max(), pl.len().cast(pl.Int64).alias("calls"))
    about = [
        (
            stated.get(comm_id, {}).get("name"),
            stated.get(comm_id, {}).get("description"),
            stated.get(comm_id, {}).get("ranks") or _listed(comm_id, size, groups, job),
        )
        for comm_id, size in rows.select("comm_id", "group_size").iter_rows()
    ]
    schema = pl.Schema(
        {"name": pl.String(), "description": pl.String(), "ranks": pl.List(pl.Int32())}
    )
    columns = pl.DataFrame(about, schema=schema, orient="row", strict=False)
    return comm, pl.concat([rows, columns], how="horizontal")


def _listed(
    comm_id: str, size: int | None, groups: Mapping[str, Group], job: Job
) -> list[int] | None:
    """Returns: the ranks of a communicator, None unless all are known."""
    if comm_id in groups:
        return groups[comm_id].listed()
    everyone = comm_id.startswith(ASSUMED) and size is not None and size == job.world_size
    return list(range(size)) if everyone and size is not None else None


def _groups(members: pl.DataFrame) -> dict[str, Group]:
    groups: dict[str, Group] = {}
    told = members.drop_nulls(["comm"]).filter(pl.col("kind") != "split")
    for (comm,), rows in told.group_by("comm", maintain_order=True):
        sizes = rows["nranks"].unique()
        group = groups.setdefault(str(comm), Group(sizes.item() if len(sizes) == 1 else None))
        group.ranks |= dict(rows.drop_nulls("comm_rank").select("comm_rank", "rank").iter_rows())
    splits = members.filter((pl.col("kind") == "split") & pl.col("parent").is_not_null())
    for _, rows in splits.group_by("parent", maintain_order=True):
        times = rows.group_by("comm_rank").len()
        complete = times.height == rows["nranks"].max() and times["len"].n_unique() == 1
        for (comm,), mine in rows.drop_nulls("comm").group_by("comm", maintain_order=True):
            order = mine.unique("rank").sort("split_key", "comm_rank")["rank"]
            group = groups.setdefault(str(comm), Group())
            if complete:
                group.size = len(order)
                group.ranks = dict(enumerate(order))
    return groups


def _only_sizes(members: pl.DataFrame) -> dict[int, int]:
    """Returns: by rank, the size that all its communicators have, where hashes are not told."""
    told = members.filter((pl.col("kind") != "split") & pl.col("comm").is_null())
    sizes = told.group_by("rank").agg(pl.col("nranks").unique())
    return {rank: nranks[0] for rank, nranks in sizes.iter_rows() if len(nranks) == 1}


def _count_users(groups: dict[str, Group], comm: pl.DataFrame, job: Job) -> None:
    """Completes communicators of unknown size: by what other ranks state, else by who uses them."""
    used = comm.drop_nulls("comm_id")
    users = used.group_by("comm_id", maintain_order=True).agg(
        pl.col("rank").unique().sort(), pl.col("group_size").max()
    )
    most = used.group_by("rank").agg(pl.col("comm_id").n_unique())["comm_id"].max()
    for comm_id, ranks, stated in users.iter_rows():
        group = groups.setdefault(comm_id, Group())
        if group.size is None:
            group.size = stated
        elif group.size < len(ranks):
            group.size = None  # contradicted by who uses it
            continue
        if group.size is None and job.whole:
            group.size, group.ranks = len(ranks), dict(enumerate(ranks))
        elif group.size is None and job.nranks is not None and most == 1:
            group.size = job.nranks


def _assume(comm: pl.DataFrame, sizes: Mapping[int, int], job: Job) -> pl.DataFrame:
    """Gives operations without a communicator one for each stream that all ranks used alike.

    With several such streams the operations of each must be the same on all ranks: otherwise ranks
    of different groups would be taken for one.
    """
    of_group = pl.col("comm_id").is_null() & pl.col("op").is_in(list(COLLECTIVE))
    loose = comm.filter(of_group)
    size = _one_size(loose, sizes, job)
    if loose.is_empty() or (size is None and len(job.present) == 1):
        return comm
    streams = (
        loose.sort("start_ns")
        .group_by("rank", "stream", maintain_order=True)
        .agg("op", "payload_bytes")
        .with_columns(nth=pl.int_range(pl.len()).over("rank"))
    )
    several = streams["nth"].n_unique() > 1
    places = streams.group_by("rank").len()["len"].n_unique()
    differing = streams.group_by("nth").agg(
        (pl.struct("op", "payload_bytes").n_unique() > 1).alias("differs")
    )["differs"]
    if places > 1 or (several and differing.any()):
        return comm
    name = pl.format(f"{ASSUMED} {{}}", "nth") if several else pl.lit(ASSUMED)
    names = streams.select("rank", "stream", name.alias(ASSUMED))
    return (
        comm.with_columns(loose=of_group)
        .join(names, on=["rank", "stream"], how="left", maintain_order="left")
        .with_columns(
            comm_id=pl.when("loose").then(ASSUMED).otherwise("comm_id"),
            group_size=pl.coalesce("group_size", pl.when("loose").then(pl.lit(size, pl.Int32))),
        )
        .drop("loose", ASSUMED)
    )


def _one_size(loose: pl.DataFrame, sizes: Mapping[int, int], job: Job) -> int | None:
    stated = {sizes.get(rank) for rank in loose["rank"].unique()}
    if len(stated) == 1 and None not in stated:
        return stated.pop()
    return job.nranks


def _sized(comm: pl.DataFrame) -> pl.DataFrame:
    """Completes S from the bytes that calls state, and what follows from S."""
    kinds = comm.select("op", "payload_bytes", "group_size", "bytes").unique()
    rows = []
    for op, stated, n, told in kinds.iter_rows():
        size = told
        if size is None and stated is not None:
            known = n if n is not None else None if _per_rank(op) else 1
            size = None if known is None else size_bytes(Op(op), stated, known)
            size = size if size is not None and size <= _MOST_BYTES else None
        wire = None if size is None or n is None else wire_bytes(Op(op), size, n)
        rows.append((op, stated, n, size, wire))
    found = pl.concat(
        [
            kinds,
            pl.DataFrame(
                [row[3:] for row in rows], schema={"s": pl.Int64, "w": pl.Int64}, orient="row"
            ),
        ],
        how="horizontal",
    )
    on = ["op", "payload_bytes", "group_size", "bytes"]
    exchange = (pl.col("op") == Op.SEND_RECV) & (pl.col("sent_peers") == pl.col("group_size"))
    comm = comm.join(found, on=on, how="left", nulls_equal=True, maintain_order="left")
    whole = (1 - 1 / pl.col("group_size")) * pl.col("s")
    return comm.with_columns(
        bytes="s",
        wire_bytes=pl.when(exchange).then(whole.round().cast(pl.Int64)).otherwise("w"),
        size_source=pl.when(pl.col("s").is_not_null()).then("size_source"),
        op=pl.when(exchange.fill_null(value=False))
        .then(pl.lit(Op.ALL_TO_ALL.value))
        .otherwise("op"),
    ).drop("s", "w")


def _per_rank(op: str) -> bool:
    return size_bytes(Op(op), 1, 2) == 2  # noqa: PLR2004
