"""`traceq report`: the main job."""

from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click

from traceq.commands.frames import write_text
from traceq.commands.reading import ReadingFlags, opened, read_options, reading_options
from traceq.commands.rendering import end, gates_of, judging_options, rendered
from traceq.errors import TraceqError

if TYPE_CHECKING:
    from traceq.report import Layout

EPILOG = """\
\b
Examples:
  traceq report run.sqlite
  traceq report traces/ --format json --output report.json
  traceq report rank0.sqlite rank1.sqlite --save run.duckdb
  traceq report traces/ --fail-on 'exposed_comm_fraction > 20%' --format markdown
"""


@click.command(epilog=EPILOG)
@click.argument("sources", nargs=-1, required=True)
@judging_options
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
@reading_options
def report(
    *,
    sources: tuple[str, ...],
    form: str,
    output: Path | None,
    fail_on: tuple[str, ...],
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
    reports that nsys can export, folders or patterns of them, or one saved run: its file, or its
    name in the store. Exit status: 0 judged and fine, 1 a gate failed, 2 could not be judged: a
    source could not be read or is incomplete, or a gate is on a value that is not known.
    """
    from traceq.config import load_gates
    from traceq.gates import judge_report
    from traceq.report import build_report

    if output is not None and any(
        Path(source).absolute() == output.absolute() for source in sources
    ):
        message = f"{output.name}: is a source: write the report to another file"
        raise TraceqError(message)
    options = read_options(**reading)
    gates = gates_of(fail_on, load_gates(reading["config"]))
    layout = _layout(params, param_dtype)
    with opened(sources, options=options, name=name, save=save, jobs=jobs) as (run, failures):
        built = judge_report(build_report(run, layout), gates, incomplete_ok=allow_incomplete)
    write_text(rendered(built, form, to_file=output is not None), output)
    end(built, failures, allow_incomplete=allow_incomplete)


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
