"""The interval sweep: exact, and equal to brute force."""

from typing import Any

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from traceq.ingest.accounting import Intervals, Union, account
from traceq.model.timing import PARTS

Spans = list[tuple[int, int]]


def spans(low: int = -20, high: int = 40) -> st.SearchStrategy[Spans]:
    """Intervals that may be empty, touching, nested, equal, or begin below zero."""
    return st.lists(
        st.tuples(st.integers(low, high), st.integers(0, 15)).map(lambda s: (s[0], s[0] + s[1])),
        max_size=12,
    )


def intervals(pairs: Spans) -> Intervals:
    table = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return Intervals(table[:, 0], table[:, 1])


def covered(pairs: Spans, window: tuple[int, int]) -> set[int]:
    """The unit cells of a window that a set of intervals covers, one by one."""
    return {
        cell for start, end in pairs for cell in range(max(start, window[0]), min(end, window[1]))
    }


def brute_force(
    compute: Spans, comm: Spans, copy: Spans, window: tuple[int, int]
) -> dict[str, int]:
    a, b, c = (covered(pairs, window) for pairs in (compute, comm, copy))
    return {
        "window_ns": window[1] - window[0],
        "compute_ns": len(a),
        "comm_ns": len(b),
        "overlap_ns": len(a & b),
        "exposed_comm_ns": len(b - a),
        "copy_ns": len(c),
        "exposed_copy_ns": len(c - a - b),
        "idle_ns": window[1] - window[0] - len(a | b | c),
    }


def accounted(compute: Spans, comm: Spans, copy: Spans, windows: Spans) -> list[dict[str, Any]]:
    parts = account(*(Union.of(intervals(s)) for s in (compute, comm, copy)), intervals(windows))
    return [{name: int(parts[name][i]) for name in PARTS} for i in range(len(windows))]


@given(spans(), spans(), spans(), spans())
@example([(0, 0)], [(0, 0)], [], [(0, 0), (-5, 5)])  # zero length everywhere
@example([(0, 10)], [(10, 20)], [(20, 30)], [(0, 30)])  # touching
@example([(0, 10), (2, 4), (2, 4)], [(3, 8)], [(1, 9)], [(2, 9)])  # nested and equal
@example([(-10, -5)], [(-7, 3)], [], [(-20, 40)])  # below zero
def test_every_part_equals_brute_force_in_every_window(
    compute: Spans, comm: Spans, copy: Spans, windows: Spans
) -> None:
    expected = [brute_force(compute, comm, copy, window) for window in windows]
    assert accounted(compute, comm, copy, windows) == expected


@given(spans(), spans(), spans(), spans())
def test_the_four_parts_add_up_to_the_window(
    compute: Spans, comm: Spans, copy: Spans, windows: Spans
) -> None:
    for row in accounted(compute, comm, copy, windows):
        parts = ("compute_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns")
        assert row["window_ns"] == sum(row[part] for part in parts)


@given(spans())
def test_islands_are_disjoint_sorted_and_cover_the_same_cells(pairs: Spans) -> None:
    union = Union.of(intervals(pairs))
    assert (union.start_ns[1:] > union.end_ns[:-1]).all()
    islands = list(zip(union.start_ns.tolist(), union.end_ns.tolist(), strict=True))
    whole = (-100, 100)
    assert covered(islands, whole) == covered(pairs, whole)
    assert union.total_ns == len(covered(pairs, whole))


def test_overlap_counts_concurrent_kernels_once() -> None:
    (row,) = accounted([(0, 100), (0, 100), (50, 150)], [(80, 200), (90, 120)], [], [(0, 200)])
    assert (row["compute_ns"], row["comm_ns"], row["overlap_ns"]) == (150, 120, 70)


def test_times_beyond_float_precision_stay_exact() -> None:
    zero = 1_780_000_000_000_000_001
    (row,) = accounted([(zero, zero + 3)], [(zero + 2, zero + 5)], [], [(zero, zero + 7)])
    assert (row["compute_ns"], row["overlap_ns"], row["idle_ns"]) == (3, 1, 2)


def test_nothing_at_all_is_idle() -> None:
    (row,) = accounted([], [], [], [(5, 25)])
    assert row["idle_ns"] == row["window_ns"] == 20
