"""Sources to a run file: anywhere, in any number, with the same tables."""

from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.commands import traceq_process
from tests.traces.nsys import NsysExport
from traceq.errors import RunFileError, SourceError
from traceq.ingest.pipeline import ingest_run
from traceq.runfile import Run, open_run

TABLES = (
    "sources", "ranks", "streams", "kernel_names", "device_ops", "nccl_kernels", "rank_timings",
    "diagnostics",
)  # fmt: skip


def contents(run: Run) -> dict[str, list[tuple[object, ...]]]:
    return {table: run.frame(f"SELECT * FROM {table} ORDER BY ALL").rows() for table in TABLES}


@pytest.mark.parametrize("jobs", [1, 2, "threads"])
def test_every_way_of_reading_gives_the_same_tables(
    sample_folder: Path, sample_run: Run, tmp_path: Path, jobs: int | str
) -> None:
    target = tmp_path / "run.duckdb"
    executor: Executor | None = ThreadPoolExecutor(2) if jobs == "threads" else None
    ingest_run(
        [sample_folder],
        target,
        executor=executor,
        jobs=jobs if isinstance(jobs, int) else 1,
    )
    with open_run(target) as run:
        assert contents(run) == contents(sample_run)


def test_a_finished_run_stands_alone(sample_folder: Path, tmp_path: Path) -> None:
    ingest_run([sample_folder], tmp_path / "run.duckdb")
    assert [p.name for p in tmp_path.iterdir()] == ["run.duckdb"]


def test_a_failed_run_leaves_nothing(sample_folder: Path, tmp_path: Path) -> None:
    pair = [NsysExport().capture(environment="RANK=1").kernel("g<f>", 1, 2) for _ in range(2)]
    paths = [e.write(tmp_path / f"{n}.sqlite") for n, e in zip("ab", pair, strict=True)]
    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(SourceError, match="both claim rank 1"):
        ingest_run(paths, out / "run.duckdb")
    assert list(out.iterdir()) == []


def test_a_run_file_is_never_overwritten(sample_folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "run.duckdb"
    ingest_run([sample_folder], target)
    before = target.read_bytes()
    with pytest.raises(RunFileError, match="a run file is never changed"):
        ingest_run([sample_folder], target)
    assert target.read_bytes() == before


def test_a_folder_that_does_not_exist_is_said(sample_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(RunFileError, match=r"run\.duckdb: cannot be written"):
        ingest_run([sample_folder], tmp_path / "nowhere" / "run.duckdb")


def test_nothing_to_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="nothing to read"):
        ingest_run([], tmp_path / "run.duckdb")


def test_every_failure_is_told_when_all_sources_fail(tmp_path: Path) -> None:
    (tmp_path / "a.sqlite").write_text("no")
    (tmp_path / "b.sqlite").touch()
    with pytest.raises(SourceError) as caught:
        ingest_run([tmp_path / "a.sqlite", tmp_path / "b.sqlite"], tmp_path / "run.duckdb")
    assert [line.split(":")[0] for line in str(caught.value).splitlines()] == [
        "a.sqlite",
        "b.sqlite",
    ]


def test_an_unreadable_source_is_a_note_of_the_run(sample_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.sqlite").write_bytes(b"SQLite format 3\0 and then nothing")
    done = ingest_run([sample_folder, tmp_path / "bad.sqlite"], tmp_path / "run.duckdb")
    assert [str(f).split(":")[0] for f in done.failures] == ["bad.sqlite"]
    with open_run(done.path) as run:
        note = run.frame(
            "SELECT severity, message FROM diagnostics WHERE code = 'source_unreadable'"
        )
    assert note.rows() == [("error", str(done.failures[0]))]


@pytest.mark.parametrize("jobs", [1, 2])
def test_progress_rises_to_the_whole(sample_folder: Path, tmp_path: Path, jobs: int) -> None:
    told: list[float] = []
    ingest_run(
        [sample_folder],
        tmp_path / "run.duckdb",
        jobs=jobs,
        on_progress=lambda _, share: told.append(share),
    )
    assert told == sorted(told)
    assert told[-1] == pytest.approx(1.0)


def test_a_small_chunk_gives_the_same_tables(
    sample_folder: Path, sample_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("traceq.ingest.nsys.export.CHUNK_ROWS", 3)
    target = tmp_path / "run.duckdb"
    ingest_run([sample_folder], target, jobs=1)
    with open_run(target) as run:
        assert contents(run) == contents(sample_run)


def test_a_temporary_folder_may_have_a_long_name(
    sample_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / ("x" * 120)
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    done = traceq_process("report", sample_folder, "--jobs", 2)
    assert (done.returncode, done.stderr) == (0, "")
