"""Which records a rank lost, when it holds fewer calls of an operation than its peers.

Its calls are laid against those of a rank that has all, with one gap. The gap must leave every
size equal and the ends together: all ranks leave a collective at once, so its ends are those of the
other rank on one clock, and off by one constant on another. A gap that is not clearly the best is
not believed.
"""

import numpy as np
import numpy.typing as npt
import polars as pl

Numbers = npt.NDArray[np.int64]
_CLEAR = 4  # a misplaced call is off by the time between calls; a fraction of that is agreement
_FARTHEST = 8  # calls that captures of equal length may be shifted against each other
_SIZE_UNKNOWN = -1


def realigned(calls: pl.DataFrame) -> pl.DataFrame:
    """Returns: row and ordinal of calls of one operation on one communicator; NULL where unclear.

    Args:
        calls: row [id], rank, clock [id], ordinal, end_ns [ns], bytes; each rank in its order.
    """
    calls = calls.sort("rank", "ordinal").with_columns(
        size=pl.col("bytes").fill_null(_SIZE_UNKNOWN), calls=pl.len().over("rank")
    )
    most = int(calls["calls"].max())  # type: ignore[arg-type]
    model = next(iter(calls.filter(pl.col("calls") == most).partition_by("rank")))
    model_ends, model_sizes = model["end_ns"].to_numpy(), model["size"].to_numpy()
    clock = model["clock"][0]
    parts = []
    for own in calls.partition_by("rank"):
        ends, sizes = own["end_ns"].to_numpy(), own["size"].to_numpy()
        one_clock = own["clock"][0] == clock
        if own.height == most:
            ordinals = own["ordinal"] + _shift(
                ends, sizes, model_ends, model_sizes, one_clock=one_clock
            )
        else:
            gap = _gap(ends, sizes, model_ends, model_sizes, one_clock=one_clock)
            lost = most - own.height
            ordinals = own["ordinal"] + (own["ordinal"] >= (gap or 0)).cast(pl.Int64) * lost
            if gap is None:
                ordinals = pl.Series([None] * own.height, dtype=pl.Int64)
        parts.append(pl.DataFrame({"row": own["row"], "ordinal": ordinals}))
    return pl.concat(parts)


def _gap(
    ends: Numbers, sizes: Numbers, model_ends: Numbers, model_sizes: Numbers, *, one_clock: bool
) -> int | None:
    """Returns: before which call the lost ones belong, None when that is not clear."""
    count, lost = len(ends), len(model_ends) - len(ends)
    early, late = ends - model_ends[:count], ends - model_ends[lost:]
    same_early, same_late = sizes == model_sizes[:count], (sizes == model_sizes[lost:])[::-1]
    fits_early = np.concatenate([[True], np.cumprod(same_early) > 0])
    fits_late = np.concatenate([(np.cumprod(same_late) > 0)[::-1], [True]])
    offsets = [0.0] if one_clock else [float(np.median(early)), float(np.median(late))]
    costs = np.min([_costs(early, late, offset) for offset in offsets], axis=0)
    costs = np.where(fits_early & fits_late, costs, np.inf)
    best = int(np.argmin(costs))
    if not np.isfinite(costs[best]):
        return None
    spacing = _spacing(model_ends)
    others = np.delete(costs, best)
    clear = others.min(initial=np.inf) - costs[best] >= spacing / _CLEAR
    return best if costs[best] <= count * spacing / _CLEAR and clear else None


def _costs(early: Numbers, late: Numbers, offset: float) -> npt.NDArray[np.float64]:
    """Returns: how far all ends are off for each place of the gap [ns], shape (calls + 1,)."""
    before = np.concatenate([[0.0], np.cumsum(np.abs(early - offset))])
    after = np.concatenate([np.cumsum(np.abs(late - offset)[::-1])[::-1], [0.0]])
    costs: npt.NDArray[np.float64] = before + after
    return costs


def _shift(
    ends: Numbers, sizes: Numbers, model_ends: Numbers, model_sizes: Numbers, *, one_clock: bool
) -> int:
    """Returns: by how many calls a rank is shifted against the model, 0 where nothing says so.

    Most sizes disagree, or on one clock the ends lie apart, while another shift agrees in all.
    """
    count = len(sizes)
    close = _spacing(model_ends) / _CLEAR
    reach = min(_FARTHEST, count - 1)

    def agrees(by: int) -> bool:
        own, other = slice(max(0, -by), count - max(0, by)), slice(max(0, by), count + min(0, by))
        together = not one_clock or np.median(np.abs(ends[own] - model_ends[other])) <= close
        return bool(together and np.array_equal(sizes[own], model_sizes[other]))

    apart = one_clock and count > 1 and np.median(np.abs(ends - model_ends)) > close
    if 2 * int((sizes == model_sizes).sum()) >= count and not apart:
        return 0
    fits = [by for by in range(-reach, reach + 1) if by and agrees(by)]
    return fits[0] if len(fits) == 1 else 0


def _spacing(ends: Numbers) -> float:
    return float(np.median(np.diff(ends))) if len(ends) > 1 else 0.0
