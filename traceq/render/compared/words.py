"""The words of a comparison that every format prints."""

from traceq.compare.comparison import Comparison
from traceq.model.units import UNKNOWN, time_text
from traceq.report import Row, reason_text

PART_NAMES = {
    "compute": "compute",
    "exposed_comm": "exposed communication",
    "exposed_transfer": "exposed transfer",
    "exposed_wait": "waiting for ranks",
    "exposed_copy": "exposed copies",
    "idle": "idle",
    "rest": "uneven steps",
}


def coverage(run: Row) -> str:
    """Returns: how many ranks of a run are there, of how many."""
    whole = run["world_size"]
    present = run["ranks_present_count"]
    return str(whole) if whole == present else f"{present} of {whole or '?'}"


def window(run: Row) -> str:
    """Returns: what the numbers of a run are over."""
    if run["window"] == "steps":
        return f"{run['steps']} steps"
    return f"capture, {time_text(run['window_ns'] // run['ranks_present_count'])}"


def scaling_text(comparison: Comparison) -> str:
    """Returns: what the efficiency is, in words."""
    base = comparison.runs[0]["name"]
    if comparison.scaling == "weak":
        return f"step time of {base} / step time, as for weak scaling: work per rank stays"
    return f"rank-seconds per step of {base} / those of the run, as for strong scaling"


def missing_efficiency(comparison: Comparison) -> list[str]:
    """Returns: one line per reason for which an efficiency is unknown."""
    lines: dict[str, list[str]] = {}
    for run in comparison.runs:
        if run["efficiency"] is None:
            lines.setdefault(run["reason"], []).append(run["name"])
    return [f"unknown for {', '.join(n)}: {reason_text(why)}" for why, n in lines.items()]


def signed(ns: int | None) -> str:
    """Returns: a difference of times with its sign."""
    if ns is None:
        return UNKNOWN
    return "0" if ns == 0 else f"{'+' if ns > 0 else '-'}{time_text(abs(ns))}"


def trend_notes(comparison: Comparison) -> list[str]:
    """Returns: which operation breaks the trend, and what the prediction assumes."""
    points = comparison.trend[0]["points"]
    largest = points[-1]["ranks"]
    breaking = ", ".join(row["op"] for row in comparison.trend if row["breaks"])
    notes = [
        f"expected at {largest} ranks from the smaller runs: "
        + (f"{breaking} breaks the trend" if breaking else "nothing breaks the trend"),
        f"the prediction for {2 * largest} ranks assumes {comparison.trend[0]['assumption']}",
    ]
    if len({point["link"] for point in points}) > 1:
        links = ", ".join(f"{point['ranks']}: {point['link']}" for point in points)
        notes.append(f"the link is not the same at all sizes ({links}), which breaks trends too")
    return notes
