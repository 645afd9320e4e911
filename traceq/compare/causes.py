"""Why a run takes longer or shorter than the base, in words that carry their numbers."""

from collections.abc import Sequence

from traceq.compare.side import Side
from traceq.compare.waterfall import Verdict
from traceq.model.units import percent_text, size_text, time_text
from traceq.report import Row, reason_text

_MOST_OF_IT = 0.5  # of the waiting, for which one rank is named
_WORDS = {
    "compute": "compute",
    "exposed_comm": "exposed communication",
    "exposed_transfer": "exposed transfer",
    "exposed_wait": "waiting",
    "exposed_copy": "exposed copies",
    "idle": "idle time",
    "rest": "uneven steps",
}
_LEAST_SHARE = 0.05


def cause(difference: Row, base: Side, other: Side, rows: Sequence[Row], position: int) -> Row:
    """Returns: what makes the difference between a run and the base: run, text, parts.

    Args:
        difference: the waterfall of the two.
        base: the run compared with.
        other: the run.
        rows: the kinds of collectives, as `collectives.collectives` returns them.
        position: place of the run in the rows.
    """
    parts = _parts(difference, other, rows, position)
    return {
        "run": other.name,
        "verdict": difference["verdict"],
        "text": _text(difference, base, other, parts),
        "parts": parts,
    }


def _parts(difference: Row, other: Side, rows: Sequence[Row], position: int) -> list[Row]:
    """Returns: part, share, difference_ns, text of the parts that go the way of the whole."""
    total = difference["difference_ns"]
    if difference["verdict"] not in {Verdict.MORE, Verdict.LESS}:
        return []
    along = [
        part
        for part in difference["parts"]
        if part["difference_ns"] / total >= _LEAST_SHARE
        and part["verdict"] in {Verdict.MORE, Verdict.LESS}
    ]
    return [
        {
            "part": part["part"],
            "share": part["difference_ns"] / total,
            "difference_ns": part["difference_ns"],
            "text": _named(part["part"], other, rows, position, grows=total > 0),
        }
        for part in sorted(along, key=lambda part: -part["difference_ns"] / total)
    ]


def _text(difference: Row, base: Side, other: Side, parts: list[Row]) -> str:
    if difference["verdict"] == Verdict.UNKNOWN:
        return _without_steps(base, other)
    if difference["verdict"] == Verdict.NONE:
        return "no difference in step time"
    delta, noise = abs(difference["difference_ns"]), difference["noise_ns"]
    way = "longer" if difference["difference_ns"] > 0 else "shorter"
    if difference["verdict"] == Verdict.NOISE:
        return (
            f"inconclusive: the step is {time_text(delta)} {way}, but steps of one run differ by "
            f"{time_text(noise)} among themselves"
        )
    base_ns = difference["base_ns"]
    share = f" ({percent_text(delta / base_ns)})" if base_ns else ""
    head = f"the step is {time_text(delta)}{share} {way}"
    if not difference["parts"]:
        return f"{head}; what it is made of is not known in both runs"
    if not parts:
        return f"{head}; no part of it changes by more than steps do among themselves"
    first, *others = (f"{percent_text(part['share'])} of it is {part['text']}" for part in parts)
    return f"{head}: {'; '.join([first, *(o.replace(' of it is', '') for o in others[:1])])}"


def _without_steps(base: Side, other: Side) -> str:
    lacking = " and ".join(side.name for side in (base, other) if side.steps.is_empty())
    told = f"step times cannot be compared: {reason_text('few_steps')} in {lacking}"
    shares = [side.report.metrics["exposed_comm_fraction"] for side in (other, base)]
    if None in shares:
        return told
    after, before = map(percent_text, shares)
    return f"{told}; {after} of its time is exposed communication, against {before}"


def _named(part: str, other: Side, rows: Sequence[Row], position: int, *, grows: bool) -> str:
    words = _WORDS[part]
    if part == "exposed_wait" and grows:
        return waited_for(other.report.stragglers)
    if part in {"exposed_transfer", "exposed_comm"}:
        kind = _largest(rows, part, position, grows=grows)
        return words if kind is None else f"{words}, most of all {kind}"
    return words


def waited_for(stragglers: Sequence[Row]) -> str:
    """Returns: for whom ranks wait: a rank, if most of the waiting is for it and not by chance."""
    total = sum(row["imposed_wait_ns"] for row in stragglers)
    most = max(stragglers, key=lambda row: row["imposed_wait_ns"], default=None)
    if not total or most is None:
        return "waiting for late ranks"
    if most["straggler"] and most["imposed_wait_ns"] >= _MOST_OF_IT * total:
        why = "" if most["cause"] in {None, "unknown"} else f" (late by {most['cause']})"
        return f"waiting for rank {most['rank']}{why}"
    named = [str(row["rank"]) for row in stragglers if row["straggler"]]
    if named:
        return f"waiting for late ranks, significantly {', '.join(named)}"
    return "waiting for late ranks, none of them late by more than chance"


def _largest(rows: Sequence[Row], part: str, position: int, *, grows: bool) -> str | None:
    """Returns: the kind of collective that changed most in a part, None if none did."""
    column = "window_exposed_transfer_ns" if part == "exposed_transfer" else "window_exposed_ns"
    changes = []
    for row in rows:
        base, run = row["runs"][0], row["runs"][position]
        before = row["absent_ns"] if base is None else base[column]
        after = row["absent_ns"] if run is None else run[column]
        if None not in {before, after}:
            changes.append((after - before if grows else before - after, row))
    change, most = max(changes, key=lambda pair: pair[0], default=(0, None))
    if most is None or change <= 0:
        return None
    size = "" if most["bucket_bytes"] is None else f" of {size_text(most['bucket_bytes'])} or more"
    return f"{most['op']}{size}"
