"""The sentences of a report that every format prints."""

from collections import Counter

from traceq.model.units import UNKNOWN, percent_text, time_text
from traceq.render.layout import counted, listed
from traceq.report import Report, Row, reason_text

PARTS = (
    ("compute", "compute_ns"),
    ("exposed communication", "exposed_comm_ns"),
    ("exposed copies", "exposed_copy_ns"),
    ("idle", "idle_ns"),
)


BOUNDS = {"partial_ranks": "≥ ", "rooted": "≤ "}
VERDICTS = {True: "straggler", False: "not significant", None: UNKNOWN}
_LEAST_CHANCE = 0.001


def rate_text(row: Row, name: str = "busbw_gbps") -> str:
    """Returns: a rate of a kind of collective in GB/s, marked where it is a bound."""
    rate = row[name]
    return UNKNOWN if rate is None else f"{BOUNDS.get(row['quality'], '')}{rate:.4g}"


def peak_text(row: Row) -> str:
    """Returns: the share of its link's peak that a kind of collective reaches, and whose peak."""
    if row["efficiency"] is None:
        return UNKNOWN
    bound = BOUNDS.get(row["quality"], "")
    return f"{bound}{percent_text(row['efficiency'])} {row['peak_source']}"


def last_text(row: Row) -> str:
    """Returns: how often a rank arrived last, of the collectives it took part in.

    >>> last_text({"times_last": 20_000, "collectives": 20_000})
    '20,000 of 20,000'
    >>> last_text({"times_last": 0.5, "collectives": 8})
    '0.5 of 8'
    """
    times = f"{row['times_last']:,.2f}".rstrip("0").rstrip(".")
    return f"{times} of {row['collectives']:,}"


def chance_text(p_value: float) -> str:
    """Returns: a chance, of which below a thousandth only that is of use.

    >>> chance_text(0.03125), chance_text(6.3e-30), chance_text(1.0)
    ('0.031', '<0.001', '1')
    """
    return f"<{_LEAST_CHANCE}" if p_value < _LEAST_CHANCE else f"{p_value:.2g}"


def sentence(text: str) -> str:
    """Returns: a text with a capital and a full stop."""
    return f"{text[:1].upper()}{text[1:]}."


def answer_text(report: Report) -> str:
    """Returns: the answer of a report in one sentence."""
    metrics = report.metrics
    if metrics["comm_fraction"] is None:
        why = reason_text(report.reasons.get("comm_fraction"))
        return f"How much of the time is communication is unknown: {why}."
    if metrics["comm_ns"] == 0:
        return "No communication: none of the kernels in the window is a communication kernel."
    return (
        f"{percent_text(metrics['comm_fraction'])} of the time is communication: "
        f"{percent_text(metrics['overlap_ratio'])} of it hidden behind compute, "
        f"{percent_text(metrics['exposed_comm_fraction'])} of the time exposed."
    )


def window_text(report: Report) -> str:
    """Returns: what the numbers of a report are over."""
    summed = f"{time_text(report.metrics['window_ns'])} in sum over ranks"
    if report.run["window"] == "steps":
        counts = sorted(set(Counter(row["rank"] for row in report.steps).values()))
        steps = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        return f"all training steps, {steps} per rank; {summed}"
    why = "fewer than 3 steps on some rank" if report.steps else "no steps are marked"
    return f"the capture, first to last device operation of each rank ({why}); {summed}"


def coverage_text(report: Report) -> str:
    """Returns: what a report covers: ranks, hosts, devices, operations, and whether it is whole."""
    run = report.run
    present, world = len(run["ranks_present"]), run["world_size"]
    ranks = f"{present} of {world} ranks" if world else f"{counted(present, 'rank')} of unknown"
    if run["ranks_missing"]:
        ranks += f" ({listed(run['ranks_missing'])} missing)"
    nodes = "hosts unknown" if run["nodes"] is None else counted(run["nodes"], "host")
    cpu = all(row["device_kind"] == "cpu" for row in report.ranks)
    gpus = ", ".join(run["gpus"]) or ("CPUs" if cpu else "GPU model unknown")
    read = sum(source["events_read"] for source in report.sources)
    state = "" if report.complete else "; INCOMPLETE, see the notes"
    return f"{ranks}, {nodes}, {gpus}, {read:,} operations{state}"


def clock_text(report: Report) -> str | None:
    """Returns: what aligning did to the clocks, None where there was nothing to align."""
    shifted = [row for row in report.matching["clock"]["sources"] if row["clock_offset_ns"]]
    if not shifted:
        return None
    offsets = sorted({row["clock_offset_ns"] for row in shifted}, key=abs)
    residual = max(row["clock_residual_p95_ns"] for row in shifted)
    count = min(row["collective_count"] for row in shifted)
    reach = " to ".join(time_text(offset) for offset in (offsets[0], offsets[-1])[: len(offsets)])
    return (
        f"{counted(len(shifted), 'source')} shifted by {reach} so that the ends of "
        f"{counted(count, 'collective')} meet; 95 % then lie within {time_text(residual)}"
    )
