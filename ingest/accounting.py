"""Where the time of a window goes: exact integer unions of a rank's intervals.

An interval set is merged once into disjoint, sorted islands. The measure of the islands inside any
window then needs two binary searches, so every window of a rank is answered from one sweep. Every
intersection follows from unions, as ``|A and B| = |A| + |B| - |A or B|``, exactly in integers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.int64]


class Intervals(NamedTuple):
    """Starts and ends [ns] of half-open intervals, shape (n,) each."""

    start_ns: Times
    end_ns: Times


@dataclass(frozen=True, slots=True)
class Union:
    """Disjoint, sorted islands of an interval set, ready to be measured."""

    start_ns: Times
    end_ns: Times
    before_ns: Times

    @classmethod
    def of(cls, *sets: Intervals) -> "Union":
        """Returns: the union of interval sets.

        With starts and ends each sorted alone, an island begins at the i-th start exactly when the
        i earlier intervals have all ended before it: the (i-1)-th end lies before the i-th start.
        """
        start = _sorted([s.start_ns for s in sets])
        end = _sorted([s.end_ns for s in sets])
        if len(start):
            begins = np.concatenate([[True], start[1:] > end[:-1]])
            start, end = start[begins], end[np.concatenate([begins[1:], [True]])]
        lengths = np.concatenate([[0], np.cumsum(end - start)]).astype(np.int64)
        return cls(start, end, lengths)

    @property
    def islands(self) -> Intervals:
        """Returns: the islands as an interval set."""
        return Intervals(self.start_ns, self.end_ns)

    @property
    def total_ns(self) -> int:
        """Returns: the length of the whole union [ns]."""
        return int(self.before_ns[-1])

    def measure_ns(self, windows: Intervals) -> Times:
        """Returns: the length of the union inside each window [ns], shape (windows,)."""
        return self._until(windows.end_ns) - self._until(windows.start_ns)

    def _until(self, moment: Times) -> Times:
        if not len(self.start_ns):
            return np.zeros(len(moment), dtype=np.int64)
        index = np.searchsorted(self.start_ns, moment, side="right") - 1
        inside = np.minimum(moment, self.end_ns[index]) - self.start_ns[index]
        return np.where(index < 0, 0, self.before_ns[index] + inside)


_EMPTY: Times = np.empty(0, dtype=np.int64)


def _sorted(parts: list[Times]) -> Times:
    # A stream runs in order, so the parts are nearly sorted: a merge sort is linear on them.
    return np.sort(np.concatenate([_EMPTY, *parts]), kind="stable")


def account(compute: Union, comm: Union, copy: Union, windows: Intervals) -> Mapping[str, Times]:
    """Returns: every part of metrics section 2 in each window [ns], by name, shape (windows,).

    ``window_ns = compute_ns + exposed_comm_ns + exposed_copy_ns + idle_ns`` holds exactly.

    Source: docs/metrics.md, section 2.
    """
    kernels = Union.of(compute.islands, comm.islands)
    busy = Union.of(kernels.islands, copy.islands)
    length = windows.end_ns - windows.start_ns
    compute_ns, comm_ns, copy_ns, kernels_ns, busy_ns = (
        union.measure_ns(windows) for union in (compute, comm, copy, kernels, busy)
    )
    return {
        "window_ns": length,
        "compute_ns": compute_ns,
        "comm_ns": comm_ns,
        "overlap_ns": compute_ns + comm_ns - kernels_ns,
        "exposed_comm_ns": kernels_ns - compute_ns,
        "copy_ns": copy_ns,
        "exposed_copy_ns": busy_ns - kernels_ns,
        "idle_ns": length - busy_ns,
    }
