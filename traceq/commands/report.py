"""`traceq report`: the main job."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click

from traceq.commands.frames import write_text
from traceq.commands.reading import ReadingFlags, opened, read_options, reading_options
from traceq.errors import TraceqError

if TYPE_CHECKING:
    from traceq.report import Layout, Report

EPILOG = """\
\b
Examples:
  traceq report run.sqlite
  traceq report traces/ --format json --output report.json
  traceq report rank0.sqlite rank1.sqlite --save run.duckdb
"""


@click.command(epilog=EPILOG)
@click.argument("sources", nargs=-1, required=True)
@click.option(
    "--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True,
    help="For people, or for programs.",
)  # fmt: skip
@click.option("--output", type=click.Path(path_type=Path), metavar="FILE", help="Write to a file.")
@click.option(
    "--save", type=click.Path(path_type=Path), metavar="RUN.duckdb", help="Keep the run file."
)
@click.option("--name", help="Name of the run.")
@click.option(
    "--params",
    type=click.FloatRange(min=1),
    metavar="N",
    help="Parameters of a data-parallel model, to compare what each step sends: 7e9.",
)
@click.option("--param-dtype", default="bfloat16", show_default=True, help="Their gradients' type.")
@click.option(
    "--allow-incomplete", is_flag=True, help="Exit 0 although a source is missing or cut."
)
@reading_options
@click.pass_context
def report(
    context: click.Context,
    /,
    *,
    sources: tuple[str, ...],
    form: str,
    output: Path | None,
    save: Path | None,
    name: str | None,
    params: float | None,
    param_dtype: str,
    allow_incomplete: bool,
    jobs: int | None,
    **reading: Unpack[ReadingFlags],
) -> None:
    """Reads SOURCES and reports where each rank's time goes.

    SOURCES are torch.profiler traces, Nsight Systems SQLite exports (each plain, gzip or zstd),
    reports that nsys can export, folders or patterns of them, or one saved run file. Exit status: 0
    judged, 2 could not be judged: a source could not be read or is incomplete.
    """
    from traceq.report import build_report

    if output is not None and any(
        Path(source).absolute() == output.absolute() for source in sources
    ):
        message = f"{output.name}: is a source: write the report to another file"
        raise TraceqError(message)
    options = read_options(**reading)
    layout = _layout(params, param_dtype)
    with opened(sources, options=options, name=name, save=save, jobs=jobs) as (run, failures):
        built = build_report(run, layout)
    write_text(_rendered(built, form, to_file=output is not None), output)
    for failure in failures:
        click.echo(f"traceq: {failure}", err=True)
    if not built.complete and not allow_incomplete:
        if not failures:
            click.echo(
                "traceq: a source is incomplete: read the notes, or pass --allow-incomplete",
                err=True,
            )
        context.exit(2)


_MOST_PARAMETERS = 1e15


def _layout(params: float | None, dtype: str) -> "Layout | None":
    from traceq.model.dtypes import element_bytes
    from traceq.report import Layout

    if params is None:
        return None
    if not params <= _MOST_PARAMETERS:
        message = f"--params {params}: must be a number of parameters, as in 7e9"
        raise TraceqError(message)
    size = element_bytes(dtype)
    if size is None:
        message = f"--param-dtype {dtype}: not an element type; try float32, bfloat16, half"
        raise TraceqError(message)
    return Layout(round(params), size)


def _rendered(built: "Report", form: str, *, to_file: bool) -> str:
    if form == "json":
        from traceq.render import json

        return json.render(built) + "\n"
    from traceq.render import table

    terminal = not to_file and sys.stdout.isatty()
    return table.render(built, color=terminal)
