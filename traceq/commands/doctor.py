"""`traceq doctor`: what a capture can answer, and how to make it answer more."""

import json
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from traceq.ingest.tables import Answer

EPILOG = """\
\b
Example:
  traceq doctor run.sqlite
"""

_STYLE = {"yes": "green", "partly": "yellow", "no": "red"}


@click.command(epilog=EPILOG)
@click.argument("sources", nargs=-1, required=True)
@click.option(
    "--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True,
    help="For people, or for programs.",
)  # fmt: skip
@click.pass_context
def doctor(context: click.Context, sources: tuple[str, ...], form: str) -> None:
    """Tells what the captures SOURCES can answer, and the command that captures or exports better.

    Exit status: 0 all sources could be examined, 2 one could not.
    """
    from traceq.errors import SourceError
    from traceq.ingest.detect import find_sources
    from traceq.ingest.examine import examine_source

    found = find_sources(sources)
    failures = list(found.failures)
    examined: list[tuple[str, list[Answer]]] = []
    for source in found.sources:
        try:
            examined.append((source.file_name, examine_source(source)))
        except SourceError as error:
            failures.append(error)
    if form == "json":
        click.echo(json.dumps([_as_data(*each) for each in examined], indent=1, ensure_ascii=False))
    else:
        for file_name, answers in examined:
            _print(file_name, answers)
    for failure in failures:
        click.echo(f"traceq: {failure}", err=True)
    if failures:
        context.exit(2)


def _as_data(file_name: str, answers: list["Answer"]) -> dict[str, object]:
    from dataclasses import asdict

    return {"source": file_name, "answers": [asdict(answer) for answer in answers]}


def _print(file_name: str, answers: list["Answer"]) -> None:
    click.secho(file_name, bold=True)
    for answer in answers:
        verdict = click.style(f"{answer.verdict:<7}", fg=_STYLE[answer.verdict])
        click.echo(f"  {verdict}{answer.question} {answer.evidence}.")
        if answer.remedy:
            click.echo(click.style(f"         → {answer.remedy}", dim=True))
    click.echo()
