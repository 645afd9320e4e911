"""What every command that takes sources shares: its options, and the reading with its progress."""

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from glob import has_magic, iglob
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack

import click

from traceq.errors import ConfigError, SourceError, TraceqError

if TYPE_CHECKING:
    from traceq.config import ReadOptions
    from traceq.runfile import Run

Command = TypeVar("Command", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--config",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Options from a traceq.toml.",
    ),
    click.option(
        "--step-pattern",
        metavar="REGEX",
        help="Whole name of the ranges that mark a step; a first group is the number of the step. "
        "By default the names of common frameworks: 'step 12', 'iteration 12', 'ProfilerStep#12'.",
    ),
    click.option(
        "--rank-map",
        multiple=True,
        metavar="FILE=RANK",
        help="Rank of a source, by its file name or the end of its path. Repeatable.",
    ),
    click.option(
        "--nranks",
        type=click.IntRange(1, 1_000_000),
        help="Ranks of the whole job, if no source says.",
    ),
    click.option("--p2p-as-comm", is_flag=True, help="Count peer-to-peer copies as communication."),
    click.option(
        "--link-peak",
        multiple=True,
        metavar="[LINK=]GBPS",
        help="Peak of a link per GPU and direction in GB/s, of all links or of one: intra=450 "
        "(inside a node), inter=50 (between nodes). Repeatable.",
    ),
    click.option("--gpu", metavar="MODEL", help="GPU model, if no source says: 'H100 SXM'."),
    click.option(
        "--baseline",
        multiple=True,
        metavar="[OP=]FILE",
        help="Output of nccl-tests (text or JSON), or of bench --format json, to compare "
        "bandwidths with. Repeatable.",
    ),
    click.option(
        "--nccl-log",
        multiple=True,
        metavar="FILE",
        help="NCCL_DEBUG log of the same run, for sizes that the trace lacks. Repeatable.",
    ),
    click.option("--keep-warmup", is_flag=True, help="Count warm-up calls in bandwidths too."),
    click.option(
        "--jobs",
        type=click.IntRange(1),
        help="Sources read at once. [default: cores, for large sources]",
    ),
)


def reading_options(command: Command) -> Command:
    """Returns: the command with every option that changes how sources are read."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


class ReadingFlags(TypedDict):
    """The values of `reading_options` but for `jobs`, which changes no number."""

    config: Path | None
    step_pattern: str | None
    rank_map: tuple[str, ...]
    nranks: int | None
    p2p_as_comm: bool
    link_peak: tuple[str, ...]
    gpu: str | None
    baseline: tuple[str, ...]
    nccl_log: tuple[str, ...]
    keep_warmup: bool


def read_options(**flags: Unpack[ReadingFlags]) -> "ReadOptions":
    """Returns: the options of the command line on top of those of the configuration file.

    Raises:
        ConfigError: the file or an option does not say what it should.
    """
    from traceq.config import checked, load_options

    options = load_options(flags["config"])
    return checked(
        replace(
            options,
            step_pattern=flags["step_pattern"] or options.step_pattern,
            rank_map=dict(_mapped(entry) for entry in flags["rank_map"]),
            nranks=flags["nranks"] or options.nranks,
            p2p_as_comm=flags["p2p_as_comm"] or options.p2p_as_comm,
            link_peak=options.link_peak | dict(_peak(entry) for entry in flags["link_peak"]),
            gpu=flags["gpu"] or options.gpu,
            baselines=flags["baseline"],
            nccl_logs=flags["nccl_log"],
            keep_warmup=flags["keep_warmup"] or options.keep_warmup,
        )
    )


def _mapped(entry: str) -> tuple[str, int]:
    name, _, rank = entry.rpartition("=")
    if not name or not rank.isdecimal() or len(rank) > _RANK_DIGITS:
        message = f"--rank-map {Path(entry).name}: must be FILE=RANK, as in run_a.sqlite=3"
        raise ConfigError(message)
    return name, int(rank)


_RANK_DIGITS = 6


def _peak(entry: str) -> tuple[str, float]:
    link, _, rate = entry.rpartition("=")
    try:
        return link or "any", float(rate)
    except ValueError:
        message = f"--link-peak {entry}: must be a number of GB/s, as in 450 or inter=50"
        raise ConfigError(message) from None


@contextmanager
def opened(
    sources: tuple[str, ...],
    *,
    options: "ReadOptions | None" = None,
    name: str | None = None,
    save: Path | None = None,
    jobs: int | None = None,
    mixed: bool = False,
) -> Iterator[tuple["Run", list[SourceError]]]:
    """Yields: a run, saved, stored or read from sources, and the sources that failed.

    Args:
        sources: one run file, the name of one run of the store, or files, folders and patterns.
        options: how to read.
        name: name of the run.
        save: keep the run file under this name.
        jobs: sources read at once.
        mixed: options of reading may be given although this is a run file.

    Raises:
        TraceqError: nothing could be read, or the run file cannot be kept.
    """
    from traceq.runfile import is_run_file, open_run

    stored = _stored(sources[0]) if len(sources) == 1 else None
    if stored or any(is_run_file(Path(source)) for source in sources):
        if len(sources) > 1 or save is not None:
            message = "a run file is read alone and is saved already: name nothing else"
            raise TraceqError(message)
        if not mixed and (name is not None or (options is not None and options != type(options)())):
            message = "a run file was read already: options of reading change nothing in it"
            raise TraceqError(message)
        with open_run(stored or sources[0], label=sources[0] if stored else None) as run:
            yield run, []
        return
    from traceq.ingest.pipeline import ingest_run

    with tempfile.TemporaryDirectory(prefix="traceq-") as folder:
        with progress() as on_progress:
            ingested = ingest_run(
                sources,
                save or Path(folder) / "run.duckdb",
                options=options,
                name=name,
                jobs=jobs,
                on_progress=on_progress,
            )
        with open_run(ingested.path) as run:
            yield run, ingested.failures


def _stored(name: str) -> Path | None:
    """Returns: the file of the stored run of a name, None when it names files, or nothing.

    Raises:
        TraceqError: it is neither, but the name of a run is like it.
    """
    if not name or "/" in name or os.path.lexists(name):
        return None
    pattern = has_magic(name)
    if pattern and any(iglob(name, recursive=True)):  # noqa: PTH207  # as sources are found
        return None
    from traceq.storefolder import quick_file

    if not pattern and (quick := quick_file(name)):
        return quick
    from traceq.store import existing_store

    store = existing_store()
    if store is None:
        return None
    run = store.get(name)
    near = None if pattern or run is not None else store.nearest(name)
    if near:
        message = f"{name}: neither a file nor a run of the store: did you mean {near}?"
        raise TraceqError(message)
    return None if run is None else run.path


@contextmanager
def progress(doing: str = "reading") -> Iterator[Callable[[str, float], None] | None]:
    """Yields: what to tell the progress of a long job to, None where nobody watches it."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(doing, total=1.0)
        yield lambda name, share: bar.update(task, completed=share, description=f"{doing} {name}")
