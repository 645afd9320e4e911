"""`traceq ingest`: reads sources into the store."""

from pathlib import Path
from typing import Unpack

import click

from traceq.commands.reading import ReadingFlags, progress, read_options, reading_options
from traceq.commands.storing import CATALOG_HELP, rows_option, store_option

EPILOG = f"""\
\b
Examples:
  traceq ingest traces/ --name 'night run' --tag h100
  traceq ingest rank0.sqlite rank1.sqlite --name baseline --format json
{CATALOG_HELP}"""


@click.command(epilog=EPILOG)
@click.argument("sources", nargs=-1, required=True)
@click.option("--name", required=True, help="Name of the run, which no other has.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="A tag of the run. Repeatable.")
@rows_option
@click.option(
    "--allow-incomplete", is_flag=True, help="Exit 0 although a source is missing or cut."
)
@store_option
@reading_options
@click.pass_context
def ingest(
    context: click.Context,
    /,
    *,
    sources: tuple[str, ...],
    name: str,
    tags: tuple[str, ...],
    form: str,
    allow_incomplete: bool,
    folder: Path | None,
    jobs: int | None,
    **reading: Unpack[ReadingFlags],
) -> None:
    """Reads SOURCES as report does, and keeps them in the store as one run.

    What was read is opened by its name then: traceq report NAME, query, sql. Sources that are in
    the store already, read with the same options, are not read again. Exit status: 0 stored, now or
    before; 2 not stored, or a source could not be read or is incomplete.
    """
    options = read_options(**reading)

    from traceq.render.runs import ingest_json, stored_line
    from traceq.store import Store

    store = Store(folder)
    with progress() as on_progress:
        stored = store.ingest(
            sources, name=name, options=options, tags=tags, jobs=jobs,
            on_progress=on_progress,
        )  # fmt: skip
    click.echo(ingest_json(stored) if form == "json" else stored_line(stored), nl=False)
    for failure in stored.failures:
        click.echo(f"traceq: {failure}", err=True)
    if (stored.failures or stored.run.status != "complete") and not allow_incomplete:
        if not stored.failures:
            click.echo(
                "traceq: a source is incomplete: see traceq report, or pass --allow-incomplete",
                err=True,
            )
        context.exit(2)
