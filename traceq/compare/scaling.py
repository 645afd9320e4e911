"""How exposed communication grows with the number of ranks, and which operation breaks the trend.

A ring of n ranks takes steps(n) and sends share(n) of S: E(n) = a * steps(n) + b * share(n), with a
and b not below 0, is fitted to the exposed transfer of an operation in a step. The prediction holds
if message sizes, what is hidden, and the kind of link stay as they are.

Source: docs/metrics.md, comparing runs and latency and bandwidth.
"""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from traceq.compare.side import Side
from traceq.compare.waterfall import step_time
from traceq.model.collectives import Op, ring_steps, wire_bytes
from traceq.model.latency import Numbers
from traceq.report import Row

LEAST_SIZES = 3
ASSUMPTION = "a ring over all ranks; message sizes, hidden share and kind of link as in these runs"
_SCALE = 1 << 40
_OFF_TREND = 0.2  # of what the other sizes lead to expect
_LEAST_SHARE = 0.01  # of the step, below which a deviation does not matter

Points = dict[int, float]
Links = dict[int, str]


def scaling(sides: Sequence[Side]) -> list[Row]:
    """Returns: one row per operation whose exposed time could be fitted over three or more sizes.

    Those furthest above the trend come first: `excess_ns` is what the largest run exposes beyond
    what the smaller ones lead to expect, and `breaks` whether that is over a fifth of it, and over
    1 % of the step.
    """
    largest = max((side for side in sides if side.ranks), key=lambda s: s.ranks or 0, default=None)
    if largest is None:
        return []
    step_ns = step_time(largest, ()).step_time_ns
    links = _links(sides)
    rows = []
    for op, points in _exposed(sides).items():
        if len(points) >= LEAST_SIZES and _grows(op):
            rows.append(_row(op, points, links, step_ns))
    return sorted(rows, key=lambda row: -row["excess_ns"])


def _grows(op: Op) -> bool:
    """Returns: whether an operation takes more steps on more ranks."""
    few, more = ring_steps(op, 2), ring_steps(op, 4)
    return few is not None and more is not None and more > few


def _exposed(sides: Sequence[Side]) -> dict[Op, Points]:
    """Returns: exposed transfer of an operation in a step [ns], by number of ranks.

    Where the transfer is not told from waiting it is all exposed time. Runs of one size count as
    their mean. Only groups of all ranks grow with the run.
    """
    found: dict[Op, dict[int, list[int]]] = {}
    for side in sides:
        if side.ranks is None or side.ranks < 2 or side.steps.is_empty():  # noqa: PLR2004
            continue
        sums: dict[Op, int] = defaultdict(int)
        for row in side.costs:
            if row["group_size"] == side.ranks:
                exposed = row["window_exposed_transfer_ns"]
                sums[Op(row["op"])] += row["window_exposed_ns"] if exposed is None else exposed
        for op, total in sums.items():
            found.setdefault(op, {}).setdefault(side.ranks, []).append(total)
    return {
        op: {n: sum(values) / len(values) for n, values in sorted(by_size.items())}
        for op, by_size in found.items()
    }


def _links(sides: Sequence[Side]) -> Links:
    """Returns: the link that groups of all ranks must use, by number of ranks."""
    return {
        row["group_size"]: row["link"]
        for side in sides
        for row in side.costs
        if row["group_size"] == side.ranks
    }


def _row(op: Op, points: Points, links: Links, step_ns: int | None) -> Row:
    sizes = list(points)
    largest = sizes[-1]
    a, b = _fitted(op, points)
    rest = {n: value for n, value in points.items() if n != largest}
    expected = _value(op, largest, *_fitted(op, rest))
    excess = points[largest] - expected
    matters = excess > _OFF_TREND * expected and excess > _LEAST_SHARE * (step_ns or 0)
    return {
        "op": op.value,
        "points": [
            {
                "ranks": n,
                "link": links[n],
                "exposed_ns": round(value),
                "fit_ns": round(_value(op, n, a, b)),
            }
            for n, value in points.items()
        ],
        "latency_ns": round(a * (ring_steps(op, largest) or 0)),
        "bandwidth_ns": round(b * _share(op, largest)),
        "predicted_ranks": 2 * largest,
        "predicted_ns": round(_value(op, 2 * largest, a, b)),
        "expected_ns": round(expected),
        "excess_ns": round(excess),
        "breaks": bool(matters),
        "assumption": ASSUMPTION,
    }


def _share(op: Op, n: int) -> float:
    sent = wire_bytes(op, _SCALE, n)
    return 1.0 if sent is None else sent / _SCALE


def _value(op: Op, n: int, a: float, b: float) -> float:
    return a * (ring_steps(op, n) or 0) + b * _share(op, n)


def _fitted(op: Op, points: Points) -> tuple[float, float]:
    """Returns: a and b, neither below 0, nearest to the points by least squares."""
    design = np.array([[ring_steps(op, n) or 0, _share(op, n)] for n in points], dtype=float)
    values = np.array(list(points.values()), dtype=float)
    best = _solved(design, values)
    if (best >= 0).all():
        return float(best[0]), float(best[1])
    alone = []
    for column in (0, 1):
        only = np.zeros(2)
        only[column] = max(0.0, float(_solved(design[:, [column]], values)[0]))
        alone.append((float(((design @ only - values) ** 2).sum()), tuple(only)))
    a, b = min(alone)[1]
    return a, b


def _solved(design: Numbers, values: Numbers) -> Numbers:
    return np.asarray(np.linalg.lstsq(design, values, rcond=None)[0], dtype=float)
