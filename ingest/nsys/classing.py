"""Which operations communicate: by name, by who launched them, and by what the user says."""

import polars as pl

from traceq.ingest.nsys import activity
from traceq.ingest.tables import CLASS


def named_by_launch(names: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    """Classes a kernel as communication, whatever its name, when NCCL made all its known launches.

    So a renamed kernel does not vanish, not even where its call came before the capture began.
    """
    launched = (
        ops.filter((pl.col("name_key") >= 0) & pl.col("launch_ns").is_not_null())
        .group_by("name_key")
        .agg(pl.col("by_nccl").all())
        .filter("by_nccl")["name_key"]
    )
    renamed = pl.col("name_key").is_in(launched.implode()) & (
        pl.col("class").fill_null("compute") == "compute"
    )
    return names.with_columns(
        pl.when(renamed).then(pl.lit("comm", CLASS)).otherwise("class").alias("class"),
        pl.when(renamed).then(pl.lit("nccl")).otherwise("family").alias("family"),
        pl.when(renamed).then(pl.lit("unknown")).otherwise("op").alias("op"),
    )


def classed(
    ops: pl.DataFrame, names: pl.DataFrame, keys: pl.DataFrame, *, p2p_as_comm: bool
) -> pl.DataFrame:
    """Returns: the operations with key, local_id and class.

    A kernel that NCCL launched communicates, and so does a copy between device memories that it
    made; copies with the host are NCCL's own set-up.

    Args:
        ops: operations, with by_nccl.
        names: name_key, local_id, class.
        keys: process, device, key.
        p2p_as_comm: count every peer-to-peer copy as communication.
    """
    is_kernel = pl.col("name_key") >= 0
    between_devices = pl.col("copy_kind").is_in(activity.DEVICE_TO_DEVICE)
    carries = pl.col("by_nccl") & (is_kernel | between_devices)
    if p2p_as_comm:
        carries |= pl.col("copy_kind") == activity.PEER_COPY
    return (
        ops.join(
            names.select("name_key", "local_id", "class"),
            on="name_key",
            how="left",
            nulls_equal=True,
            maintain_order="left",
        )
        .join(keys, on=["process", "device"], how="left", maintain_order="left")
        .with_columns(
            pl.when(carries.fill_null(value=False))
            .then(pl.lit("comm", CLASS))
            .otherwise("class")
            .alias("class")
        )
        .drop("name_key", "copy_kind", "by_nccl")
    )
