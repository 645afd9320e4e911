"""`traceq query`: canned queries."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from traceq.commands.frames import format_option, write_frame
from traceq.commands.reading import opened

if TYPE_CHECKING:
    from traceq.queries import Query

EPILOG = """\
\b
Examples:
  traceq query --list
  traceq query --doc comm_fraction
  traceq query top_kernels run.duckdb --param k=5 --format csv
"""


@click.command(epilog=EPILOG)
@click.argument("name", required=False)
@click.argument("run", nargs=-1)
@click.option("--list", "listing", is_flag=True, help="List the queries.")
@click.option("--doc", is_flag=True, help="Print what a query takes and returns.")
@click.option(
    "--param", "params", multiple=True, metavar="NAME=VALUE", help="A parameter. Repeatable."
)
@format_option
def query(
    *,
    name: str | None,
    run: tuple[str, ...],
    listing: bool,
    doc: bool,
    params: tuple[str, ...],
    form: str,
    output: Path | None,
) -> None:
    """Runs the canned query NAME on RUN: a saved run file, or sources."""
    from traceq.queries import load_query, query_names
    from traceq.query import find_query, run_query

    if listing:
        widest = max(map(len, query_names()))
        for each in query_names():
            click.echo(f"{each:<{widest + 2}}{load_query(each).title}")
        return
    if name is None:
        message = "name a query, or list them with --list"
        raise click.UsageError(message)
    if doc:
        click.echo(documentation(find_query(name)))
        return
    find_query(name)
    if not run:
        message = f"name the run: traceq query {name} run.duckdb"
        raise click.UsageError(message)
    with opened(run) as (opened_run, failures):
        frame = run_query(opened_run, name, dict(_parameter(entry) for entry in params))
    write_frame(frame, form, output)
    for failure in failures:
        click.echo(f"traceq: {failure}", err=True)
    if failures:
        click.get_current_context().exit(2)


def _parameter(entry: str) -> tuple[str, str]:
    name, equals, value = entry.partition("=")
    if not equals:
        message = f"--param {entry}: must be NAME=VALUE"
        raise click.UsageError(message)
    return name, value


def documentation(query: "Query") -> str:
    """Returns: what a query answers, takes and returns, as Markdown."""
    lines = [f"## {query.name}", "", query.title[0].upper() + query.title[1:]]
    if query.notes:
        lines += ["", query.notes]
    if query.parameters:
        lines += ["", "| parameter | type | default | meaning |", "|---|---|---|---|"]
        lines += [f"| `{p.name}` | {p.type} | `{p.default}` | {p.text} |" for p in query.parameters]
    lines += ["", "| column | type | unit | meaning |", "|---|---|---|---|"]
    lines += [f"| `{c.name}` | {c.type} | {c.unit} | {c.text} |" for c in query.columns]
    return "\n".join(
        [*lines, "", f"One row per {', '.join(query.key)}. Definitions: {query.source}."]
    )
