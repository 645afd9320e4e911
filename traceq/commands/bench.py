"""`traceq bench`: measures collectives as nccl-tests would, with torch.distributed."""

import io
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from traceq.commands.frames import write_text
from traceq.errors import TraceqError

if TYPE_CHECKING:
    from traceq.bench.result import Bench

EPILOG = """\
\b
Examples:
  traceq bench --nproc 4 --backend gloo -b 4K -e 16M -f 4
  traceq bench --ops all_reduce --algorithm ring --nproc 4 --format json --output ring.json
  torchrun --nproc-per-node 8 -m traceq bench --backend nccl -b 1M -e 4G
"""
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_OPS = (
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "send_recv",
)  # fmt: skip
_MOST_SIZES = 100
_MOST_BYTES = 1 << 40


class Size(click.ParamType[int]):
    """A size in bytes, with K, M or G for binary multiples."""

    name = "size"

    def convert(
        self, value: str | int, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Returns: the size [bytes]."""
        match = re.fullmatch(r"(\d{1,15})([KMG]?)B?", str(value).upper())
        size = int(match.group(1)) * _UNITS[match.group(2)] if match else -1
        if not 0 <= size <= _MOST_BYTES:
            self.fail(f"{value}: must be bytes, as in 4096, 4K or 1G", param, ctx)
        return size


@click.command(epilog=EPILOG)
@click.option(
    "--nproc", type=click.IntRange(1, 1024), help="Processes to start. [default: 2, or the GPUs]"
)
@click.option("--backend", type=click.Choice(["gloo", "nccl"]), help="[default: nccl with GPUs]")
@click.option("-b", "--begin", type=Size(), default="4K", show_default=True, help="Smallest size.")
@click.option("-e", "--end", type=Size(), default="16M", show_default=True, help="Largest size.")
@click.option(
    "-f",
    "--factor",
    type=click.IntRange(2),
    default=4,
    show_default=True,
    help="From one size to the next.",
)
@click.option(
    "--ops",
    metavar="OP[,OP]",
    help=f"Operations: {', '.join(_OPS)}. [default: all; all_reduce for nccl-tests]",
)
@click.option(
    "--algorithm",
    type=click.Choice(["library", "ring"]),
    default="library",
    show_default=True,
    help="ring: the all_reduce as sends and receives around a ring.",
)
@click.option("--iters", type=click.IntRange(1), default=20, show_default=True, help="Timed calls.")
@click.option(
    "--warmup", type=click.IntRange(0), default=5, show_default=True, help="Calls before."
)
@click.option("--no-check", is_flag=True, help="Do not compare results with what they should be.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json", "nccl-tests"]),
    default="table",
    show_default=True,
    help="json is what report --baseline takes.",
)
@click.option("--output", type=click.Path(path_type=Path), metavar="FILE", help="Write to a file.")
@click.pass_context
def bench(
    context: click.Context,
    /,
    *,
    nproc: int | None,
    backend: str | None,
    begin: int,
    end: int,
    factor: int,
    ops: str | None,
    algorithm: str,
    iters: int,
    warmup: int,
    no_check: bool,
    form: str,
    output: Path | None,
) -> None:
    """Measures collectives over a range of sizes, on GPUs with nccl or on CPUs with gloo.

    Sizes, counts and rates are those of nccl-tests, in GB/s of 1e9 bytes; times are means over
    calls and ranks. Under torchrun it measures the processes of that, else it starts its own. Exit
    status 1: a result was wrong.
    """
    chosen = _chosen(ops or ("all_reduce" if algorithm == "ring" else None), form)
    if algorithm == "ring" and chosen != ("all_reduce",):
        message = "--algorithm ring is an all_reduce: measure others without it"
        raise click.UsageError(message)
    sizes = _sizes(begin, end, factor)
    _needs_torch()
    from traceq.bench.launch import run_processes
    from traceq.bench.result import bench_of
    from traceq.bench.worker import Plan, default_backend, default_processes, work

    backend = backend or default_backend()
    plan = Plan(
        chosen,
        sizes,
        backend,
        algorithm,
        iters,
        warmup,
        check=not no_check,
        tell=sys.stderr.isatty(),
    )
    processes = default_processes(backend)
    done = run_processes(work, nproc or processes, plan)[0]
    if done["rank"] != 0:
        return
    result = bench_of(
        done["rows"],
        ranks=done["ranks"],
        nodes=done["nodes"],
        algorithm=algorithm,
        facts=done["facts"],
    )
    write_text(_rendered(result, form), output)
    if result.wrong:
        click.echo(f"traceq: {result.wrong} elements of results are wrong", err=True)
        context.exit(1)


def _chosen(ops: str | None, form: str) -> tuple[str, ...]:
    chosen = tuple(dict.fromkeys(ops.split(","))) if ops else _OPS
    if form == "nccl-tests" and not ops:
        chosen = ("all_reduce",)
    for op in chosen:
        if op not in _OPS:
            message = f"--ops {op}: no such operation; there are: {', '.join(_OPS)}"
            raise click.UsageError(message)
    if form == "nccl-tests" and len(chosen) > 1:
        message = "nccl-tests prints one operation: name one with --ops"
        raise click.UsageError(message)
    return chosen


def _sizes(begin: int, end: int, factor: int) -> tuple[int, ...]:
    if not 0 < begin <= end:
        message = f"sizes from {begin} to {end} bytes: there is none"
        raise click.UsageError(message)
    sizes = [begin]
    while sizes[-1] * factor <= end and len(sizes) < _MOST_SIZES:
        sizes.append(sizes[-1] * factor)
    return tuple(sizes)


def _needs_torch() -> None:
    if find_spec("torch") is None:
        message = "torch is not installed: pip install 'traceq[torch]'"
        raise TraceqError(message)


def _rendered(result: "Bench", form: str) -> str:
    from traceq.bench.result import nccl_tests_text

    if form == "json":
        return result.as_json() + "\n"
    if form == "nccl-tests":
        return nccl_tests_text(result)
    return _table(result)


def _table(result: "Bench") -> str:
    from rich.console import Console
    from rich.text import Text

    from traceq.model.units import UNKNOWN, size_text, time_text
    from traceq.render.layout import WIDTH, section, table_of

    rates = table_of("<operation", "size", "time", "algbw", "busbw", "wrong")
    for row in result.rows:
        told = (row["algbw_gbps"], row["busbw_gbps"])
        rates.add_row(
            row["op"] if row["algorithm"] == "library" else f"{row['op']} ({row['algorithm']})",
            size_text(row["size_bytes"]),
            time_text(row["time_us"] * 1e3),
            *(UNKNOWN if rate is None else f"{rate:.4g}" for rate in told),
            "not checked" if row["wrong"] is None else str(row["wrong"]),
        )
    fits = table_of("<operation", "alpha", "beta", "spread")
    for row in result.fit:
        alpha, beta = row["alpha_us"], row["beta_gbps"]
        fits.add_row(
            row["op"],
            UNKNOWN
            if alpha is None
            else f"{time_text(alpha * 1e3)} ±{100 * row['alpha_error']:.0f} %",
            _give_or_take(None if beta is None else f"{beta:.4g} GB/s", row["beta_error"]),
            f"{100 * row['spread']:.0f} %",
        )
    out = io.StringIO()
    console = Console(file=out, width=WIDTH, highlight=False, force_terminal=sys.stdout.isatty())
    ranks = f"{result.ranks} rank{'s' * (result.ranks != 1)}, {result.facts['backend']}"
    console.print(Text(f"traceq bench  {ranks}, torch {result.facts['torch']}\n"))
    console.print(
        section("Rates (in GB/s of 1e9 bytes; time is a mean over calls and ranks)", rates)
    )
    if result.fit:
        title = "Latency and bandwidth (T = alpha · steps + bytes sent / beta)"
        console.print(section(title, fits))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _give_or_take(value: str | None, error: float | None) -> str:
    return "not told by these sizes" if value is None else f"{value} ±{100 * (error or 0):.0f} %"
