"""A comparison as Markdown for a pull request or a step summary, in 80 columns."""

from collections.abc import Iterator

from traceq.compare.comparison import Comparison
from traceq.compare.waterfall import Verdict
from traceq.model.units import UNKNOWN, percent_text, size_text, time_text
from traceq.render.compared.words import (
    PART_NAMES,
    cost_text,
    coverage,
    labels,
    run_notes,
    signed,
    titles,
    trend_notes,
    window,
)
from traceq.render.layout import shorten
from traceq.render.markdown import MOST, TITLE, escape, gate_lines, item, table
from traceq.render.words import rate_text
from traceq.report import Row

_NAME = 8


def render(comparison: Comparison) -> str:
    """Returns: the comparison as Markdown."""
    return "\n".join(_lines(comparison)) + "\n"


def _lines(comparison: Comparison) -> Iterator[str]:
    base, *others = titles(comparison, _NAME)
    yield f"## traceq compare: against {escape(shorten(base, TITLE))}"
    yield ""
    for title, cause in zip(others, comparison.causes, strict=True):
        yield from item(f"**{escape(title)}**: {escape(cause['text'])}")
    yield ""
    yield from gate_lines(comparison.gates)
    yield from _runs(comparison)
    yield from _settings(comparison)
    name, *names = map(escape, labels(comparison, _NAME))
    for other, fall in zip(names, comparison.waterfalls, strict=True):
        if fall["parts"]:
            yield from _waterfall(fall, name, other)
    yield from _collectives(comparison)
    yield from _trend(comparison)


def _runs(comparison: Comparison) -> Iterator[str]:
    rows = [
        (
            escape(label),
            coverage(run),
            window(run),
            time_text(run["step_time_ns"]),
            percent_text(run["efficiency"]),
            percent_text(run["exposed_comm_fraction"]),
        )
        for run, label in zip(comparison.runs, labels(comparison, _NAME), strict=True)
    ]
    columns = ("run", ">ranks", "window", ">step time", ">efficiency", ">exposed")
    yield from table(columns, rows)
    for line in run_notes(comparison):
        yield from item(escape(line))
    yield ""


def _settings(comparison: Comparison) -> Iterator[str]:
    if not comparison.settings:
        return
    yield "### Not the same in all runs"
    yield ""
    for row in comparison.settings:
        values = ", ".join(value or UNKNOWN for value in row["values"])
        yield from item(f"{escape(row['setting'])}: {escape(values)}")
    yield ""


def _waterfall(fall: Row, base: str, run: str) -> Iterator[str]:
    yield f"### Where a step of {escape(fall['run'])} goes"
    yield ""
    rows = [(PART_NAMES[part["part"]], *_times(part)) for part in fall["parts"]]
    columns = ("part", f">{base}", f">{run}", ">change")
    yield from table(columns, [*rows, ("step time", *_times(fall))])


def _times(row: Row) -> tuple[str, str, str]:
    noise = " (noise)" if row["verdict"] == Verdict.NOISE else ""
    change = signed(row["difference_ns"]) + noise
    return time_text(row["base_ns"]), time_text(row["run_ns"]), change


def _collectives(comparison: Comparison) -> Iterator[str]:
    if not comparison.collectives:
        return
    yield "### Collectives, most grown first"
    yield ""
    rows = []
    names = [escape(label) for label in labels(comparison, _NAME)]
    for row in comparison.collectives[:MOST]:
        head = (row["op"], size_text(row["bucket_bytes"]))
        for label, entry in zip(names, row["runs"], strict=True):
            rows.append((*head, label, *_entry(entry)))
            head = ("", "")
    columns = ("operation", ">size", "run", ">transfer", ">busbw", ">of peak", ">exposed")
    yield from table(columns, rows)
    yield from item(cost_text(comparison))
    yield ""


def _entry(entry: Row | None) -> tuple[str, str, str, str]:
    if entry is None:
        return "-", "", "", ""
    return (
        time_text(entry["transfer_ns_p50"]),
        rate_text(entry),
        percent_text(entry["efficiency"]),
        time_text(entry["window_exposed_ns"]),
    )


def _trend(comparison: Comparison) -> Iterator[str]:
    if not comparison.trend:
        return
    yield "### Scaling"
    yield ""
    rows = [
        (
            row["op"],
            time_text(row["points"][-1]["exposed_ns"]),
            time_text(row["expected_ns"]),
            signed(row["excess_ns"]),
            time_text(row["predicted_ns"]),
        )
        for row in comparison.trend[:MOST]
    ]
    ranks = comparison.trend[0]["points"][-1]["ranks"]
    columns = ("operation", f">at {ranks}", ">expected", ">beyond", f">at {2 * ranks}")
    yield from table(columns, rows)
    for note in trend_notes(comparison):
        yield from item(escape(note))
