"""How far apart the clocks of hosts are: all ranks leave a collective together.

Source: docs/metrics.md, clocks.
"""

from dataclasses import dataclass

import polars as pl


@dataclass(frozen=True, slots=True)
class Clock:
    """What aligning did to one clock.

    Attributes:
        offset_ns: correction to add to its times [ns].
        residual_p95_ns: 95th percentile of how far its ends then lie from the others' [ns].
        collectives: how many collectives that rests on [1].
    """

    offset_ns: int
    residual_p95_ns: int
    collectives: int


def align_clocks(ends: pl.DataFrame) -> dict[int, Clock]:
    """Returns: the correction of each clock that can be aligned, by its number.

    The clock of the lowest number is kept. Each other one is shifted by the median difference of
    its collectives' ends from those of the clocks that are aligned already, so that clocks are
    reached through others where they share no collective with the first.

    Args:
        ends: collective_id, clock [id], end_ns [ns]; of collectives that agree.
    """
    shared = ends.filter(pl.len().over("collective_id") > 1)
    if shared.is_empty():
        return {}
    offsets = {int(shared["clock"].min()): 0}  # type: ignore[arg-type]
    while True:
        reached = _reach(shared, offsets)
        if not reached:
            break
        offsets |= reached
    return _with_residuals(_aligned(shared, offsets), offsets)


def _aligned(ends: pl.DataFrame, offsets: dict[int, int]) -> pl.DataFrame:
    table = pl.DataFrame(
        {"clock": list(offsets), "offset_ns": list(offsets.values())},
        schema={"clock": ends.schema["clock"], "offset_ns": pl.Int64},
    )
    return ends.join(table, on="clock").with_columns(pl.col("end_ns") + pl.col("offset_ns"))


def _reach(ends: pl.DataFrame, offsets: dict[int, int]) -> dict[int, int]:
    known = (
        _aligned(ends, offsets).group_by("collective_id").agg(known_ns=pl.col("end_ns").median())
    )
    differences = (
        ends.filter(~pl.col("clock").is_in(list(offsets)))
        .join(known, on="collective_id")
        .group_by("clock")
        .agg((pl.col("known_ns") - pl.col("end_ns")).median().round().cast(pl.Int64))
    )
    return dict(differences.iter_rows())


def _with_residuals(ends: pl.DataFrame, offsets: dict[int, int]) -> dict[int, Clock]:
    middle = pl.col("end_ns").median().over("collective_id")
    residuals = (
        ends.with_columns(residual_ns=(pl.col("end_ns") - middle).abs())
        .group_by("clock")
        .agg(
            pl.col("residual_ns").quantile(0.95, "higher").round().cast(pl.Int64),
            pl.col("collective_id").n_unique(),
        )
    )
    return {clock: Clock(offsets[clock], *rest) for clock, *rest in residuals.iter_rows()}
