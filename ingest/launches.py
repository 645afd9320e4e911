"""Which API call launched an operation."""

import polars as pl


def link_launches(ops: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Returns: the operations of one process with the columns of the call that launched each.

    Should a correlation id stand twice among the calls, its first call is the one: a join never
    multiplies operations.

    Args:
        ops: correlation [id], of one process.
        calls: correlation [id] and what is to be added, of the same process.
    """
    linked = ops.join(calls, on="correlation", how="left", maintain_order="left")
    if linked.height > ops.height:
        calls = calls.unique("correlation", keep="first", maintain_order=True)
        linked = ops.join(calls, on="correlation", how="left", maintain_order="left")
    return linked
