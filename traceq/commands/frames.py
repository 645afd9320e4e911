"""Frames as text: what `query` and `sql` print."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    import polars as pl

FORMATS = ("table", "json", "csv", "parquet")


Command = TypeVar("Command", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--format",
        "form",
        type=click.Choice(FORMATS),
        default="table",
        show_default=True,
        help="How to print rows; json is an array of objects.",
    ),
    click.option(
        "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write to a file."
    ),
)


def format_option(command: Command) -> Command:
    """Returns: the command with the options that choose format and file of the rows."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def write_frame(frame: "pl.DataFrame", form: str, output: Path | None) -> None:
    """Writes rows to stdout or a file in one of `FORMATS`."""
    if form == "parquet":
        if output is None and sys.stdout.isatty():
            message = "parquet is binary: name a file with --output"
            raise click.UsageError(message)
        frame.write_parquet(output or sys.stdout.buffer)
        return
    text = _TEXT[form](frame)
    if output is None:
        click.echo(text)
    else:
        output.write_text(text + "\n", encoding="utf-8")


def _as_table(frame: "pl.DataFrame") -> str:
    import polars as pl

    with pl.Config(
        tbl_rows=-1, tbl_cols=-1, tbl_width_chars=-1, fmt_str_lengths=60, tbl_formatting="NOTHING",
        tbl_hide_dataframe_shape=True, tbl_hide_column_data_types=True, thousands_separator=False,
        set_fmt_table_cell_list_len=-1,
    ):  # fmt: skip
        return str(frame)


def _as_json(frame: "pl.DataFrame") -> str:
    import json

    return json.dumps(frame.to_dicts(), indent=1, ensure_ascii=False, default=str)


def _as_csv(frame: "pl.DataFrame") -> str:
    import polars as pl

    nested = [name for name, dtype in frame.schema.items() if dtype.is_nested()]
    flat = frame.with_columns(
        pl.col(name).map_elements(lambda value: " ".join(map(str, value)), return_dtype=pl.String)
        for name in nested
    )
    return flat.write_csv().removesuffix("\n")


_TEXT = {"table": _as_table, "json": _as_json, "csv": _as_csv}
