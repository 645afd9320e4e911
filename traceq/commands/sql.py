"""`traceq sql`: free read-only SQL."""

from pathlib import Path

import click

from traceq.commands.frames import format_option, write_frame
from traceq.commands.reading import opened

EPILOG = """\
\b
Examples:
  traceq sql run.duckdb 'SELECT rank, gpu_name FROM ranks'
  traceq sql run.sqlite 'SELECT count(*) AS kernels FROM device_ops' --format json
"""


@click.command(epilog=EPILOG)
@click.argument("run")
@click.argument("statement")
@format_option
def sql(run: str, statement: str, form: str, output: Path | None) -> None:
    """Runs one SELECT on RUN: a saved run file, or a source. It can read nothing else."""
    with opened((run,)) as (opened_run, failures):
        frame = opened_run.frame(statement)
    write_frame(frame, form, output)
    for failure in failures:
        click.echo(f"traceq: {failure}", err=True)
    if failures:
        click.get_current_context().exit(2)
