"""`traceq demo`: a real training with one slow rank, recorded and reported."""

import tempfile
from importlib.util import find_spec
from pathlib import Path

import click

from traceq.commands.rendering import FORMATS, rendered
from traceq.errors import TraceqError

EPILOG = """\
\b
Examples:
  traceq demo
  traceq demo --slow-rank 1 --slow-ms 5 --cause launch --keep traces
  traceq demo --slow-rank none --format json
"""
_PROCESSES = 4


class SlowRank(click.ParamType[int]):
    """A rank of the demo, or none."""

    name = "rank"

    def convert(
        self, value: str | int, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Returns: the rank, -1 for none."""
        if str(value) in {"none", "-1"}:
            return -1
        if str(value) not in {str(rank) for rank in range(_PROCESSES)}:
            self.fail(f"{value}: must be 0 to {_PROCESSES - 1}, or none", param, ctx)
        return int(value)


@click.command(epilog=EPILOG)
@click.option("--slow-rank", type=SlowRank(), default="2", show_default=True, help="Or none.")
@click.option(
    "--slow-ms", type=click.FloatRange(0, 1000), default=10, show_default=True, help="Per step."
)
@click.option(
    "--cause",
    type=click.Choice(["compute", "launch"]),
    default="compute",
    show_default=True,
    help="compute: its operations take longer; launch: it begins late.",
)
@click.option("--keep", type=click.Path(path_type=Path), metavar="DIR", help="Keep the traces.")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="table",
    show_default=True,
    help="As of report.",
)
def demo(*, slow_rank: int, slow_ms: float, cause: str, keep: Path | None, form: str) -> None:
    """Trains on 4 CPU processes with one slow rank, records and reports it, in under a minute.

    The slow rank is real: it loses the time that is asked for in every step, and the report finds
    it from the traces alone.
    """
    if find_spec("torch") is None:
        message = "torch is not installed: pip install 'traceq[torch]'"
        raise TraceqError(message)
    if keep is not None and keep.exists() and any(keep.iterdir()):
        message = f"{keep.name}: is not empty: keep the traces in a new folder"
        raise TraceqError(message)
    from traceq.demo import Slowness, run_demo
    from traceq.ingest.pipeline import ingest_run
    from traceq.report import build_report
    from traceq.runfile import open_run

    click.echo(f"training on {_PROCESSES} processes ...", err=True)
    with tempfile.TemporaryDirectory(prefix="traceq-") as name:
        folder = keep or Path(name) / "traces"
        slow = None if slow_rank < 0 else slow_rank
        run_demo(folder, Slowness(slow, round(slow_ms * 1e6), cause))
        ingest_run([folder], Path(name) / "demo.duckdb", name="demo")
        with open_run(Path(name) / "demo.duckdb") as run:
            report = build_report(run)
    click.echo(rendered(report, form, to_file=False), nl=False)
