"""A link over which every group is slow."""

from collections.abc import Iterator

from traceq.findings.facts import Facts, Finding, Row
from traceq.model.units import size_text

_SLOW = 1.5
_MOST_RANKS = 2


def find(facts: Facts) -> Iterator[Finding]:
    """Yields: a finding for each kind of collective in which some communicators are slow.

    What all slow ones have in common, and no other one, is named: a host, or one or two ranks.
    """
    kinds: dict[tuple[str, int, str, int], list[Row]] = {}
    for row in facts.slow_links:
        kinds.setdefault(
            (row["op"], row["group_size"], row["link"], row["bucket_bytes"]), []
        ).append(row)
    for (op, n, link, bucket), rows in kinds.items():
        slow = [row for row in rows if row["slowdown_ratio"] and row["slowdown_ratio"] >= _SLOW]
        if not slow:
            continue
        rest = [row for row in rows if row not in slow]
        where = _common(slow, rest)
        worst = max(row["slowdown_ratio"] for row in slow)
        lost = sum(
            (row["transfer_ns"] - row["others_ns"]) * row["collective_count"] * len(row["ranks"])
            for row in slow
        )
        yield Finding(
            id="slow_link",
            severity="warning",
            title=(
                f"{op} of {size_text(bucket)} or more on {n} ranks takes up to {worst:.3g} times "
                f"the usual in {len(slow)} of {len(rows)} communicators, {where}; no rank is late"
            ),
            evidence={
                "op": op,
                "group_size": n,
                "link": link,
                "bucket_bytes": bucket,
                "slowdown_ratio": worst,
                "communicators": [row["comm_id"] for row in slow],
                "ranks": sorted({rank for row in slow for rank in row["ranks"]}),
                "where": where,
            },
            advice="a link, not a rank, is slow: check cables, NICs and switch ports there, PCIe "
            "width and speed, and run nccl-tests on these ranks alone",
            lost_ns=round(lost),
        )


def _common(slow: list[Row], rest: list[Row]) -> str:
    if all(row["nodes"] is not None for row in (*slow, *rest)):
        nodes = _only_in(slow, rest, "nodes")
        if len(nodes) == 1:
            return f"all that touch node{nodes[0]}"
    ranks = _only_in(slow, rest, "ranks")
    if 0 < len(ranks) <= _MOST_RANKS:
        return f"all that contain rank {' and '.join(map(str, ranks))}"
    return "which have no host or rank of their own in common"


def _only_in(slow: list[Row], rest: list[Row], column: str) -> list[int]:
    common = set.intersection(*(set(row[column]) for row in slow))
    return sorted(common - {member for row in rest for member in row[column]})
