"""Which link each communicator must use, that link's peak, and what it really gives."""

from collections.abc import Sequence
from dataclasses import asdict

import polars as pl

from traceq.config import ReadOptions
from traceq.ingest.ranks import Numbered
from traceq.model.collectives import Op
from traceq.model.latency import fit_alpha_beta
from traceq.model.links import peak_of


def with_links(
    comm: pl.DataFrame,
    communicators: pl.DataFrame,
    numbered: Sequence[Numbered],
    hosts: Sequence[int | None],
    options: ReadOptions,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Returns: the operations with link, and the communicators with hosts, link and peak.

    A communicator is `intra` when all its ranks are there and share a host, `inter` when two are
    known to lie on different hosts.

    Args:
        comm: settled operations, with rank and comm_id.
        communicators: comm_id, group_size, ranks.
        numbered: the ranks there are.
        hosts: number of the host of each source.
        options: peaks by the user, and the GPU model where sources do not tell it.
    """
    users = comm.drop_nulls("comm_id").group_by("comm_id").agg(pl.col("rank").unique())
    node = {entry.rank: hosts[entry.source] for entry in numbered}
    gpu = {entry.rank: entry.table.gpu_name or options.gpu for entry in numbered}
    rows = []
    for comm_id, size, ranks, seen in (
        communicators.select("comm_id", "group_size", "ranks")
        .join(users, on="comm_id", maintain_order="left")
        .iter_rows()
    ):
        mine = set(ranks if ranks is not None else seen)
        nodes = {node.get(rank) for rank in mine}
        whole = None not in nodes and len(mine) == size
        apart = len(nodes - {None}) > 1
        link = "inter" if apart else "intra" if whole else "unknown"
        peak = peak_of(link, {gpu.get(rank) for rank in mine}, options.link_peak)
        rows.append((comm_id, len(nodes) if whole else None, link, *(peak or (None, None))))
    facts = pl.DataFrame(
        rows,
        schema={
            "comm_id": pl.String,
            "hosts": pl.Int32,
            "link": pl.String,
            "peak_gbps": pl.Float64,
            "peak_source": pl.String,
        },
        orient="row",
    )
    linked = comm.join(
        facts.select("comm_id", "link"), on="comm_id", how="left", maintain_order="left"
    ).with_columns(pl.col("link").fill_null("unknown"))
    return linked, communicators.join(facts, on="comm_id", how="left", maintain_order="left")


def link_models(comm: pl.DataFrame) -> pl.DataFrame:
    """Returns: latency and bandwidth of each operation, group size and link that can be fitted.

    Its columns are those of the table link_models. Only collectives with all their ranks count, and
    no warm-up: others tell a bound of the transfer.

    Args:
        comm: matched operations with arrivals and link.
    """
    whole = comm.filter((pl.col("match") == "matched") & ~pl.col("warmup")).drop_nulls("bytes")
    collectives = whole.group_by("collective_id", "op", "group_size", "link").agg(
        pl.col("bytes").max(), pl.col("transfer_ns").first()
    )
    rows = []
    for (op, n, link), points in collectives.sort("collective_id").group_by(
        "op", "group_size", "link", maintain_order=True
    ):
        sizes, times = (points[name].to_numpy().astype(float) for name in ("bytes", "transfer_ns"))
        fit = fit_alpha_beta(Op(str(op)), int(n), sizes, times)
        if fit is not None:
            rows.append({"op": op, "group_size": n, "link": link, **asdict(fit)})
    return pl.DataFrame(rows, infer_schema_length=None)
