"""Messages so small that their time is latency."""

from collections.abc import Iterator

from traceq.findings.facts import Facts, Finding, Row
from traceq.model.units import percent_text, size_text

_BOUND = 0.5
_SEVERAL = 8


def find(facts: Facts) -> Iterator[Finding]:
    """Yields: a finding for each operation with several collectives that are mostly latency."""
    kinds: dict[tuple[str, int, str], list[Row]] = {}
    for row in facts.latency:
        if row["latency_fraction"] is not None and row["latency_fraction"] > _BOUND:
            kinds.setdefault((row["op"], row["group_size"], row["link"]), []).append(row)
    for (op, n, link), rows in kinds.items():
        count = sum(row["collective_count"] for row in rows)
        if count < _SEVERAL:
            continue
        lost = sum(
            row["collective_count"]
            * (row["model_ns"] or row["transfer_ns"])
            * row["latency_fraction"]
            for row in rows
        )
        largest = max(row["bucket_bytes"] for row in rows)
        least = min(row["latency_fraction"] for row in rows)
        alpha = rows[0]["alpha_us"]
        yield Finding(
            id="latency_bound",
            severity="warning",
            title=(
                f"{count} {op} of up to {size_text(2 * largest)} on {n} ranks are bound by "
                f"latency: at least {percent_text(least)} of their time, at {alpha:.3g} us per step"
            ),
            evidence={
                "op": op,
                "group_size": n,
                "link": link,
                "collective_count": count,
                "largest_bucket_bytes": largest,
                "alpha_us": alpha,
                "latency_fraction_min": least,
            },
            advice="send fewer and larger messages: fuse or coalesce them, use larger DDP buckets "
            "(bucket_cap_mb), or reduce less often",
            lost_ns=round(lost * n),
        )
