"""A report as Markdown for a pull request or a step summary: the verdict first, in 80 columns."""

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence

from traceq.gates import gate_text
from traceq.model.units import UNKNOWN, percent_text, size_text, time_text
from traceq.render.layout import clean, counted, shorten
from traceq.render.words import (
    PARTS,
    answer_text,
    coverage_text,
    rate_text,
    sentence,
    window_text,
)
from traceq.report import Report, Row, reason_text

WIDTH = 80
MOST = 5
TITLE = 50  # characters of a name in a heading
_MARKS = {True: "✅", False: "❌", None: "⚠️"}
_SPECIAL = re.compile(r"([\\`*\[\]#|~]|(?<!\w)_|_(?!\w))")


def render(report: Report) -> str:
    """Returns: the report as Markdown."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Report) -> Iterator[str]:
    yield f"## traceq report: {escape(shorten(report.name, TITLE))}"
    yield ""
    yield from wrapped(f"**{escape(answer_text(report))}**")
    yield ""
    yield from gate_lines(report.gates)
    yield from item(f"Window: {escape(window_text(report))}")
    yield from item(f"Coverage: {escape(coverage_text(report))}")
    yield ""
    yield from _parts(report)
    yield from _findings(report)
    if report.collectives:
        yield from _collectives(report)
    if report.stragglers:
        yield from _stragglers(report)
    yield from _notes(report)


def gate_lines(gates: Sequence[Row]) -> Iterator[str]:
    """Yields: one item per gate, with its verdict and value."""
    for row in gates:
        where = f"{escape(row['run'])}: " if "run" in row else ""
        verdict = "not judged: " if row["passed"] is None else ""
        text = escape(gate_text(row))
        yield from item(f"{_MARKS[row['passed']]} {where}`{row['expr']}`: {verdict}{text}")
    if gates:
        yield ""


def _parts(report: Report) -> Iterator[str]:
    window = report.metrics["window_ns"]
    rows = []
    for label, name in PARTS:
        value = report.metrics[name]
        share = value / window if value is not None and window else None
        rows.append((label, percent_text(share), time_text(value)))
    yield from table(("where the time goes", ">share", ">in sum over ranks"), rows)


def _findings(report: Report) -> Iterator[str]:
    if not report.findings:
        return
    yield "### Findings"
    yield ""
    for row in report.findings[:MOST]:
        yield from item(f"{escape(row['title'])}. {escape(sentence(row['advice']))}")
    yield from _more(len(report.findings), "findings")
    yield ""


def _collectives(report: Report) -> Iterator[str]:
    yield "### Communication"
    yield ""
    rows = [
        (
            row["op"],
            str(row["group_size"] or UNKNOWN),
            size_text(row["bytes_p50"]),
            time_text(row["transfer_ns_p50"]),
            rate_text(row),
            percent_text(row["efficiency"]),
        )
        for row in report.collectives[:MOST]
    ]
    columns = ("operation", ">ranks", ">size", ">transfer", ">busbw GB/s", ">of peak")
    yield from table(columns, rows)
    yield from _more(len(report.collectives), "kinds")


def _stragglers(report: Report) -> Iterator[str]:
    named = [row for row in report.stragglers if row["straggler"]]
    yield "### Stragglers"
    yield ""
    if not named:
        open_ = any(row["straggler"] is None for row in report.stragglers)
        why = reason_text(report.reasons.get("straggler_fraction"))
        yield from wrapped(
            f"Unknown: {escape(why)}." if open_ else "No rank is late by more than chance."
        )
        yield ""
        return
    rows = [
        (
            str(row["rank"]),
            time_text(row["lateness_ns"]),
            percent_text(row["straggler_fraction"]),
            time_text(row["imposed_wait_ns"]),
            row["cause"] or UNKNOWN,
        )
        for row in named[:MOST]
    ]
    yield from table((">rank", ">late", ">of its window", ">others waited", "cause"), rows)
    yield from _more(len(named), "stragglers")


def _notes(report: Report) -> Iterator[str]:
    notes = [row for row in report.diagnostics if row["severity"] != "info"]
    told = dict.fromkeys(row["message"] for row in notes)
    if not told:
        return
    yield f"<details><summary>{counted(len(told), 'note')} on this capture</summary>"
    yield ""
    for message in told:
        yield from item(escape(message))
    yield ""
    yield "</details>"


def _more(count: int, what: str) -> Iterator[str]:
    if count > MOST:
        yield f"... and {count - MOST} more {what}"
        yield ""


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yields: the lines of a table, padded to be read as text too.

    Args:
        columns: headings; one that begins with `>` is right-aligned.
        rows: cells of each row, escaped where they are of the user.
    """
    heads = [column.removeprefix(">") for column in columns]
    right = [column.startswith(">") for column in columns]
    cells = [heads, *(list(row) for row in rows)]
    widths = [max(3, *(len(row[k]) for row in cells)) for k in range(len(heads))]
    rule = [f"{'-' * (w - 1)}:" if r else "-" * w for w, r in zip(widths, right, strict=True)]
    for row in (cells[0], rule, *cells[1:]):
        padded = (
            text.rjust(width) if aligned else text.ljust(width)
            for text, width, aligned in zip(row, widths, right, strict=True)
        )
        yield f"| {' | '.join(padded)} |"
    yield ""


def item(text: str) -> Iterator[str]:
    """Yields: the lines of one list item."""
    yield from textwrap.wrap(text, WIDTH, initial_indent="- ", subsequent_indent="  ",
                             break_on_hyphens=False)  # fmt: skip


def wrapped(text: str) -> Iterator[str]:
    """Yields: the lines of a paragraph."""
    yield from textwrap.wrap(text, WIDTH, break_on_hyphens=False)


def escape(text: str) -> str:
    r"""Returns: a text that Markdown and HTML show as it is.

    >>> print(escape("a|b <script> [x](y) all_reduce"))
    a\|b &lt;script&gt; \[x\](y) all_reduce
    """
    plain = clean(text).replace("&", "&amp;").replace("<", "&lt;")
    return _SPECIAL.sub(r"\\\1", plain.replace(">", "&gt;"))
