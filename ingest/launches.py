"""Which API call launched an operation."""

import polars as pl


def link_launches(ops: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Returns: the operations of one process with the columns of the call that launched each.

    Should a correlation id stand twice among the calls, the earliest call is the one: a join never
    multiplies operations.

    Args:
        ops: correlation [id], of one process.
        calls: correlation [id], launch_ns [ns] and what else is to be added, of that process.
    """
    linked = ops.join(calls, on="correlation", how="left", maintain_order="left")
    if linked.height > ops.height:
        calls = calls.sort("launch_ns").unique("correlation", keep="first")
        linked = ops.join(calls, on="correlation", how="left", maintain_order="left")
    return linked
