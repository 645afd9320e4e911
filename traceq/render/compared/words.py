"""The words of a comparison that every format prints."""

from itertools import takewhile

from traceq.compare.comparison import Comparison
from traceq.model.units import UNKNOWN, time_text
from traceq.render.layout import clean
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


def labels(comparison: Comparison, most: int) -> list[str]:
    """Returns: a short name for each run, unique among them.

    Where names are long, what all have in common at their ends is left out; where that is not
    enough, they go by their number.
    """
    names = [clean(run["name"]) for run in comparison.runs]
    if max(map(len, names)) <= most:
        return names
    begin = _alike(names)
    end = min(_alike([n[::-1] for n in names]), *(len(n) - begin for n in names))
    told = [name[begin : len(name) - end].strip(" _-.") for name in names]
    if all(told) and len(set(told)) == len(names) and max(map(len, told)) <= most:
        return told
    return [f"run {number}" for number, _ in enumerate(names, start=1)]


def _alike(names: list[str]) -> int:
    """Returns: with how many same characters all names begin."""
    return sum(
        1 for _ in takewhile(lambda letters: len(set(letters)) == 1, zip(*names, strict=False))
    )


def titles(comparison: Comparison, most: int) -> list[str]:
    """Returns: the name of each run, with its short name where that is another."""
    pairs = zip(comparison.runs, labels(comparison, most), strict=True)
    return [
        label if clean(run["name"]) == label else f"{clean(run['name'])} [{label}]"
        for run, label in pairs
    ]


def coverage(run: Row) -> str:
    """Returns: how many ranks of a run are there, of how many."""
    whole = run["world_size"]
    present = run["ranks_present_count"]
    return str(whole) if whole == present else f"{present} of {whole or '?'}"


def window(run: Row) -> str:
    """Returns: what the numbers of a run are over."""
    if run["window"] == "steps":
        return f"{run['steps']} steps"
    return f"capture {time_text(run['window_ns'] // run['ranks_present_count'])}"


def scaling_text(comparison: Comparison) -> str:
    """Returns: what the efficiency is, in words."""
    base = clean(comparison.runs[0]["name"])
    if comparison.scaling == "weak":
        return f"step time of {base} / step time, as for weak scaling: work per rank stays"
    return f"rank-seconds per step of {base} / those of the run, as for strong scaling"


def run_notes(comparison: Comparison) -> list[str]:
    """Returns: which runs lack ranks, what the efficiency is, and why it is unknown."""
    partial = [
        f"{clean(run['name'])} holds {coverage(run)} ranks: its parts are means over these, which "
        "may differ from those of all"
        for run in comparison.runs
        if run["world_size"] != run["ranks_present_count"]
    ]
    lines: dict[str, list[str]] = {}
    for run in comparison.runs:
        if run["efficiency"] is None:
            lines.setdefault(run["reason"], []).append(clean(run["name"]))
    unknown = [
        f"efficiency is unknown for {', '.join(names)}: {reason_text(why)}"
        for why, names in lines.items()
    ]
    known = any(run["efficiency"] is not None for run in comparison.runs[1:])
    told = [f"efficiency: {scaling_text(comparison)}"] if known else []
    return [*partial, *told, *unknown]


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


def cost_text(comparison: Comparison) -> str:
    """Returns: what the columns of collectives are, by the windows of the runs."""
    windows = {run["window"] for run in comparison.runs}
    where = {
        frozenset({"steps"}): "in a step",
        frozenset({"capture"}): "in its capture, which can be of another length",
    }.get(frozenset(windows), "in a step, or in the capture of a run without steps")
    return (
        f"transfer and busbw (GB/s) are medians; calls and exposed time are of a rank {where}; "
        "of peak: of each run's own link"
    )
