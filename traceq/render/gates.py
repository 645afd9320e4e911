"""The gates of a report or comparison, in words."""

from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from traceq.gates import gate_text
from traceq.render.layout import section, table_of
from traceq.report import Row

WORDS = {True: "passed", False: "FAILED", None: "not judged"}
_STYLES = {True: "green", False: "bold red", None: "yellow"}


def gates(rows: Sequence[Row]) -> RenderableType:
    """Returns: one line per gate: its verdict, condition and value."""
    several = any("run" in row for row in rows)
    table = table_of("<", *(("<run",) if several else ()), "<fails when", "<value")
    for row in rows:
        table.add_row(
            Text(WORDS[row["passed"]], style=_STYLES[row["passed"]]),
            *((Text(row["run"]),) if several else ()),
            Text(row["expr"]),
            Text(gate_text(row), overflow="fold"),
        )
    table.columns[-1].no_wrap = False
    return section("Gates", table)
