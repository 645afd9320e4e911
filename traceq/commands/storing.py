"""What every command on the store shares: which store, and how rows are printed."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

CATALOG_HELP = """
The catalog is a SQLite file in the store, or the database that the environment variable
TRACEQ_CATALOG names, as in postgresql://USER@HOST/DATABASE (pip install 'traceq[postgres]').
"""

store_option = click.option(
    "--store",
    "folder",
    type=click.Path(path_type=Path),
    envvar="TRACEQ_STORE",
    show_envvar=True,
    metavar="DIR",
    help="Folder of the store. [default: ~/.local/share/traceq]",
)
rows_option = click.option(
    "--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True,
    help="For people, or for programs.",
)  # fmt: skip


def at_terminal() -> bool:
    """Returns: whether rows are read by people, who get colours."""
    return sys.stdout.isatty()
