"""A report as a table for people: the answer first, then its window, coverage and parts."""

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from traceq.model.units import UNKNOWN, percent_text, time_text
from traceq.render import across
from traceq.render.gates import gates
from traceq.render.layout import (
    MOST_ROWS,
    SEVERITY_STYLE,
    listed,
    more,
    printed,
    section,
    shorten,
    table_of,
)
from traceq.render.words import PARTS, answer_text, coverage_text, window_text
from traceq.report import Report, Row

_BAR_CELLS = 24
_MOST_NAMES = 3
_STYLES = {"compute_ns": "green", "exposed_comm_ns": "red", "exposed_copy_ns": "yellow"}
_ROLE_STYLE = {"mixed": "yellow", "comm": "red", "compute": "green"}


def render(report: Report, *, color: bool = False) -> str:
    """Returns: the report as text of at most 100 columns.

    Args:
        report: the report.
        color: use terminal colours.
    """
    return printed(Group(*_sections(report)), color=color)


def _sections(report: Report) -> Iterable[RenderableType]:
    yield _headline(report)
    if report.gates:
        yield gates(report.gates)
    yield _parts(report)
    if report.findings:
        yield across.findings(report)
    yield _ranks(report)
    if report.steps:
        yield _steps(report)
    if report.collectives:
        yield across.collectives(report)
    if report.stragglers:
        yield across.stragglers(report)
    if any(row["model_ns"] is not None for row in report.latency_bandwidth):
        yield across.latency(report)
    if report.volume["expected_bytes"] is not None:
        yield across.volume(report)
    yield _streams(report)
    yield _kernels(report)
    if report.diagnostics:
        yield _diagnostics(report)


def _headline(report: Report) -> RenderableType:
    return Group(
        Text.assemble(("traceq report", "bold"), f"  {shorten(report.name, 80)}"),
        "",
        Text(answer_text(report), style="bold"),
        "",
        Text(f"Window    {window_text(report)}"),
        Text(f"Coverage  {coverage_text(report)}"),
        *across.clock_lines(report),
        "",
    )


def _parts(report: Report) -> RenderableType:
    several = len(report.ranks) > 1
    ends = ("least (rank)", "most (rank)") if several else ()
    table = table_of("<", "<", "share", "time", *ends)
    window = report.metrics["window_ns"]
    for label, name in PARTS:
        value = report.metrics[name]
        share = value / window if value is not None and window else None
        bar = Text("█" * round((share or 0) * _BAR_CELLS), style=_STYLES.get(name, "bright_black"))
        held = _ends(report, name) if several else ()
        table.add_row(label, bar, percent_text(share), time_text(value), *held)
    return section("Where the time goes (parts add up to the window)", table)


def _ends(report: Report, part: str) -> tuple[str, str]:
    shares = sorted(
        (row[part] / row["window_ns"], row["rank"])
        for row in report.ranks
        if row[part] is not None and row["window_ns"]
    )
    if not shares:
        return UNKNOWN, UNKNOWN
    least, most = (f"{percent_text(share)} ({rank})" for share, rank in (shares[0], shares[-1]))
    return least, most


def _ranks(report: Report) -> RenderableType:
    table = table_of(
        *("rank", "<from", "<source", "window", "compute", "comm", "hidden", "exposed"),
        *("copies", "idle"),
    )
    for row in report.ranks[:MOST_ROWS]:
        table.add_row(
            str(row["rank"]),
            row["rank_source"],
            Text(shorten(row["source"], 20)),
            *(time_text(row[name]) for name in ("window_ns", "compute_ns", "comm_ns")),
            "-" if row["comm_ns"] == 0 else percent_text(row["overlap_ratio"]),
            *(time_text(row[name]) for name in ("exposed_comm_ns", "copy_ns", "idle_ns")),
        )
    title = "Ranks (over the same window; hidden is a share of comm)"
    return section(title, table, more(len(report.ranks), "ranks"))


def _steps(report: Report) -> RenderableType:
    table = table_of(
        "step", "ranks", "fastest (rank)", "slowest (rank)", "exposed comm, mean of ranks"
    )
    steps: dict[int, list[Row]] = {}
    for row in report.steps:
        steps.setdefault(row["step"], []).append(row)
    for step, rows in list(steps.items())[:MOST_ROWS]:
        windows = sorted((row["window_ns"], row["rank"]) for row in rows)
        exposed = [row["exposed_comm_ns"] for row in rows]
        mean = None if None in exposed else round(sum(exposed) / len(exposed))
        ends = (f"{time_text(ns)} ({rank})" for ns, rank in (windows[0], windows[-1]))
        table.add_row(str(step), str(len(rows)), *ends, time_text(mean))
    median = time_text(report.metrics["step_time_ms"] * 1e6)
    notes = (f"median step of the slowest rank: {median}", more(len(steps), "steps"))
    return section("Steps", table, *notes)


def _streams(report: Report) -> RenderableType:
    table = table_of(
        *("rank", "stream", "<role", "operations", "busy", "share", "comm", "compute"),
    )
    for row in report.streams[:MOST_ROWS]:
        role = row["role"] or UNKNOWN
        table.add_row(
            str(row["rank"]),
            str(row["stream"]),
            Text(role, style=_ROLE_STYLE.get(role, "")),
            f"{row['op_count']:,}",
            time_text(row["busy_ns"]),
            percent_text(row["busy_fraction"]),
            time_text(row["comm_ns"]),
            time_text(row["compute_ns"]),
        )
    mixed = any(row["role"] == "mixed" for row in report.streams)
    note = "mixed: communication and compute share the stream, so they cannot overlap there"
    notes = (more(len(report.streams), "streams"), note if mixed else None)
    return section("Streams (over the capture)", table, *notes)


def _kernels(report: Report) -> RenderableType:
    table = table_of("<class", "calls", "total", "share", "median", "<name")
    for row in report.kernels:
        table.add_row(
            row["class"] or UNKNOWN,
            f"{row['call_count']:,}",
            time_text(row["total_ns"]),
            percent_text(row["total_fraction"]),
            time_text(row["p50_ns"]),
            Text(shorten(row["short_name"], 48)),
        )
    title = "Device operations by total time (over the capture; share of all durations)"
    return section(title, table)


def _diagnostics(report: Report) -> RenderableType:
    lines: list[RenderableType] = [Text("Notes, and what this capture cannot tell", style="bold")]
    for row, files in _grouped(report.diagnostics):
        where = f" [{listed(files, _MOST_NAMES)}]" if files and len(report.sources) > 1 else ""
        message = Table.grid(padding=(0, 1, 0, 0))
        message.add_column(width=7)
        message.add_column()
        message.add_row(
            Text(row["severity"], style=SEVERITY_STYLE[row["severity"]]),
            Text(f"{row['message']}{where}"),
        )
        if row["hint"]:
            message.add_row("", Text(f"→ {row['hint']}", style="dim"))
        lines.append(message)
    return Group(*lines)


def _grouped(diagnostics: list[Row]) -> list[tuple[Row, list[object]]]:
    """Returns: each distinct finding once, with the files it is about."""
    grouped: dict[tuple[str, str], tuple[Row, list[object]]] = {}
    for row in diagnostics:
        files = grouped.setdefault((row["code"], row["message"]), (row, []))[1]
        if row["source"]:
            files.append(row["source"])
    return list(grouped.values())
