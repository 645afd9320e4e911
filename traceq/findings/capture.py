"""What the capture hides, and warm-up that it holds."""

from collections.abc import Iterator

from traceq.findings.facts import Facts, Finding, Row

_HIDES = ("graph_hidden", "names_unknown", "events_lost", "size_unknown", "group_size_unknown")


def find(facts: Facts) -> Iterator[Finding]:
    """Yields: a finding for each kind of thing that keeps numbers from being known."""
    counts: dict[str, int] = {}
    first: dict[str, Row] = {}
    for row in facts.diagnostics:
        code = row["code"]
        if code in (*_HIDES, "warmup"):
            counts[code] = counts.get(code, 0) + (row["count"] or 0)
            first.setdefault(code, row)
    for code, row in first.items():
        yield Finding(
            id=f"capture_{code}",
            severity="info" if code == "warmup" else "warning",
            title=str(row["message"]),
            evidence={"count": counts[code]},
            advice=str(row["hint"] or "see the notes"),
        )
