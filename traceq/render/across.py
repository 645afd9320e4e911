"""Sections of the text report that need several ranks: bandwidth, stragglers, clocks."""

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from traceq.model.units import UNKNOWN, percent_text, size_text, time_text
from traceq.render.layout import MOST_ROWS, SEVERITY_STYLE, more, section, table_of
from traceq.render.words import (
    VERDICTS,
    chance_text,
    clock_text,
    last_text,
    peak_text,
    rate_text,
)
from traceq.report import Report, reason_text


def collectives(report: Report) -> RenderableType:
    """Returns: each kind of communication with its bandwidths."""
    table = table_of(
        *("<operation", "ranks", "count", "size", "median", "transfer", "waiting"),
        *("algbw", "busbw", "of peak"),
    )
    for row in report.collectives[:MOST_ROWS]:
        table.add_row(
            row["op"],
            str(row["group_size"] or UNKNOWN),
            f"{row['count']:,}",
            size_text(row["bytes_p50"]),
            *(time_text(row[name]) for name in ("duration_ns_p50", "transfer_ns_p50", "wait_ns")),
            *(rate_text(row, name) for name in ("algbw_gbps", "busbw_gbps")),
            peak_text(row),
        )
    title = "Communication (medians; transfer is without waiting; waiting in sum; rates in GB/s)"
    unknown = {row["quality"] for row in report.collectives} - {"measured"}
    above = any((row["efficiency"] or 0) > 1 for row in report.collectives)
    return section(
        title,
        table,
        more(len(report.collectives), "kinds"),
        *(f"{code}: {reason_text(code)}" for code in sorted(unknown)),
        "above 100 %: reduction in the switch (NVLS, SHARP) sends less than a ring"
        if above
        else None,
    )


_STYLES = {True: "red", False: "", None: "yellow"}


def stragglers(report: Report) -> RenderableType:
    """Returns: who arrived late, and what kept it."""
    table = table_of(
        *("rank", "<verdict", "last", "late", "of window", "imposed", "removable", "p", "<cause"),
    )
    for row in report.stragglers[:MOST_ROWS]:
        table.add_row(
            str(row["rank"]),
            Text(VERDICTS[row["straggler"]], style=_STYLES[row["straggler"]]),
            last_text(row),
            time_text(row["lateness_ns"]),
            percent_text(row["straggler_fraction"]),
            *(time_text(row[name]) for name in ("imposed_wait_ns", "removable_ns")),
            chance_text(row["p_value"]),
            row["cause"] or "-",
        )
    title = "Stragglers (late: behind the median peer; imposed: others waited, in sum)"
    partial = any(row["partial"] for row in report.stragglers)
    note = "ranks are missing: a straggler among the others is unknown" if partial else None
    units = " or ".join(sorted({f"{row['unit']}s" for row in report.stragglers}))
    chance = f"p: chance of being later than the median peer in as many {units}"
    return section(title, table, more(len(report.stragglers), "ranks"), note, chance)


def latency(report: Report) -> RenderableType:
    """Returns: the fitted latency and bandwidth by size."""
    table = table_of(
        *("<operation", "ranks", "size", "count", "transfer", "model", "latency", "alpha", "beta"),
    )
    rows = [row for row in report.latency_bandwidth if row["model_ns"] is not None]
    for row in rows[:MOST_ROWS]:
        table.add_row(
            row["op"],
            str(row["group_size"]),
            f"{size_text(row['bucket_bytes'])}+",
            f"{row['collective_count']:,}",
            time_text(row["transfer_ns"]),
            time_text(round(row["model_ns"])),
            percent_text(row["latency_fraction"]),
            f"{time_text(row['alpha_us'] * 1e3)} ±{100 * row['alpha_error_fraction']:.0f} %",
            f"{row['beta_gbps']:.4g} GB/s ±{100 * row['beta_error_fraction']:.0f} %",
        )
    title = "Latency and bandwidth (T = alpha · steps + bytes sent / beta; latency is its share)"
    return section(title, table, more(len(rows), "sizes"))


def volume(report: Report) -> RenderableType:
    """Returns: what each rank sends per step beside what it should."""
    table = table_of("<operation", "ranks", "least per step", "most per step")
    for row in report.volume["by_op"]:
        ends = (row[f"step_wire_bytes_{end}"] for end in ("min", "max"))
        sizes = (UNKNOWN if size is None else size_text(round(size)) for size in ends)
        table.add_row(row["op"], str(row["rank_count"]), *sizes)
    expected = size_text(report.volume["expected_bytes"])
    note = f"data parallel training of this model sends {expected} per step and rank"
    return section("Bytes sent by each rank (ring model)", table, note)


def findings(report: Report) -> RenderableType:
    """Returns: the findings with their advice."""
    lines: list[RenderableType] = [Text("Findings (most time lost first)", style="bold")]
    for row in report.findings[:MOST_ROWS]:
        item = Table.grid(padding=(0, 1, 0, 0))
        item.add_column(width=7)
        item.add_column()
        item.add_row(
            Text(row["severity"], style=SEVERITY_STYLE[row["severity"]]), Text(row["title"])
        )
        lost = row["evidence"]["lost_ns"]
        cost = f"costs {time_text(lost)} in sum over ranks: " if lost else ""
        item.add_row("", Text(f"→ {cost}{row['advice']}", style="dim"))
        lines.append(item)
    return Padding(Group(*lines), (0, 0, 1, 0))


def clock_lines(report: Report) -> list[Text]:
    """Returns: what aligning did to the clocks, nothing where there was nothing to align."""
    text = clock_text(report)
    return [] if text is None else [Text(f"Clocks    {text}")]
