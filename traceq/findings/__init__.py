"""Findings: rules over a run's numbers, each with its evidence and advice, most time lost first."""

from collections.abc import Callable, Iterator

from traceq.findings import (
    bandwidth,
    barrier,
    capture,
    cross_node,
    exchange,
    latency,
    overlap,
    slow_link,
    straggler,
)
from traceq.findings.facts import Facts, Finding

Rule = Callable[[Facts], Iterator[Finding]]

RULES: tuple[Rule, ...] = (
    straggler.find,
    slow_link.find,
    overlap.find,
    bandwidth.find,
    latency.find,
    exchange.find,
    barrier.find,
    cross_node.find,
    capture.find,
)


def find_all(facts: Facts) -> list[Finding]:
    """Returns: every finding of a run, most time lost first."""
    found = [finding for rule in RULES for finding in rule(facts)]
    return sorted(found, key=lambda finding: -finding.lost_ns)
