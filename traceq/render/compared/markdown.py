"""A comparison as Markdown for a pull request or a step summary, in 80 columns."""

from collections.abc import Iterator

from traceq.compare.comparison import Comparison
from traceq.compare.waterfall import Verdict
from traceq.model.units import UNKNOWN, percent_text, size_text, time_text
from traceq.render.compared.words import (
    PART_NAMES,
    coverage,
    missing_efficiency,
    scaling_text,
    signed,
    trend_notes,
    window,
)
from traceq.render.layout import shorten
from traceq.render.markdown import MOST, escape, gate_lines, item, rate, table
from traceq.report import Row

_NAME = 12


def render(comparison: Comparison) -> str:
    """Returns: the comparison as Markdown."""
    return "\n".join(_lines(comparison)) + "\n"


def _lines(comparison: Comparison) -> Iterator[str]:
    yield f"## traceq compare: against {escape(comparison.runs[0]['name'])}"
    yield ""
    for cause in comparison.causes:
        yield from item(f"**{escape(cause['run'])}**: {escape(cause['text'])}")
    yield ""
    yield from gate_lines(comparison.gates)
    yield from _runs(comparison)
    yield from _settings(comparison)
    for fall in comparison.waterfalls:
        if fall["parts"]:
            yield from _waterfall(fall)
    yield from _collectives(comparison)
    yield from _trend(comparison)


def _name(name: str) -> str:
    return escape(shorten(name, _NAME))


def _runs(comparison: Comparison) -> Iterator[str]:
    rows = [
        (
            _name(run["name"]),
            coverage(run),
            window(run),
            time_text(run["step_time_ns"]),
            percent_text(run["efficiency"]),
            percent_text(run["exposed_comm_fraction"]),
        )
        for run in comparison.runs
    ]
    columns = ("run", ">ranks", "window", ">step time", ">efficiency", ">exposed")
    yield from table(columns, rows)
    yield from item(f"Efficiency: {escape(scaling_text(comparison))}.")
    for line in missing_efficiency(comparison):
        yield from item(f"Efficiency {escape(line)}.")
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


def _waterfall(fall: Row) -> Iterator[str]:
    yield f"### Where a step of {escape(fall['run'])} goes"
    yield ""
    rows = [(PART_NAMES[part["part"]], *_times(part)) for part in fall["parts"]]
    columns = ("part", f">{_name(fall['base'])}", f">{_name(fall['run'])}", ">change")
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
    for row in comparison.collectives[:MOST]:
        head = (row["op"], size_text(row["bucket_bytes"]))
        for run, entry in zip(comparison.runs, row["runs"], strict=True):
            rows.append((*head, _name(run["name"]), *_entry(entry)))
            head = ("", "")
    columns = ("operation", ">size", "run", ">transfer", ">busbw", ">of peak", ">exposed")
    yield from table(columns, rows)
    yield from item(
        "transfer and busbw (GB/s) are medians; of peak: of each run's own link; exposed is time "
        "of a rank in a step"
    )
    yield ""


def _entry(entry: Row | None) -> tuple[str, str, str, str]:
    if entry is None:
        return "-", "", "", ""
    return (
        time_text(entry["transfer_ns_p50"]),
        rate(entry),
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
