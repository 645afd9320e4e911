"""Sources are known by their first bytes, in files, folders, patterns, and compressed."""

import gzip
import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest
import zstandard

from tests.conftest import RunMaker
from tests.traces.nsys import NsysExport
from traceq.errors import SourceError
from traceq.ingest.detect import detect, find_sources, plain_file
from traceq.query import run_query


@pytest.fixture
def export(tmp_path: Path) -> Path:
    return NsysExport().capture().kernel("gemm<float>", 1000, 1100).write(tmp_path / "a.sqlite")


@pytest.mark.parametrize("name", ["b.sqlite.gz", "b.sqlite.zst", "b.sqlite", "anything"])
@pytest.mark.parametrize("packing", [None, "gzip", "zstd"])
def test_the_name_of_a_file_says_nothing(export: Path, name: str, packing: str | None) -> None:
    data = export.read_bytes()
    pack = {None: bytes, "gzip": gzip.compress, "zstd": zstandard.compress}[packing]
    path = export.with_name(name)
    path.write_bytes(pack(data))
    source = detect(path)
    assert (source.kind, source.compression) == ("nsys", packing)


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_a_compressed_export_reads_like_a_plain_one(
    export: Path, make_run: RunMaker, pack: object
) -> None:
    packed = export.with_name("packed.sqlite.x")
    packed.write_bytes(pack(export.read_bytes()))  # type: ignore[operator]
    plain, same = (run_query(make_run(path), "comm_fraction") for path in (export, packed))
    assert plain.equals(same)


def test_a_stream_of_several_zstd_frames_is_read_whole(export: Path, tmp_path: Path) -> None:
    data = export.read_bytes()
    packed = tmp_path / "frames.zst"
    packed.write_bytes(zstandard.compress(data[:5000]) + zstandard.compress(data[5000:]))
    out = tmp_path / "out"
    out.mkdir()
    assert plain_file(detect(packed), out).read_bytes() == data


def test_a_folder_gives_its_sources_in_order_and_passes_others_over(
    export: Path, tmp_path: Path
) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.sqlite").write_bytes(export.read_bytes())
    (tmp_path / "README.md").write_text("notes")
    (tmp_path / ".hidden.sqlite").write_bytes(export.read_bytes())
    found = find_sources([tmp_path])
    assert [s.file_name for s in found.sources] == ["a.sqlite", "b.sqlite"]
    assert found.failures == []


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("rank1.sqlite", b""),
        ("rank1.sqlite.gz", b"\x1f\x8b\x08\x00\x00\x00\x00\x00"),
        ("rank1.sqlite", b"\0" * 5000),
        ("rank1.json", b""),
        ("a.pt.trace.json.gz", b"\x1f\x8b\x08\x00\x00\x00\x00\x00"),
    ],
)
def test_what_is_called_like_a_source_is_never_passed_over(
    export: Path, tmp_path: Path, name: str, content: bytes
) -> None:
    (tmp_path / name).write_bytes(content)
    found = find_sources([tmp_path])
    assert [s.file_name for s in found.sources] == ["a.sqlite"]
    assert [str(f).split(":")[0] for f in found.failures] == [name]


def test_other_databases_and_json_of_a_folder_are_passed_over(export: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as connection:
        connection.execute("CREATE TABLE runs (name TEXT)")
    (tmp_path / "config.json").write_text('{"lr": 0.1}')
    (tmp_path / "empty.json").touch()
    hidden = tmp_path / ".checkpoints"
    hidden.mkdir()
    (hidden / "rank0.sqlite").write_bytes(export.read_bytes())
    found = find_sources([tmp_path])
    assert ([s.file_name for s in found.sources], found.failures) == (["a.sqlite"], [])


def test_a_pipe_or_an_empty_name_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.sqlite")
    found = find_sources([tmp_path / "pipe.sqlite", ""])
    assert [str(f) for f in found.failures] == [
        "pipe.sqlite: not a regular file",
        "an empty name names no source",
    ]


@pytest.mark.parametrize("name", ["loop.sqlite", "x" * 300, b"byte\xff.sqlite"])
def test_names_that_the_system_refuses_are_told(tmp_path: Path, name: str | bytes) -> None:
    path = tmp_path / os.fsdecode(name)
    if name == "loop.sqlite":
        path.symlink_to(path)
    (failure,) = find_sources([path]).failures
    assert "cannot be read" in str(failure)
    str(failure).encode("utf-8")


def test_a_pattern_that_matches_nothing_keeps_its_folder_to_itself(tmp_path: Path) -> None:
    (failure,) = find_sources([tmp_path / "*.sqlite"]).failures
    assert str(failure) == "*.sqlite: matches no file"


def test_a_name_of_any_bytes_is_read(export: Path, tmp_path: Path, make_run: RunMaker) -> None:
    for name in (b"a?b#c%41.sqlite", b"byte\xff.sqlite", "é 'x'.sqlite".encode()):
        path = tmp_path / os.fsdecode(name)
        path.write_bytes(export.read_bytes())
        assert make_run(path).frame("SELECT count(*) FROM device_ops").item() == 1


def test_a_packed_file_called_like_our_own_part_is_read(
    export: Path, tmp_path: Path, make_run: RunMaker
) -> None:
    path = tmp_path / "ops.parquet.gz"
    path.write_bytes(gzip.compress(export.read_bytes()))
    assert make_run(path).frame("SELECT count(*) FROM device_ops").item() == 1


def test_a_file_named_twice_is_read_once(export: Path, tmp_path: Path) -> None:
    (tmp_path / "link.sqlite").symlink_to(export)
    found = find_sources([export, tmp_path / "link.sqlite", tmp_path / "*.sqlite"])
    assert [s.file_name for s in found.sources] == ["a.sqlite"]


def test_a_report_beside_its_own_export_is_the_same_capture(export: Path, tmp_path: Path) -> None:
    (tmp_path / "a.nsys-rep").write_bytes(b"report a")
    (tmp_path / "c.nsys-rep").write_bytes(b"report c")
    found = find_sources([tmp_path])
    assert [(s.file_name, s.kind) for s in found.sources] == [
        ("a.sqlite", "nsys"),
        ("c.nsys-rep", "nsys-rep"),
    ]


def test_nsys_on_the_path_exports_a_report_into_a_folder_of_ours(
    export: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # nsys cannot be installed here, so a script stands in for it: it refuses the payload flags, as
    # an old nsys does, and then "exports" a file that is there.
    tools = tmp_path / "bin"
    tools.mkdir()
    nsys = tools / "nsys"
    nsys.write_text(
        "#!/bin/sh\n"
        'case "$*" in *--include-blobs*) exit 1;; esac\n'
        'while [ "$1" != "-o" ]; do shift; done\n'
        f'cp "{export}" "$2"\n'
    )
    nsys.chmod(nsys.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    report = tmp_path / "in" / "run.nsys-rep"
    report.parent.mkdir()
    report.write_bytes(b"report")
    out = tmp_path / "out"
    out.mkdir()
    assert plain_file(detect(report), out).read_bytes() == export.read_bytes()
    assert list(report.parent.iterdir()) == [report]
    nsys.write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(SourceError, match=r"nsys could not export it \(exit 3\)"):
        plain_file(detect(report), out / "..")
