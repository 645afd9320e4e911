"""`traceq baseline`: reference measurements of bandwidth."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from traceq.commands.frames import format_option, write_frame

if TYPE_CHECKING:
    from traceq.ingest.nccl_tests import Baseline

EPILOG = """\
\b
Examples:
  traceq baseline show all_reduce_perf.txt
  traceq baseline show all_gather=measured.txt --format json
"""


@click.group(epilog=EPILOG)
def baseline() -> None:
    """Reference measurements of bandwidth: outputs of nccl-tests, and benches."""


@baseline.command(epilog=EPILOG)
@click.argument("source", metavar="[OP=]FILE")
@format_option
def show(source: str, form: str, output: Path | None) -> None:
    """Prints every row of FILE, an output of nccl-tests as text or JSON, or a bench as JSON.

    Where the output does not say which operation it is about, name it: all_gather=FILE. Sizes are
    S in bytes, rates GB/s (1e9 bytes per second); of one rank the bus bandwidth is unknown.
    """
    import polars as pl

    from traceq.ingest.baselines import read_baseline, read_bench

    own = read_bench(Path(source))
    if own is not None:
        write_frame(own.rename({"bytes": "size_bytes"}), form, output)
        return
    found = read_baseline(source)
    op = pl.lit(found.op.value if found.op else None, pl.String).alias("op")
    ranks = pl.lit(found.ranks, pl.Int32).alias("group_size")
    write_frame(found.rows.select(op, ranks, pl.all()), form, output)
    for note in _notes(found):
        click.echo(f"traceq: {found.file_name}: {note}", err=True)


def _notes(found: "Baseline") -> list[str]:
    notes = []
    if found.op is None:
        fit = " or ".join(found.candidates) or "none that is known"
        notes.append(f"does not say which test it is ({fit}): name it as OP=FILE")
    if not found.complete:
        notes.append("its end is missing: the run was cut short")
    if found.dropped:
        notes.append(f"{found.dropped} rows are cut by other output and left out")
    if found.ranks == 1:
        notes.append("one rank alone: its bus bandwidth is undefined, so it is no reference")
    return notes
