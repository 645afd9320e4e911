"""`traceq export`: a run for other tools."""

import gzip
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedWriter
from pathlib import Path

import click

from traceq.commands.reading import opened, progress
from traceq.errors import TraceqError

EPILOG = """\
\b
Examples:
  traceq export run.duckdb --to perfetto --steps 10-12
  traceq export traces/ --to perfetto --output night.json.gz
  traceq export run.duckdb --to parquet --output tables/
"""

_STEPS = re.compile(r"(\d+)(?:-(\d+))?")


@click.command(epilog=EPILOG)
@click.argument("run", nargs=-1, required=True)
@click.option(
    "--to",
    "form",
    type=click.Choice(("perfetto", "parquet")),
    required=True,
    help="perfetto: trace events of all ranks on aligned clocks, which ui.perfetto.dev opens; "
    "parquet: each table of the run as a file.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="File, compressed where it ends in .gz, or folder of the tables. "
    "[default: the name of the run]",
)
@click.option(
    "--steps",
    metavar="FIRST[-LAST]",
    help="Only the time of these training steps, from their first begin to their last end.",
)
def export(*, run: tuple[str, ...], form: str, output: Path | None, steps: str | None) -> None:
    """Writes RUN for other tools: a saved run file, the name of a stored run, or sources."""
    if form == "parquet" and steps is not None:
        message = "--steps chooses a part of a timeline: use it with --to perfetto"
        raise click.UsageError(message)
    chosen = None if steps is None else _steps(steps)

    from traceq.export import steps_window, trace_events, write_tables
    from traceq.runfile import Run

    def timeline(run: Run, path: Path) -> None:
        window = () if chosen is None else steps_window(run, *chosen)
        with _built(path) as part, progress("writing") as told, _file(part) as file:
            for piece in trace_events(run, *window, on_progress=told):
                file.write(piece)

    def tables(run: Run, path: Path) -> None:
        with _built(path) as part, progress("writing") as told:
            part.mkdir()
            write_tables(run, part, on_progress=told)

    with opened(run) as (opened_run, failures):
        name = opened_run.name.removesuffix(".duckdb")
        stem = re.sub(r"[^\w.-]+", "-", name).strip(".-") or "run"
        path = output or Path(f"{stem}.tables" if form == "parquet" else f"{stem}.json.gz")
        (tables if form == "parquet" else timeline)(opened_run, path)
    click.echo(f"traceq: wrote {path}", err=True)
    for failure in failures:
        click.echo(f"traceq: {failure}", err=True)
    if failures:
        click.get_current_context().exit(2)


def _steps(text: str) -> tuple[int, int]:
    match = _STEPS.fullmatch(text)
    if match is None:
        message = f"--steps {text}: must be a step or a range of them, as in 10-12"
        raise click.UsageError(message)
    first, last = int(match[1]), int(match[2] or match[1])
    return min(first, last), max(first, last)


def _file(path: Path) -> BufferedWriter | gzip.GzipFile:
    return gzip.open(path, "wb", compresslevel=1) if path.suffix == ".gz" else path.open("wb")


@contextmanager
def _built(path: Path) -> Iterator[Path]:
    """Yields: where to write; it takes its name when the block ends well, and is gone otherwise.

    Raises:
        TraceqError: the name is taken, or cannot be written.
    """
    if path.exists():
        message = f"{path.name}: exists: choose another name with --output"
        raise TraceqError(message)
    try:
        with tempfile.TemporaryDirectory(dir=path.absolute().parent, prefix=".traceq-") as folder:
            part = Path(folder) / path.name
            yield part
            part.rename(path)
    except OSError as error:
        message = f"{path.name}: cannot be written: {error.strerror or error}"
        raise TraceqError(message) from error
