"""How sections of a text report are laid out."""

import io
import re

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

WIDTH = 100
MOST_ROWS = 12
SEVERITY_STYLE = {"error": "bold red", "warning": "yellow", "info": "cyan"}
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def printed(what: RenderableType, *, color: bool) -> str:
    """Returns: what a console of `WIDTH` columns prints, without spaces at the ends of lines."""
    out = io.StringIO()
    console = Console(
        file=out,
        width=WIDTH,
        force_terminal=color,
        color_system="standard" if color else None,
        highlight=False,
    )
    console.print(what)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def counted(count: int, what: str) -> str:
    """Returns: a number of things, in the plural where it is not one."""
    return f"{count} {what}{'s' * (count != 1)}"


def listed(values: list[object], most: int = 8) -> str:
    """Returns: the first of several values."""
    return ", ".join(map(str, values[:most])) + (", ..." if len(values) > most else "")


def table_of(*columns: str) -> Table:
    """Returns: an empty table; a column is right-aligned unless its name begins with `<`.

    Where all do not fit, texts on the left are broken into lines, and numbers stay whole.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in columns:
        table.add_column(
            column.removeprefix("<"),
            justify="left" if column.startswith("<") else "right",
            no_wrap=not column.startswith("<"),
            overflow="ellipsis",
        )
    return table


def section(title: str, table: Table, *notes: str | None) -> RenderableType:
    """Returns: a table under its heading, with notes below it."""
    heading, _, scope = title.partition(" (")
    lines = [Text(note, style="dim") for note in notes if note]
    head = Text.assemble((heading, "bold"), (f" ({scope}" if scope else "", "dim"))
    return Padding(Group(head, table, *lines), (0, 0, 1, 0))


def more(count: int, what: str) -> str | None:
    """Returns: the note that not all rows are shown, None when they are."""
    hidden = count - MOST_ROWS
    return f"... and {hidden} more {what}: see --format json" if hidden > 0 else None


def clean(text: str) -> str:
    """Returns: a text without control characters."""
    return _CONTROL.sub("\ufffd", text)


def shorten(text: str, most: int) -> str:
    """Returns: a text of at most so many characters, without control characters."""
    text = clean(text)
    return text if len(text) <= most else text[: most - 1] + "…"
