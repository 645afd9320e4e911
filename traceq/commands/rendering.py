"""What `report`, `compare` and `demo` share: formats, gates, and how a result ends the command."""

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

import click

from traceq.commands.frames import output_option

if TYPE_CHECKING:
    from traceq.compare.comparison import Comparison
    from traceq.gates import Gate
    from traceq.report import Report

FORMATS = ("table", "json", "markdown", "html", "junit")

Command = TypeVar("Command", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--format",
        "form",
        type=click.Choice(FORMATS),
        default="table",
        show_default=True,
        help="table for a terminal, json for programs, markdown for a pull request or step "
        "summary, html for one file with pictures, junit for test tabs.",
    ),
    output_option,
    click.option(
        "--fail-on",
        multiple=True,
        metavar="GATE",
        help="Exit 1 when this holds: 'exposed_comm_fraction > 20%'. Repeatable.",
    ),
    click.option(
        "--allow-incomplete", is_flag=True, help="Exit 0 although a source is missing or cut."
    ),
)


def judging_options(command: Command) -> Command:
    """Returns: the command with the options that choose format, file and gates."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def gates_of(fail_on: Sequence[str], configured: Sequence[str]) -> "list[Gate]":
    """Returns: the gates of the command line and of the configuration file.

    Raises:
        ConfigError: one is not a gate.
    """
    from traceq.gates import parse_gate

    return [parse_gate(expr) for expr in dict.fromkeys((*configured, *fail_on))]


def rendered(built: "Report | Comparison", form: str, *, to_file: bool) -> str:
    """Returns: a report or comparison in one of `FORMATS`, coloured for a terminal."""
    from traceq.report import Report

    where = "traceq.render" if isinstance(built, Report) else "traceq.render.compared"
    render = import_module(f"{where}.{form}").render
    if form == "table":
        return str(render(built, color=not to_file and sys.stdout.isatty()))
    text: str = render(built)
    return text if text.endswith("\n") else text + "\n"


def end(
    built: "Report | Comparison", failures: Sequence[Exception], *, allow_incomplete: bool
) -> None:
    """Tells on stderr what failed, and ends the command with the exit status of the result."""
    from traceq.gates import exit_status, gate_text

    for failure in failures:
        click.echo(f"traceq: {failure}", err=True)
    for row in built.gates:
        if row["passed"] is not True:
            verdict = "failed" if row["passed"] is False else "not judged"
            where = f"{row['run']}: " if "run" in row else ""
            click.echo(f"traceq: {where}gate {verdict}: {row['expr']}: {gate_text(row)}", err=True)
    status = exit_status(built.gates)
    if not built.complete and not allow_incomplete:
        if not failures and not built.gates:
            message = "a source is incomplete: read the notes, or pass --allow-incomplete"
            click.echo(f"traceq: {message}", err=True)
        status = status or 2
    if status:
        click.get_current_context().exit(status)
