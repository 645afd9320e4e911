"""A comparison as one HTML file with pictures, which asks the network for nothing."""

from collections.abc import Iterator
from xml.etree.ElementTree import Element

from traceq.compare.comparison import Comparison
from traceq.compare.waterfall import Verdict
from traceq.model.units import UNKNOWN, percent_text, size_text, time_text
from traceq.render.compared.words import (
    PART_NAMES,
    cost_text,
    coverage,
    run_notes,
    signed,
    trend_notes,
    window,
)
from traceq.render.html import gates
from traceq.render.page import COLORS, element, items, page, section, table
from traceq.render.picture import Series, curves, stacked_bars, waterfall
from traceq.render.words import rate_text
from traceq.report import Row

_CLASSES = {Verdict.MORE: "bad", Verdict.LESS: "good", Verdict.NOISE: "open"}


def render(comparison: Comparison) -> str:
    """Returns: the comparison as HTML."""
    base = comparison.runs[0]["name"]
    return page(f"traceq compare: against {base}", *_sections(comparison))


def _sections(comparison: Comparison) -> Iterator[Element | None]:
    yield element("h1", f"traceq compare: against {comparison.runs[0]['name']}")
    for cause in comparison.causes:
        yield element(
            "p", element("span", f"{cause['run']}: ", class_="dim"), cause["text"], class_="answer"
        )
    yield gates(comparison.gates)
    yield _runs(comparison)
    if comparison.settings:
        yield _settings(comparison)
    yield from map(_waterfall, comparison.waterfalls)
    yield _trend(comparison)
    if comparison.collectives:
        yield _collectives(comparison)
    yield _stragglers(comparison)


def _runs(comparison: Comparison) -> Element:
    rows = [
        (
            run["name"],
            coverage(run),
            UNKNOWN if run["nodes"] is None else str(run["nodes"]),
            window(run),
            time_text(run["step_time_ns"]),
            time_text(run["step_spread_ns"]),
            percent_text(run["efficiency"]),
            percent_text(run["comm_fraction"]),
            percent_text(run["exposed_comm_fraction"]),
            percent_text(run["overlap_ratio"]),
        )
        for run in comparison.runs
    ]
    bars = [
        (run["name"], [(part, ns, PART_NAMES[part]) for part, ns in run["parts"].items() if ns > 0])
        for run in comparison.runs
        if run["parts"]
    ]
    columns = (
        *("run", ">ranks", ">hosts", "window", ">step time", ">spread", ">efficiency"),
        *(">comm", ">exposed", ">hidden"),
    )
    notes = run_notes(comparison)
    return section(
        "Runs",
        stacked_bars(bars, time_text, "What the step of each run is made of") if bars else None,
        table(columns, rows, "; ".join(notes)),
    )


def _settings(comparison: Comparison) -> Element:
    names = [run["name"] for run in comparison.runs]
    rows = [
        (r["setting"], *(value or UNKNOWN for value in r["values"])) for r in comparison.settings
    ]
    return section("Not the same in all runs", table(("setting", *names), rows))


def _waterfall(fall: Row) -> Element | None:
    if not fall["parts"]:
        return None
    rows = [
        (
            PART_NAMES.get(row.get("part"), "step time"),
            time_text(row["base_ns"]),
            time_text(row["run_ns"]),
            element("span", signed(row["difference_ns"]), class_=_CLASSES.get(row["verdict"], "")),
            time_text(row["noise_ns"]),
            row["verdict"],
        )
        for row in (*fall["parts"], fall)
    ]
    picture = waterfall(
        (fall["base"], fall["base_ns"]),
        [(p["part"], p["difference_ns"], PART_NAMES[p["part"]]) for p in fall["parts"]],
        (fall["run"], fall["run_ns"]),
        time_text,
        f"From the step of {fall['base']} to that of {fall['run']}",
    )
    columns = ("part", f">{fall['base']}", f">{fall['run']}", ">difference", ">noise", "verdict")
    caption = "medians over steps of the mean rank; noise is how far steps lie apart in one run"
    return section(
        f"From a step of {fall['base']} to one of {fall['run']}",
        picture,
        table(columns, rows, caption),
    )


def _trend(comparison: Comparison) -> Element | None:
    if not comparison.trend:
        return None
    series: list[Series] = []
    for color, row in zip(list(COLORS.values())[::2], comparison.trend, strict=False):
        measured = [(point["ranks"], point["exposed_ns"]) for point in row["points"]]
        fitted = [(point["ranks"], point["fit_ns"]) for point in row["points"]]
        series.append((row["op"], color, measured, False))
        ahead = (row["predicted_ranks"], row["predicted_ns"])
        series.append((f"{row['op']}, ring", color, [*fitted, ahead], True))
    picture = curves(
        series, lambda ranks: f"{ranks:g} ranks", time_text, "Exposed transfer by ranks"
    )
    return section("Scaling: exposed transfer of a rank in a step", picture,
                   items(trend_notes(comparison)))  # fmt: skip


def _collectives(comparison: Comparison) -> Element:
    rows = []
    for row in comparison.collectives:
        head = (row["op"], size_text(row["bucket_bytes"]))
        for run, entry in zip(comparison.runs, row["runs"], strict=True):
            rows.append((*head, run["name"], *_entry(entry)))
            head = ("", "")
    columns = (
        *("operation", ">size", "run", ">group", "link", ">calls", ">transfer", ">waiting"),
        *(">busbw", ">of peak", ">exposed"),
    )
    return section("Collectives, most grown first", table(columns, rows, cost_text(comparison)))


def _entry(entry: Row | None) -> tuple["str | Element", ...]:
    if entry is None:
        return ("-", *[""] * 7)
    return (
        str(entry["group_size"] or UNKNOWN),
        entry["link"],
        UNKNOWN if entry["window_calls"] is None else f"{entry['window_calls']:.4g}",
        element("span", time_text(entry["transfer_ns_p50"]),
                class_=_CLASSES.get(entry["verdict"], "")),
        time_text(entry["wait_ns_mean"]),
        rate_text(entry),
        percent_text(entry["efficiency"]),
        time_text(entry["window_exposed_ns"]),
    )  # fmt: skip


def _stragglers(comparison: Comparison) -> Element | None:
    if not comparison.stragglers:
        return None
    rows = [
        (
            row["run"],
            str(row["rank"]),
            time_text(row["lateness_ns"]),
            percent_text(row["straggler_fraction"]),
            time_text(row["imposed_wait_ns"]),
            row["cause"] or UNKNOWN,
        )
        for row in comparison.stragglers
    ]
    columns = ("run", ">rank", ">late", ">of window", ">others waited", "cause")
    return section("Stragglers", table(columns, rows))
