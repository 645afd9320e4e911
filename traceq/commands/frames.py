"""Frames as text: what `query` and `sql` print."""

import io
import json
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from traceq.errors import TraceqError

if TYPE_CHECKING:
    import polars as pl

FORMATS = ("table", "json", "csv", "parquet")


Command = TypeVar("Command", bound=Callable[..., Any])

output_option = click.option(
    "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write to a file."
)
_OPTIONS = (
    click.option(
        "--format",
        "form",
        type=click.Choice(FORMATS),
        default="table",
        show_default=True,
        help="How to print rows; json is an array of objects.",
    ),
    output_option,
)


def format_option(command: Command) -> Command:
    """Returns: the command with the options that choose format and file of the rows."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def write_frame(frame: "pl.DataFrame", form: str, output: Path | None) -> None:
    """Writes rows to stdout or a file in one of `FORMATS`.

    Raises:
        TraceqError: the file cannot be written.
    """
    if form != "parquet":
        write_text(_TEXT[form](frame) + "\n", output)
        return
    if output is None and sys.stdout.isatty():
        message = "parquet is binary: name a file with --output"
        raise click.UsageError(message)
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    if output is None:
        sys.stdout.buffer.write(buffer.getvalue())
    else:
        with _written(output):
            output.write_bytes(buffer.getvalue())


def write_text(text: str, output: Path | None) -> None:
    """Writes text to stdout or a file.

    Raises:
        TraceqError: the file cannot be written.
    """
    if output is None:
        click.echo(text, nl=False)
    else:
        with _written(output):
            output.write_text(text, encoding="utf-8")


@contextmanager
def _written(output: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        message = f"{output.name}: cannot be written: {error.strerror}"
        raise TraceqError(message) from error


def _as_table(frame: "pl.DataFrame") -> str:
    import polars as pl

    with pl.Config(
        tbl_rows=-1, tbl_cols=-1, tbl_width_chars=-1, fmt_str_lengths=60, tbl_formatting="NOTHING",
        tbl_hide_dataframe_shape=True, tbl_hide_column_data_types=True, thousands_separator=False,
        set_fmt_table_cell_list_len=-1,
    ):  # fmt: skip
        return str(frame)


def _as_json(frame: "pl.DataFrame") -> str:
    return json.dumps(_plain(frame.to_dicts()), indent=1, ensure_ascii=False, default=str)


def _plain(value: Any) -> Any:  # noqa: ANN401
    """Returns: a value as JSON has it: whole decimals are integers, NaN and infinity are null."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _as_csv(frame: "pl.DataFrame") -> str:
    import polars as pl

    odd = [name for name, kind in frame.schema.items() if kind.is_nested() or kind == pl.Binary]
    flat = frame.with_columns(
        pl.Series(
            name,
            [
                None if each is None else json.dumps(_plain(each), default=str)
                for each in frame[name].to_list()
            ],
            dtype=pl.String,
        )
        for name in odd
    )
    return flat.write_csv().removesuffix("\n")


_TEXT = {"table": _as_table, "json": _as_json, "csv": _as_csv}
