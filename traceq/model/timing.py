"""The columns of time accounting, by the one name each has in tables, queries and reports.

Source: docs/metrics.md, time accounting.
"""

from collections.abc import Iterable

PARTS = (
    "window_ns",
    "compute_ns",
    "comm_ns",
    "overlap_ns",
    "exposed_comm_ns",
    "copy_ns",
    "exposed_copy_ns",
    "idle_ns",
)
RATIOS = ("comm_fraction", "exposed_comm_fraction", "overlap_ratio")


def lower_median(values: Iterable[int]) -> int | None:
    """Returns: the middle one of integers, the lower of an even count, None of none.

    >>> lower_median([3, 1, 2, 9]), lower_median([])
    (2, None)
    """
    ordered = sorted(values)
    return ordered[(len(ordered) - 1) // 2] if ordered else None
