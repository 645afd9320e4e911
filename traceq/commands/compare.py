"""`traceq compare`: runs of any numbers of ranks side by side."""

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click

from traceq.commands.frames import write_text
from traceq.commands.reading import ReadingFlags, opened, read_options, reading_options
from traceq.commands.rendering import end, gates_of, judging_options, rendered

if TYPE_CHECKING:
    from traceq.errors import SourceError

EPILOG = """\
\b
Examples:
  traceq compare run8.duckdb run16.duckdb
  traceq compare night-8 night-16 night-32 --scaling weak --format html --output scaling.html
  traceq compare main.duckdb traces/ --fail-on 'step_time_regression > 5%'
"""


@click.command(epilog=EPILOG)
@click.argument("runs", nargs=-1, required=True, metavar="BASE RUN...")
@click.option(
    "--scaling",
    type=click.Choice(["weak", "strong"]),
    default="weak",
    show_default=True,
    help="Work per rank stays, or work in all stays, as ranks are added.",
)
@judging_options
@reading_options
def compare(
    *,
    runs: tuple[str, ...],
    scaling: str,
    form: str,
    output: Path | None,
    fail_on: tuple[str, ...],
    allow_incomplete: bool,
    jobs: int | None,
    **reading: Unpack[ReadingFlags],
) -> None:
    """Compares runs with the first of them, BASE: why is one slower, and whose fault is it?

    Each RUN is a stored name, a run file, or a source: a file, a folder or a pattern. Options of
    reading count for those that are read now. Exit status: 0 judged and fine, 1 a gate failed, 2
    could not be judged.
    """
    from traceq.compare.comparison import compare_runs
    from traceq.config import load_gates
    from traceq.gates import judge_comparison

    if len(runs) < 2:  # noqa: PLR2004
        message = "name two or more: the base, and what to compare with it"
        raise click.UsageError(message)
    options = read_options(**reading)
    gates = gates_of(fail_on, load_gates(reading["config"]))
    failures: list[SourceError] = []
    with ExitStack() as stack:
        opened_runs = []
        for each in runs:
            run, failed = stack.enter_context(
                opened((each,), options=options, jobs=jobs, mixed=True)
            )
            opened_runs.append(run)
            failures += failed
        compared = compare_runs(opened_runs, "strong" if scaling == "strong" else "weak")
    built = judge_comparison(compared, gates, incomplete_ok=allow_incomplete)
    write_text(rendered(built, form, to_file=output is not None), output)
    end(built, failures, allow_incomplete=allow_incomplete)
