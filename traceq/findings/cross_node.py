"""How much of the transfer must cross nodes."""

from collections.abc import Iterator

from traceq.findings.facts import Facts, Finding
from traceq.model.units import percent_text

_MOST = 0.5


def find(facts: Facts) -> Iterator[Finding]:
    """Yields: a finding where more than half of the transfer is between nodes."""
    rows = [row for row in facts.collectives if row["transfer_ns_p50"] is not None]
    if not rows or any(row["link"] == "unknown" for row in rows):
        return
    times = {"intra": 0, "inter": 0}
    for row in rows:
        times[row["link"]] += row["transfer_ns_p50"] * row["count"]
    total = sum(times.values())
    if not total or times["inter"] <= _MOST * total or not times["intra"]:
        return
    share = times["inter"] / total
    yield Finding(
        id="cross_node",
        severity="info",
        title=f"{percent_text(share)} of the transfer time is between nodes",
        evidence={
            "inter_fraction": share,
            "inter_ns": times["inter"],
            "intra_ns": times["intra"],
        },
        advice="keep the groups that talk most inside a node (tensor and expert parallel), and let "
        "data parallel cross",
    )
