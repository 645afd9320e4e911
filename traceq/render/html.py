"""A report as one HTML file with pictures, which asks the network for nothing."""

from collections.abc import Iterator, Sequence
from xml.etree.ElementTree import Element

from traceq.gates import gate_text
from traceq.model.units import UNKNOWN, percent_text, size_text, time_text
from traceq.render.gates import WORDS
from traceq.render.layout import MOST_ROWS
from traceq.render.page import element, items, page, section, table
from traceq.render.picture import Series, curves, stacked_bars
from traceq.render.words import (
    PARTS,
    VERDICTS,
    answer_text,
    chance_text,
    coverage_text,
    last_text,
    rate_text,
    sentence,
    window_text,
)
from traceq.report import Report, Row, reason_text

_CLASSES = {True: "good", False: "bad", None: "open"}
_SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_MOST_BARS = 64


def render(report: Report) -> str:
    """Returns: the report as HTML."""
    return page(f"traceq report: {report.name}", *_sections(report))


def _sections(report: Report) -> Iterator[Element | None]:
    yield element("h1", f"traceq report: {report.name}")
    yield element("p", answer_text(report), class_="answer")
    yield items((f"Window: {window_text(report)}", f"Coverage: {coverage_text(report)}"))
    yield gates(report.gates)
    yield _parts(report)
    if report.findings:
        yield section("Findings, most time lost first", items(map(_finding, report.findings)))
    yield _steps(report)
    yield _bandwidth(report)
    yield _collectives(report)
    yield _stragglers(report)
    yield _notes(report)


def gates(rows: Sequence[Row]) -> Element | None:
    """Returns: the gates with their verdicts, None without gates."""
    if not rows:
        return None
    several = any("run" in row for row in rows)
    cells = [
        [
            element("span", WORDS[row["passed"]], class_=_CLASSES[row["passed"]]),
            *([row["run"]] if several else []),
            element("code", row["expr"]),
            gate_text(row),
        ]
        for row in rows
    ]
    columns = ["verdict", *(["run"] if several else []), "fails when", "value"]
    return section("Gates", table(columns, cells))


def _parts(report: Report) -> Element:
    window = report.metrics["window_ns"]
    rows = []
    for label, name in PARTS:
        value = report.metrics[name]
        share = value / window if value is not None and window else None
        rows.append((label, percent_text(share), time_text(value)))
    told = [row for row in report.ranks if None not in {row[name] for _, name in PARTS}]
    bars = [
        (
            f"rank {row['rank']}",
            [(name.removesuffix("_ns"), row[name], label) for label, name in PARTS],
        )
        for row in told[:_MOST_BARS]
    ]
    picture = stacked_bars(bars, time_text, "Where the time of each rank goes") if bars else None
    hidden = len(told) - _MOST_BARS
    return section(
        "Where the time goes",
        picture,
        element("p", f"... and {hidden} more ranks", class_="dim") if hidden > 0 else None,
        table(("part", ">share", ">in sum over ranks"), rows, "the parts add up to the window"),
    )


def _finding(row: Row) -> Element:
    cost = row["evidence"]["lost_ns"]
    lost = f"costs {time_text(cost)} in sum over ranks: " if cost else ""
    advice = element("span", f"{lost}{sentence(row['advice'])}", class_="dim")
    return element("span", sentence(row["title"]), element("br"), advice)


def _steps(report: Report) -> Element | None:
    slowest: dict[int, Row] = {}
    for row in report.steps:
        if row["window_ns"] >= slowest.get(row["step"], row)["window_ns"]:
            slowest[row["step"]] = row
    rows = list(slowest.values())
    told = [row for row in rows if None not in {row[name] for _, name in PARTS}]
    if not told:
        return None
    bars = [
        (
            f"step {row['step']} (rank {row['rank']})",
            [(name.removesuffix("_ns"), row[name], label) for label, name in PARTS],
        )
        for row in told[:_MOST_BARS]
    ]
    median = time_text(report.metrics["step_time_ms"] * 1e6)
    note = f"the slowest rank of each step; their median is {median}"
    if len(told) > _MOST_BARS:
        note += f"; the first {_MOST_BARS} of {len(told)} steps"
    return section(
        "Steps", stacked_bars(bars, time_text, "Each step"), element("p", note, class_="dim")
    )


def _bandwidth(report: Report) -> Element | None:
    points: dict[tuple[str, int, str], list[Row]] = {}
    for row in report.collectives:
        if row["busbw_gbps"] is not None:
            points.setdefault((row["op"], row["group_size"], row["link"]), []).append(row)
    series: list[Series] = []
    for color, ((op, ranks, link), rows) in zip(_SERIES, points.items(), strict=False):
        ordered = sorted(rows, key=lambda row: row["bytes_p50"])
        name = f"{op} on {ranks} ({link})"
        series.append((name, color, [(r["bytes_p50"], r["busbw_gbps"]) for r in ordered], False))
        peaks = [(r["bytes_p50"], r["peak_gbps"]) for r in ordered if r["peak_gbps"] is not None]
        if len(peaks) > 1:
            series.append((f"peak of {op}", color, peaks, True))
    if not series:
        return None
    picture = curves(
        series, lambda size: size_text(round(size)), lambda rate: f"{rate:.4g} GB/s",
        "Bus bandwidth by size",
    )  # fmt: skip
    return section("Bus bandwidth by message size", picture)


def _collectives(report: Report) -> Element | None:
    if not report.collectives:
        return None
    rows = [
        (
            row["op"],
            str(row["group_size"] or UNKNOWN),
            row["link"],
            f"{row['count']:,}",
            size_text(row["bytes_p50"]),
            time_text(row["transfer_ns_p50"]),
            time_text(row["wait_ns"]),
            rate_text(row, "algbw_gbps"),
            rate_text(row),
            percent_text(row["efficiency"]),
            row["peak_source"] or UNKNOWN,
            row["quality"],
        )
        for row in report.collectives
    ]
    columns = (
        *("operation", ">ranks", "link", ">count", ">size", ">transfer", ">waiting"),
        *(">algbw", ">busbw", ">of peak", "peak of", "quality"),
    )
    caption = "sizes and transfers are medians, waiting is in sum over ranks, rates are in GB/s"
    return section("Communication", table(columns, rows, caption))


def _stragglers(report: Report) -> Element | None:
    if not report.stragglers:
        return None
    rows = [
        (
            str(row["rank"]),
            element("span", VERDICTS[row["straggler"]], class_="bad" if row["straggler"] else ""),
            last_text(row),
            time_text(row["lateness_ns"]),
            percent_text(row["straggler_fraction"]),
            time_text(row["imposed_wait_ns"]),
            chance_text(row["p_value"]),
            row["cause"] or "-",
        )
        for row in report.stragglers[: 4 * MOST_ROWS]
    ]
    columns = (
        *(">rank", "verdict", ">last", ">late", ">of window", ">others waited", ">p", "cause"),
    )
    caption = "late: behind the median peer; others waited: in sum, where it was last"
    return section("Stragglers", table(columns, rows, caption))


def _notes(report: Report) -> Element | None:
    told = {(row["severity"], row["message"], row["hint"]): None for row in report.diagnostics}
    if not told:
        return None
    lines = [
        element("span", f"{severity}: {message}", element("br"),
                element("span", hint or "", class_="dim"))
        for severity, message, hint in told
    ]  # fmt: skip
    unknown = [f"{name}: {reason_text(code)}" for name, code in sorted(report.reasons.items())]
    return section("Notes, and what this capture cannot tell", items([*lines, *unknown]))
