"""The same kind of collective in several runs: its transfer, waiting, cost and share of its peak.

A kind is an operation and a size bucket. Where a run has several groups of one kind, the group of
all ranks answers that of all ranks, then one of the same size, then the only one that is left.
"""

from collections.abc import Iterable, Sequence

from traceq.compare.side import Side
from traceq.compare.waterfall import judge
from traceq.report import Row

_KEY = ("op", "group_size", "link", "bucket_bytes")
_FROM_REPORT = (
    *("group_size", "link", "bytes_p50", "transfer_ns_p50", "algbw_gbps", "busbw_gbps"),
    *("peak_gbps", "peak_source", "efficiency", "quality"),
)
_FROM_COSTS = (
    *("window_calls", "window_exposed_ns", "window_exposed_transfer_ns"),
    *("window_exposed_wait_ns", "wait_ns_mean"),
)


def collectives(sides: Sequence[Side]) -> list[Row]:
    """Returns: one row per kind of collective, those whose exposed time grew most first.

    Each has op, bucket_bytes and `runs`: an entry per run in order, None where it has no such kind.
    Growth is of time in a step, so it is unknown without steps.
    """
    lines: list[list[Row | None]] = [[row] for row in _kinds(sides[0])]
    for position, side in enumerate(sides[1:], start=1):
        _append(lines, _kinds(side), position, (sides[0].ranks, side.ranks))
    stepped = [not side.steps.is_empty() for side in sides]
    unsized = {_first(line)["op"] for line in lines if _first(line)["bucket_bytes"] is None}
    rows = [
        _row(
            entries,
            [stepped[0] and each for each in stepped],
            absent_ns=None if _first(entries)["op"] in unsized else 0,
        )
        for entries in lines
    ]
    return sorted(
        rows, key=lambda row: (-(row["growth_ns"] or 0), row["op"], row["bucket_bytes"] or 0)
    )


def _kinds(side: Side) -> list[Row]:
    """Returns: the kinds of one run, with what the report and the costs say of each."""
    costs = {tuple(row[name] for name in _KEY): row for row in side.costs}
    kinds = []
    for row in side.report.collectives:
        cost = costs.get(tuple(row[name] for name in _KEY), {})
        low, high = cost.get("transfer_ns_p25"), cost.get("transfer_ns_p75")
        kinds.append(
            {
                "op": row["op"],
                "bucket_bytes": row["bucket_bytes"],
                **{name: row[name] for name in _FROM_REPORT},
                **{name: cost.get(name) for name in _FROM_COSTS},
                "transfer_spread_ns": None if low is None or high is None else high - low,
            }
        )
    return kinds


def _append(
    lines: list[list[Row | None]],
    kinds: list[Row],
    length: int,
    ranks: tuple[int | None, int | None],
) -> None:
    """Adds the kinds of one more run, each to the line of its kind, or on a line of its own."""
    pairs = _paired([_first(line) for line in lines], kinds, *ranks)
    for position, line in enumerate(lines):
        line.append(kinds[pairs[position]] if position in pairs else None)
    for position, kind in enumerate(kinds):
        if position not in pairs.values():
            lines.append([*[None] * length, kind])


def _first(line: Iterable[Row | None]) -> Row:
    return next(entry for entry in line if entry is not None)


def _paired(
    before: list[Row], after: list[Row], base_ranks: int | None, ranks: int | None
) -> dict[int, int]:
    """Returns: the position in `after` of the kind that answers each kind of `before`."""
    pairs: dict[int, int] = {}

    def of_all(a: Row, b: Row) -> bool:
        return None not in {base_ranks, ranks} and (a["group_size"], b["group_size"]) == (
            base_ranks, ranks,
        )  # fmt: skip

    def as_large(a: Row, b: Row) -> bool:
        return bool(a["group_size"] == b["group_size"])

    for fits in (of_all, as_large):
        for i, a in enumerate(before):
            for j, b in enumerate(after):
                taken = i in pairs or j in pairs.values()
                if not taken and _kind(a) == _kind(b) and fits(a, b):
                    pairs[i] = j
    for kind in {_kind(row) for row in before}:
        left = [i for i, row in enumerate(before) if _kind(row) == kind and i not in pairs]
        right = [j for j, r in enumerate(after) if _kind(r) == kind and j not in pairs.values()]
        if len(left) == len(right) == 1:
            pairs[left[0]] = right[0]
    return pairs


def _kind(row: Row) -> tuple[str, int | None]:
    return row["op"], row["bucket_bytes"]


def _row(
    entries: Sequence[Row | None], comparable: Sequence[bool], *, absent_ns: int | None
) -> Row:
    """Returns: one kind in every run.

    Args:
        entries: what each run says of it, None where it has no such kind.
        comparable: whether the time of each in a step can be compared with that of the first.
        absent_ns: what a run without the kind exposes in it [ns]; None where its calls of that
            operation have no size, and so may be of any kind.
    """
    base = entries[0]
    first = _first(entries)
    runs = [
        None if entry is None else _entry(base, entry, grows=each, absent_ns=absent_ns)
        for entry, each in zip(entries, comparable, strict=True)
    ]
    growths = [run["growth_ns"] for run in runs[1:] if run is not None]
    known = [growth for growth in growths if growth is not None]
    return {
        "op": first["op"],
        "bucket_bytes": first["bucket_bytes"],
        "growth_ns": max(known, default=None),
        "absent_ns": absent_ns,
        "runs": runs,
    }


def _entry(base: Row | None, entry: Row, *, grows: bool, absent_ns: int | None) -> Row:
    told = {name: value for name, value in entry.items() if name not in {"op", "bucket_bytes"}}
    base_cost = absent_ns if base is None else base["window_exposed_ns"]
    cost = entry["window_exposed_ns"]
    spreads = (None if base is None else base["transfer_spread_ns"], entry["transfer_spread_ns"])
    noise = None if None in spreads else max(spreads)
    before = None if base is None else base["transfer_ns_p50"]
    return told | {
        "growth_ns": cost - base_cost if grows and None not in {cost, base_cost} else None,
        "verdict": judge(before, entry["transfer_ns_p50"], noise).value,
    }
