"""Barriers in the loop."""

from collections.abc import Iterator

from traceq.findings.facts import Facts, Finding
from traceq.model.units import time_text


def find(facts: Facts) -> Iterator[Finding]:
    """Yields: a finding where barriers ran."""
    rows = [row for row in facts.collectives if row["op"] == "barrier"]
    count = sum(row["count"] for row in rows)
    if not count:
        return
    exposed = sum(row["exposed_ns"] for row in rows)
    yield Finding(
        id="barrier",
        severity="info",
        title=f"{count} barriers ran, with {time_text(exposed)} exposed in sum over ranks",
        evidence={"count": count, "exposed_ns": exposed},
        advice="remove barriers from the training loop: collectives order ranks by themselves",
        lost_ns=exposed,
    )
