"""The command line: parses, shows progress, and turns errors into one line and an exit status."""

import os
import signal
import sys

import click

from traceq.commands import COMMANDS
from traceq.errors import TraceqError

EPILOG = """\
\b
Examples:
  traceq report traces/
  traceq doctor run.sqlite
"""


@click.group(
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="traceq", prog_name="traceq")
def cli() -> None:
    """Where the time of a multi-GPU training run goes.

    traceq reads Nsight Systems exports and torch.profiler traces, and says how much of each rank's
    time is communication, how much of that is hidden behind compute, and what cannot be told.
    """


for command in COMMANDS:
    cli.add_command(command)


def main() -> None:
    """Runs the command line; an error of ours ends it with one line and its exit status.

    A request to end is an exit like any other, so that nothing temporary is left behind.
    """
    for request in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(request, _end)
    try:
        status = cli(standalone_mode=False)
        if sys.stdout:
            sys.stdout.flush()
        sys.exit(status)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except TraceqError as error:
        for line in str(error).splitlines():
            click.echo(f"traceq: {line}", err=True)
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        click.echo("traceq: interrupted", err=True)
        sys.exit(130)
    except RuntimeError as error:
        if "interrupted" not in str(error):  # DuckDB's word for it
            raise
        click.echo("traceq: interrupted", err=True)
        sys.exit(130)
    except OSError as error:
        sys.exit(_gone(error))


def _gone(error: OSError) -> int:
    """Returns: the exit status when an output is gone; nothing more may be flushed to it.

    A reader of a pipe that went away has had enough, which is its right.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if isinstance(error, BrokenPipeError):
        return 141
    click.echo(f"traceq: cannot write: {error.strerror}", err=True)
    return 2


def _end(number: int, _: object) -> None:
    sys.exit(128 + number)
