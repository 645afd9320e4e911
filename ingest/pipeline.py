"""Sources to one run file: read each alone, then number ranks, align time, publish.

The map turns one source into finished rank tables, here or on any `concurrent.futures` executor;
the reduce works on the small tables and streams the large ones from their Parquet parts.
"""

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from concurrent.futures.thread import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import active_children, get_context, parent_process
from pathlib import Path
from threading import Thread

from traceq.config import ReadOptions
from traceq.errors import SourceError
from traceq.ingest.baselines import read_baselines
from traceq.ingest.checksum import file_checksum
from traceq.ingest.damage import told_in_words
from traceq.ingest.detect import Source, find_sources, plain_file
from traceq.ingest.logged import read_logs
from traceq.ingest.nsys.reader import read_nsys
from traceq.ingest.publish import Heading, write_run
from traceq.ingest.ranks import ranks_of_user
from traceq.ingest.tables import SourceTables
from traceq.ingest.torch_profiler.reader import read_torch
from traceq.runfile import create, refuse_taken

Progress = Callable[[str, float], None]
_SMALL_BYTES = 8 << 20  # a process takes longer to start than such sources take to be read


@dataclass(frozen=True, slots=True)
class Ingested:
    """What became of the sources.

    Attributes:
        path: the run file.
        failures: one error for each source that could not be read.
    """

    path: Path
    failures: list[SourceError]


def ingest_run(
    paths: Iterable[str | Path],
    run_path: str | Path,
    *,
    options: ReadOptions | None = None,
    name: str | None = None,
    executor: Executor | None = None,
    jobs: int | None = 1,
    on_progress: Progress | None = None,
    scratch: Path | None = None,
) -> Ingested:
    """Returns: the run file made from sources, and the sources that could not be read.

    Args:
        paths: files, folders and glob patterns.
        run_path: the run file to make; it must not exist.
        options: how to read.
        name: name of the run, else derived from the sources.
        executor: where to read sources, any `concurrent.futures` executor; by default here.
        jobs: processes that read, without an executor; None for as many as there are cores, where
            sources are large enough to be worth it. More than one need what every use of processes
            does: a script must not start its work when it is imported.
        on_progress: told (file name, share of all bytes read) as reading goes on.
        scratch: folder for what is needed while reading, by default the system's.

    Raises:
        SourceError: no source could be read, or two claim one rank.
        RunFileError: the run file cannot be written.
    """
    options = options or ReadOptions()
    run_path = Path(run_path)
    refuse_taken(run_path)
    found = find_sources(paths)
    user_ranks = ranks_of_user(options.rank_map, found.sources)
    baselines, useless = read_baselines(options.baselines)
    logs, unread = read_logs(options.nccl_logs)
    with (
        tempfile.TemporaryDirectory(prefix="traceq-", dir=scratch) as folder,
        _workers(executor, found.sources, jobs) as workers,
    ):
        outcomes = (
            _read_here(found.sources, Path(folder), options, on_progress)
            if workers is None
            else _read_there(found.sources, Path(folder), options, workers, on_progress)
        )
        tables, failures = _collect(outcomes, user_ranks)
        failures = [*found.failures, *failures, *useless, *unread]
        if not tables:
            raise all_failed(failures)
        with create(run_path) as writer:
            write_run(writer, tables, failures, Heading(name, options, baselines, logs))
    return Ingested(run_path, failures)


def all_failed(failures: list[SourceError]) -> SourceError:
    """Returns: the error of a reading of which nothing came."""
    if not failures:
        return SourceError("nothing to read: name a file or a folder")
    return SourceError("\n".join(str(failure) for failure in failures))


@contextmanager
def _workers(
    executor: Executor | None, sources: Sequence[Source], jobs: int | None
) -> Iterator[Executor | None]:
    """Yields: where to read, None for here; an executor of ours ends with the block."""
    if jobs is None:
        jobs = cores() if sum(source.size for source in sources) > _SMALL_BYTES else 1
    count = min(len(sources), jobs)
    if executor is not None or count <= 1:
        yield executor
        return
    # Not forkserver: it listens on a socket in TMPDIR, whose name must not be long.
    pool = ProcessPoolExecutor(count, mp_context=get_context("spawn"), initializer=_end_with_parent)
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in active_children():
            worker.terminate()
        raise
    pool.shutdown()


def _end_with_parent() -> None:
    """Ends this process when the one that reads is killed, which cannot tell it to."""

    def wait() -> None:
        parent = parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    Thread(target=wait, daemon=True).start()


def cores() -> int:
    """Returns: the processors this process may use."""
    return len(os.sched_getaffinity(0))


Outcome = tuple[Source, Callable[[], SourceTables]]


def _collect(
    outcomes: Iterable[Outcome], user_ranks: dict[Path, int]
) -> tuple[list[SourceTables], list[SourceError]]:
    tables: list[SourceTables] = []
    failures: list[SourceError] = []
    for source, outcome in outcomes:
        try:
            read = outcome()
            facts = replace(read.facts, user_rank=user_ranks.get(source.path))
            tables.append(replace(read, facts=facts))
        except SourceError as error:
            failures.append(error)
        except BrokenProcessPool:
            message = (
                f"{source.file_name}: the process that read it was killed, most likely for memory: "
                "read fewer sources at once with --jobs 1"
            )
            failures.append(SourceError(message))
    return tables, failures


def _read_here(
    sources: Sequence[Source], folder: Path, options: ReadOptions, on_progress: Progress | None
) -> Iterator[Outcome]:
    begin = 0.0
    for position, (source, size) in enumerate(_shares(sources)):
        tell = partial(_tell, on_progress, source.file_name, begin, size)
        yield (
            source,
            partial(read_source, source, folder, position, options, threads=cores(), on_share=tell),
        )
        tell(1.0)
        begin += size


def _read_there(
    sources: Sequence[Source],
    folder: Path,
    options: ReadOptions,
    executor: Executor,
    on_progress: Progress | None,
) -> Iterator[Outcome]:
    futures = [
        executor.submit(read_source, source, folder, position, options)
        for position, source in enumerate(sources)
    ]
    begin = 0.0
    for (source, size), future in zip(_shares(sources), futures, strict=True):
        yield source, future.result
        _tell(on_progress, source.file_name, begin, size, 1.0)
        begin += size


def _tell(on_progress: Progress | None, name: str, begin: float, size: float, share: float) -> None:
    if on_progress is not None:
        on_progress(name, begin + size * share)


def _shares(sources: Sequence[Source]) -> list[tuple[Source, float]]:
    total = sum(source.size for source in sources) or 1
    return [(source, source.size / total) for source in sources]


def read_source(
    source: Source,
    folder: Path,
    position: int,
    options: ReadOptions,
    *,
    threads: int = 1,
    on_share: Callable[[float], None] | None = None,
) -> SourceTables:
    """Returns: the finished tables of one source, with its operations in a part under folder.

    Raises:
        SourceError: the source cannot be read, or holds no GPU work.
    """
    own = folder / f"{position:05d}"
    own.mkdir()
    read = _read_torch if source.kind == "torch" else _read_nsys
    with ThreadPoolExecutor(1) as beside, told_in_words(source.file_name):
        checksum = beside.submit(file_checksum, source.path)
        tables = read(source, own, options, threads, on_share)
        facts = replace(tables.facts, sha256=checksum.result(), size=source.size)
    return replace(tables, facts=facts)


_Share = Callable[[float], None] | None


def _read_nsys(
    source: Source, folder: Path, options: ReadOptions, threads: int, on_share: _Share
) -> SourceTables:
    path = plain_file(source, folder)
    tables = read_nsys(
        path,
        label=source.file_name,
        part=folder / "ops.parquet",
        options=options,
        threads=threads,
        on_rows=(lambda done, of: on_share(done / of if of else 1.0)) if on_share else None,
    )
    if path != source.path:
        path.unlink()
    return tables


def _read_torch(
    source: Source, folder: Path, options: ReadOptions, threads: int, on_share: _Share
) -> SourceTables:
    del threads  # one decoder keeps up with what one stream can be decompressed at
    return read_torch(
        source.path,
        label=source.file_name,
        compression=source.compression,
        part=folder / "ops.parquet",
        options=options,
        on_share=on_share,
    )
