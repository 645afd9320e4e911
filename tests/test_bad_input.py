"""Bad input ends in exit status 2 and one clear line, and is never touched."""

import gzip
import hashlib
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import zstandard

from tests.commands import traceq
from tests.traces.nsys import NsysExport

GEMM = "gemm<float>(int)"


def fingerprint(path: Path) -> tuple[str, int, list[str]]:
    """Content and time of a file, and what lies beside it."""
    stat = path.stat()
    content = hashlib.sha256(path.read_bytes()).hexdigest()
    return content, stat.st_mtime_ns, sorted(p.name for p in path.parent.iterdir())


def refused(path: Path, tmp_path: Path) -> str:
    """Reports a bad file and returns its one line, once nothing was changed or left behind."""
    before = fingerprint(path)
    kept = tmp_path / "kept"
    kept.mkdir(exist_ok=True)
    done = traceq("report", path, "--save", kept / "run.duckdb")
    assert fingerprint(path) == before
    assert list(kept.iterdir()) == []
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"traceq: {path.name}: ")
    assert str(path.parent) not in line
    return line


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    return folder


@pytest.fixture
def good(folder: Path) -> Path:
    export = NsysExport().capture()
    for k in range(200):
        export.kernel(GEMM, 1000 * k + 1000, 1000 * k + 1500)
    return export.write(folder / "good.sqlite")


def test_a_file_of_another_kind(folder: Path, tmp_path: Path) -> None:
    path = folder / "notes.sqlite"
    path.write_text("this is not a database\n" * 10)
    assert "not an Nsight Systems SQLite export" in refused(path, tmp_path)


def test_an_empty_file(folder: Path, tmp_path: Path) -> None:
    path = folder / "empty.sqlite"
    path.touch()
    assert "empty: export it again" in refused(path, tmp_path)


def test_a_missing_file(tmp_path: Path) -> None:
    done = traceq("report", tmp_path / "nowhere.sqlite")
    assert done.returncode == 2
    assert done.stderr == "traceq: nowhere.sqlite: cannot be read: No such file or directory\n"


def test_a_database_of_something_else(folder: Path, tmp_path: Path) -> None:
    path = folder / "other.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE cookies (name TEXT, value TEXT)")
    assert "without any Nsight Systems table" in refused(path, tmp_path)


@pytest.mark.parametrize("part", range(20))
def test_a_file_cut_short_anywhere(good: Path, tmp_path: Path, part: int) -> None:
    whole = good.read_bytes()
    # From inside the header, over page borders, to the last byte but one.
    offset = (
        (40, 99, 100, 4096, len(whole) - 1)[part] if part < 5 else len(whole) * (part - 4) // 16
    )
    good.write_bytes(whole[:offset])
    line = refused(good, tmp_path)
    assert "cut short" in line
    assert "export it again" in line


@pytest.mark.parametrize("seed", range(10))
def test_a_file_with_a_page_overwritten(good: Path, tmp_path: Path, seed: int) -> None:
    whole = bytearray(good.read_bytes())
    page = 1 + seed % (len(whole) // 4096 - 1)
    whole[page * 4096 : page * 4096 + 4096] = bytes((37 * seed + k) % 251 for k in range(4096))
    good.write_bytes(whole)
    done = traceq("report", good)
    # A page that holds no row of ours may be damaged without harm; what may not be is a traceback.
    assert done.returncode in {0, 2}
    assert "Traceback" not in done.stderr
    if done.returncode == 2:
        assert done.stderr.startswith("traceq: good.sqlite: ")
        assert len(done.stderr.splitlines()) == 1


WRITES = {
    "locked": ["BEGIN EXCLUSIVE"],
    "in the middle of a write": [
        "PRAGMA cache_size = 1",
        "BEGIN IMMEDIATE",
        """WITH RECURSIVE n(k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM n WHERE k < 2000)
        INSERT INTO StringIds SELECT 10000 + k, hex(randomblob(100)) FROM n""",
    ],
    "newest rows still in the log": [
        "PRAGMA journal_mode = WAL",
        "INSERT INTO StringIds VALUES (99999, 'late')",
    ],
}
WRITER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
for statement in sys.argv[2:]:
    connection.execute(statement)
print("ready", flush=True)
sys.stdin.read()
"""


@contextmanager
def writing(path: Path, statements: list[str]) -> Iterator[None]:
    """Another process that holds the file open after some statements."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, path, *statements],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield
        process.kill()


@pytest.mark.parametrize("state", WRITES)
def test_a_file_that_another_process_is_writing(good: Path, tmp_path: Path, state: str) -> None:
    with writing(good, WRITES[state]):
        line = refused(good, tmp_path)
    assert "another program" in line
    assert "wait for the export to end" in line


def test_a_folder_without_sources(tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    folder.mkdir()
    (folder / "README.txt").write_text("nothing here")
    done = traceq("report", folder)
    assert done.returncode == 2
    assert done.stderr == "traceq: traces: a folder without any source: export into it\n"


# Root may read every file, so it gives that power up first.
WITHOUT_POWER = (
    ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
)


def test_a_file_without_permission(good: Path) -> None:
    good.chmod(0)
    done = subprocess.run(
        [*WITHOUT_POWER, sys.executable, "-m", "traceq", "report", good],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == "traceq: good.sqlite: cannot be read: Permission denied\n"


def test_a_pattern_that_matches_nothing(tmp_path: Path) -> None:
    done = traceq("report", "*.sqlite", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, "traceq: *.sqlite: matches no file\n")


@pytest.mark.parametrize("packing", ["gzip", "zstd"])
@pytest.mark.parametrize("share", [0.3, 0.999])
def test_a_compressed_file_cut_short(
    good: Path, tmp_path: Path, packing: str, share: float
) -> None:
    pack = gzip.compress if packing == "gzip" else zstandard.compress
    packed = pack(good.read_bytes())
    path = good.with_suffix(".sqlite.packed")
    path.write_bytes(packed[: int(len(packed) * share)])
    line = refused(path, tmp_path)
    assert "copy" in line


@pytest.mark.parametrize("state", ["in the middle of a write", "newest rows still in the log"])
def test_a_link_to_a_file_that_is_being_written(good: Path, tmp_path: Path, state: str) -> None:
    link = tmp_path / "elsewhere" / "link.sqlite"
    link.parent.mkdir()
    link.symlink_to(good)
    with writing(good, WRITES[state]):
        done = traceq("report", link)
    assert done.returncode == 2
    assert "another program is writing it" in done.stderr


ODD_CELLS = [
    "INSERT INTO StringIds VALUES ('x', 'hunter2')",
    "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET deviceId = 'hunter2' WHERE rowid = 150",
    "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = 'hunter2' WHERE rowid = 150",
    "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET deviceId = 99999999999 WHERE rowid = 150",
    "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET demangledName = x'ff' WHERE rowid = 150",
    "UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET globalTid = 'hunter2'",
    "UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET correlationId = 'hunter2' WHERE rowid = 10",
    "UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = 'hunter2'",
    "UPDATE META_DATA_EXPORT SET value = 'hunter2'",
]


@pytest.mark.parametrize("statement", ODD_CELLS)
def test_an_odd_cell_never_stops_the_others_nor_gets_out(good: Path, statement: str) -> None:
    bad = good.with_name("bad.sqlite")
    bad.write_bytes(good.read_bytes())
    with closing(sqlite3.connect(bad)) as connection, connection:
        connection.execute(statement)
    done = traceq("report", good, bad)
    assert done.returncode in {0, 2}  # some of these change nothing that is needed
    assert "good.sqlite" in done.stdout
    assert "Traceback" not in done.stderr
    assert "hunter2" not in done.stdout + done.stderr
    if done.returncode == 2:
        (line,) = done.stderr.splitlines()
        assert line.startswith("traceq: bad.sqlite: damaged: ")


def test_a_failed_save_is_told_before_anything_is_read(good: Path, tmp_path: Path) -> None:
    for name, message in (
        ("nowhere/run.duckdb", "there is no such folder"),
        ("what?.duckdb", "cannot have a question mark"),
    ):
        done = traceq("report", good, "--save", tmp_path / name)
        assert done.returncode == 2
        assert message in done.stderr


def test_one_bad_source_does_not_stop_the_others(good: Path) -> None:
    bad = good.with_name("bad.sqlite")
    bad.write_bytes(good.read_bytes()[:5000])
    done = traceq("report", good, bad)
    assert done.returncode == 2
    assert "good.sqlite" in done.stdout
    assert "INCOMPLETE" in done.stdout
    (line,) = done.stderr.splitlines()
    assert line.startswith("traceq: bad.sqlite: cut short")
    allowed = traceq("report", good, bad, "--allow-incomplete")
    assert (allowed.returncode, allowed.stdout) == (0, done.stdout)


def test_a_report_that_is_not_exported_names_the_exact_command(
    folder: Path, tmp_path: Path
) -> None:
    path = folder / "slow run.nsys-rep"
    path.write_bytes(b"\x00nsys report, in a format of its own")
    line = refused(path, tmp_path)
    assert line.endswith(
        "nsys export --type sqlite --include-blobs=true --include-json=true "
        "-o 'slow run.sqlite' 'slow run.nsys-rep'"
    )


def test_a_file_in_write_ahead_format_leaves_nothing_beside_it(good: Path) -> None:
    with closing(sqlite3.connect(good)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    before = fingerprint(good)
    assert traceq("report", good).returncode == 0
    assert fingerprint(good) == before


def test_a_good_file_is_left_as_it_was(good: Path, tmp_path: Path) -> None:
    before = fingerprint(good)
    assert traceq("report", good).returncode == 0
    assert fingerprint(good) == before
