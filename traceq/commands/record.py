"""`traceq record`: records the traces of a training command that knows nothing of traceq."""

import json
import os
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import click

from traceq.errors import TraceqError

EPILOG = """\
\b
Examples:
  traceq record -- torchrun --nproc-per-node 8 train.py
  traceq record --output traces --wait 20 --active 10 -- python train.py
  traceq record --nsys -- torchrun --nproc-per-node 8 train.py
"""


@click.command(epilog=EPILOG, context_settings={"ignore_unknown_options": True})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    default="traces",
    show_default=True,
    metavar="DIR",
    help="Folder for the traces.",
)
@click.option("--wait", type=click.IntRange(0), default=5, show_default=True, help="Steps before.")
@click.option(
    "--warmup",
    type=click.IntRange(0),
    default=2,
    show_default=True,
    help="Steps with a profiler that keeps nothing.",
)
@click.option(
    "--active", type=click.IntRange(1), default=20, show_default=True, help="Steps to record."
)
@click.option("--nsys", is_flag=True, help="Record with nsys profile instead, if it is installed.")
@click.pass_context
def record(
    context: click.Context,
    /,
    *,
    command: tuple[str, ...],
    output: Path,
    wait: int,
    warmup: int,
    active: int,
    nsys: bool,
) -> None:
    """Runs COMMAND and records a trace of every rank of it.

    A training step ends with each step of the first optimizer that makes one. Recording stops by
    itself after the last step asked for. Exit status: that of COMMAND, or 2 when it made no trace.
    """
    if nsys:
        context.exit(_under_nsys(command, output))
    if find_spec("torch") is None:
        message = "torch is not installed: pip install 'traceq[torch]'"
        raise TraceqError(message)
    before = _traces(output)
    schedule = {"folder": str(output.absolute()), "wait": wait, "warmup": warmup, "active": active}
    hook = Path(__file__).resolve().parents[1] / "recording"
    path = os.pathsep.join([str(hook), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"PYTHONPATH": path, "TRACEQ_RECORD": json.dumps(schedule)}
    status = _run(command, environment)
    made = [trace for trace, when in _traces(output).items() if before.get(trace) != when]
    if status:
        click.echo(
            f"traceq: the command ended with status {status}; {len(made)} traces are whole",
            err=True,
        )
        context.exit(status if 0 < status < _SIGNALS else 1)
    if not made:
        least = wait + warmup + 2  # the first only begins the recording
        message = (
            f"{Path(command[0]).name}: made no trace: no optimizer took {least} steps; ask for "
            "fewer with --wait and --warmup"
        )
        raise TraceqError(message)
    click.echo(f"{len(made)} traces in {output}: traceq report {output}", err=True)


_SIGNALS = 128


def _run(command: tuple[str, ...], environment: dict[str, str] | None = None) -> int:
    """Returns: how a command ended; interrupting this process interrupts it too."""
    try:
        with subprocess.Popen(command, env=environment) as process:
            try:
                return process.wait()
            except KeyboardInterrupt:
                process.wait()
                raise
    except OSError as error:
        message = f"{Path(command[0]).name}: cannot be run: {error.strerror}"
        raise TraceqError(message) from error


def _traces(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.glob("rank*.json.gz")}


def _under_nsys(command: tuple[str, ...], output: Path) -> int:
    program = shutil.which("nsys")
    if program is None:
        message = "nsys is not on the PATH: install Nsight Systems, or record without --nsys"
        raise TraceqError(message)
    output.mkdir(parents=True, exist_ok=True)
    flags = ("--trace=cuda,nvtx", "--cuda-graph-trace=node", "--trace-fork-before-exec=true")
    status = _run((program, "profile", *flags, "--output", str(output / "run"), *command))
    if not status:
        click.echo(f"traceq report {output / 'run.nsys-rep'}", err=True)
    return status
