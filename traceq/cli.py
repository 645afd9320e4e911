"""The command line: parses, shows progress, and turns errors into one line and an exit status."""

import os
import sys

import click

import traceq
from traceq.commands import COMMANDS
from traceq.errors import TraceqError

EPILOG = """\
\b
Examples:
  traceq report run.sqlite
  traceq doctor run.sqlite
"""


@click.group(
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(traceq.__version__, prog_name="traceq")
def cli() -> None:
    """Where the time of a multi-GPU training run goes.

    traceq reads Nsight Systems SQLite exports and says how much of each rank's time is
    communication, how much of it is hidden behind compute, and what the capture cannot tell.
    """


for command in COMMANDS:
    cli.add_command(command)


def main() -> None:
    """Runs the command line; an error of ours ends it with one line and its exit status."""
    try:
        sys.exit(cli(standalone_mode=False))
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
    except BrokenPipeError:
        # The reader of a pipe went away, which is its right; nothing may be flushed to it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
