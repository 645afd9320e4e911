"""What rules look at, and what they find."""

from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Facts:
    """The numbers of a run that findings are made from.

    Attributes:
        metrics: run-level numbers by name, None where unknown.
        transfer_exposed_ns: exposed communication less waiting, summed over ranks [ns], or None.
        collectives: rows of the query busbw.
        stragglers: rows of the query stragglers.
        latency: rows of the query latency_bandwidth.
        imbalance: rows of the query imbalance.
        slow_links: rows of the query slow_links.
        streams: rows of the query streams.
        diagnostics: what was noticed about the data.
        on_cpus: the run used no GPU.
    """

    metrics: Row
    transfer_exposed_ns: int | None
    collectives: list[Row]
    stragglers: list[Row]
    latency: list[Row]
    imbalance: list[Row]
    slow_links: list[Row]
    streams: list[Row]
    diagnostics: list[Row]
    on_cpus: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that costs time, or that limits what can be said.

    Attributes:
        id: its rule.
        severity: warning, or info where nothing needs to be done at once.
        title: the finding in words, with its numbers.
        evidence: the numbers.
        advice: what to do.
        lost_ns: time it costs, summed over ranks [ns]; 0 where it costs none by itself.
    """

    id: str
    severity: str
    title: str
    evidence: Row
    advice: str
    lost_ns: int = 0

    def as_json(self) -> Row:
        """Returns: the finding as plain data."""
        return {
            "id": self.id,
            "severity": self.severity,
            "title": self.title,
            "evidence": {**self.evidence, "lost_ns": self.lost_ns},
            "advice": self.advice,
        }
