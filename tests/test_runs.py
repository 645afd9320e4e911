"""The commands on the store: what they print, in words and as JSON by the shipped schemas."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import jsonschema
import pytest

from tests import commands
from tests.storing import Place, tiny_source
from tests.traces.nsys import NsysExport
from traceq.runfile import open_run

SCHEMAS = Path(__file__).parents[1] / "traceq" / "render"


def traceq(place: Place, *arguments: object, cwd: Path | None = None) -> commands.Done:
    with patch.dict(os.environ, place.environment):
        return commands.traceq(*arguments, cwd=cwd)


def output(place: Place, *arguments: object) -> str:
    done = traceq(place, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def valid(text: str, schema: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(text)
    rules = json.loads((SCHEMAS / f"{schema}.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(rules)
    jsonschema.validate(data, rules, format_checker=jsonschema.FormatChecker())
    return data


@pytest.fixture
def lite(tmp_path: Path) -> Place:
    return Place(tmp_path / "store", None)


def test_a_run_goes_in_by_name_and_comes_out_by_it(place: Place, sample_folder: Path) -> None:
    words = ("ingest", sample_folder, "--name", "night run", "--tag", "b", "--tag", "a")
    data = valid(output(place, *words, "--format", "json"), "ingest")
    assert (data["created"], data["failures"]) == (True, [])
    assert data["run"]["tags"] == ["a", "b"]
    assert data["run"]["step_time_ns"] == 1_100_000
    again = output(place, *words)
    assert again == (
        "night run: these sources are stored already under this name; nothing was read\n"
    )
    assert valid(output(place, *words, "--format", "json"), "ingest")["created"] is False
    listed = valid(output(place, "runs", "list", "--format", "json"), "runs")
    shown = valid(output(place, "runs", "show", "night run", "--format", "json"), "runs")
    assert listed["runs"] == shown["runs"] == [data["run"]]
    report = json.loads(output(place, "report", "night run", "--format", "json"))
    assert (report["name"], report["metrics"]["comm_fraction"]) == ("night run", 4000 / 8200)
    statement = "SELECT count(*) AS n FROM device_ops"
    assert json.loads(output(place, "sql", "night run", statement, "--format", "json")) == [
        {"n": 28}
    ]
    assert len(json.loads(output(place, "query", "streams", "night run", "--format", "json"))) == 4


def test_lists_are_of_at_most_a_hundred_columns(lite: Place, tmp_path: Path) -> None:
    store = lite.open()
    paths = [tiny_source(tmp_path / f"{k}.sqlite", k) for k in range(3)]
    store.ingest(paths[:1], name="n" * 200, tags=["t" * 30, "u" * 30])
    store.ingest(paths[1:2], name="short", tags=["x"])
    (tmp_path / "bad.sqlite").touch()
    store.ingest([paths[2], tmp_path / "bad.sqlite"], name="cut")
    lines = output(lite, "runs", "list").splitlines()
    assert max(map(len, lines)) <= 100
    assert [line.split()[0] for line in lines[:4]] == ["name", "*", "short", lines[3].split()[0]]
    assert lines[4] == "* not every source was read whole"
    assert lines[2].split()[1:] == [
        *f"{store.find('short').stored_at:%Y-%m-%d %H:%M}".split(), "1", "1", "H100", "80GB",
        "HBM3", "101", "ns", "x",
    ]  # fmt: skip
    assert max(map(len, output(lite, "runs", "show", "n" * 200).splitlines())) <= 100
    assert len(output(lite, "runs", "list", "--tag", "x").splitlines()) == 2
    assert (
        valid(output(lite, "runs", "list", "--format", "json"), "runs")["runs"][0]["name"] == "cut"
    )


def test_both_schemas_say_the_same_of_a_run() -> None:
    runs, ingest = (
        json.loads((SCHEMAS / f"{name}.schema.json").read_text())["$defs"]
        for name in ("runs", "ingest")
    )
    assert runs == ingest


def test_an_empty_store_is_said_in_words_and_listed_as_nothing(lite: Place) -> None:
    done = traceq(lite, "runs", "list")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "traceq: no run in the store: add one with traceq ingest\n"
    assert valid(output(lite, "runs", "list", "--format", "json"), "runs")["runs"] == []


def test_tags_and_removals_are_told(lite: Place, tmp_path: Path) -> None:
    lite.open().ingest([tiny_source(tmp_path / "a.sqlite")], name="a", tags=["x"])
    assert output(lite, "runs", "tag", "a", "z", "y", "--remove", "x") == "a: y, z\n"
    assert output(lite, "runs", "tag", "a", "--remove", "y", "--remove", "z") == "a: no tags\n"
    assert traceq(lite, "runs", "tag", "a").returncode == 2
    done = traceq(lite, "runs", "rm", "b", "a")
    assert (done.returncode, done.stdout) == (2, "a: removed\n")
    assert done.stderr == (
        "traceq: b: no run of the store has that name: traceq runs list names those there are\n"
    )


def test_a_rescan_tells_what_it_changed(lite: Place, tmp_path: Path) -> None:
    store = lite.open()
    for name in ("a", "b"):
        store.ingest([tiny_source(tmp_path / f"{name}.sqlite", ord(name))], name=name)
    assert output(lite, "runs", "rescan") == "nothing to change: every run has its file\n"
    store.find("a").path.unlink()
    store._catalog.forget(store.find("b").path.stem)
    (lite.folder / "runs" / "odd.duckdb").write_text("odd")
    done = traceq(lite, "runs", "rescan")
    assert (done.returncode, done.stdout) == (
        2, "b: added\na: dropped, since its file is gone\n",
    )  # fmt: skip
    assert done.stderr == (
        "traceq: odd.duckdb: not a run file: make one with traceq report SOURCES --save\n"
    )


@pytest.mark.parametrize("form", ["table", "json"])
def test_what_is_incomplete_ends_in_two_unless_allowed(
    lite: Place, tmp_path: Path, form: str
) -> None:
    good, bad = tiny_source(tmp_path / "a.sqlite"), tmp_path / "bad.sqlite"
    bad.touch()
    words = ("ingest", good, bad, "--name", "night", "--format", form)
    done = traceq(lite, *words)
    assert (done.returncode, done.stderr) == (2, "traceq: bad.sqlite: empty: export it again\n")
    if form == "json":
        data = valid(done.stdout, "ingest")
        assert (data["run"]["status"], data["failures"]) == (
            "incomplete", ["bad.sqlite: empty: export it again"],
        )  # fmt: skip
    assert traceq(lite, *words, "--allow-incomplete").returncode == 0
    export = NsysExport().capture().kernel("gemm<f>", 1000, 1100)
    export.row("DIAGNOSTIC_EVENT", severity=3, text="9 events dropped")
    path = export.write(tmp_path / "lossy.sqlite")
    done = traceq(lite, "ingest", path, "--name", "lossy")
    assert done.returncode == 2
    assert done.stderr == (
        "traceq: a source is incomplete: see traceq report, or pass --allow-incomplete\n"
    )


def test_where_nothing_is_stored_the_reasons_are_told(lite: Place, tmp_path: Path) -> None:
    (tmp_path / "bad.sqlite").touch()
    done = traceq(lite, "ingest", tmp_path / "bad.sqlite", "--name", "night")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "traceq: bad.sqlite: empty: export it again\n"
    done = traceq(lite, "ingest", tmp_path / "bad.sqlite", "--name", "a/b")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


class TestNames:
    """A name where a run or sources are asked for."""

    def test_a_path_wins_over_a_name(self, lite: Place, tmp_path: Path) -> None:
        here = tiny_source(tmp_path / "night", 7)
        lite.open().ingest([tiny_source(tmp_path / "a.sqlite")], name=here.name)
        report = ("report", "night", "--format", "json")
        of_path = json.loads(traceq(lite, *report, cwd=tmp_path).stdout)
        assert [each["file"] for each in of_path["sources"]] == ["night"]
        by_name = json.loads(output(lite, *report))
        assert [each["file"] for each in by_name["sources"]] == ["a.sqlite"]

    def test_a_name_with_signs_of_a_pattern_is_found(self, lite: Place, tmp_path: Path) -> None:
        lite.open().ingest([tiny_source(tmp_path / "a.sqlite")], name="run [8]*")
        assert "run [8]*" in output(lite, "report", "run [8]*")

    def test_a_name_of_nothing_is_one_line(self, lite: Place, tmp_path: Path) -> None:
        missing = "traceq: nihgt: cannot be read: No such file or directory\n"
        done = traceq(lite, "report", "nihgt")
        assert (done.returncode, done.stderr) == (2, missing)
        assert not lite.folder.exists()
        lite.open().ingest([tiny_source(tmp_path / "a.sqlite")], name="night")
        for words in (("report", "nihgt"), ("query", "streams", "nihgt"), ("sql", "nihgt", "x")):
            done = traceq(lite, *words)
            assert (done.returncode, done.stderr) == (
                2, "traceq: nihgt: neither a file nor a run of the store: did you mean night?\n",
            )  # fmt: skip
        done = traceq(lite, "report", "something else")
        assert done.stderr == (
            "traceq: something else: cannot be read: No such file or directory\n"
        )

    def test_an_error_in_a_statement_calls_the_run_by_its_name(
        self, lite: Place, tmp_path: Path
    ) -> None:
        lite.open().ingest([tiny_source(tmp_path / "a.sqlite")], name="night")
        done = traceq(lite, "sql", "night", "SELECT nonsense")
        assert done.stderr.startswith("traceq: night: Binder Error")

    def test_options_of_reading_are_not_ignored(self, lite: Place, tmp_path: Path) -> None:
        lite.open().ingest([tiny_source(tmp_path / "a.sqlite")], name="night")
        done = traceq(lite, "report", "night", "--nranks", 4)
        assert done.returncode == 2
        assert "options of reading change nothing in it" in done.stderr


@pytest.mark.parametrize("words", [["--help"], ["report", "examples/two_ranks"]])
def test_what_needs_no_store_loads_no_database(words: list[str]) -> None:
    code = (
        f"import sys\nsys.argv = ['traceq', *{words!r}]\nfrom traceq.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(sorted({'sqlalchemy', 'alembic'} & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        cwd=Path(__file__).parents[1], env=os.environ,
    )  # fmt: skip
    assert done.stderr == "[]\n"


def test_a_stored_run_is_a_run_file_like_any(lite: Place, tmp_path: Path) -> None:
    run = lite.open().ingest([tiny_source(tmp_path / "a.sqlite")], name="night").run
    with open_run(run.path) as opened:
        assert opened.frame("SELECT name FROM run").item() == "night"


def test_a_look_by_name_leaves_nothing_beside_the_catalog(lite: Place, tmp_path: Path) -> None:
    output(lite, "ingest", tiny_source(tmp_path / "a.sqlite"), "--name", "night")
    before = sorted(path.name for path in lite.folder.iterdir())
    assert "night" in output(lite, "report", "night")
    assert sorted(path.name for path in lite.folder.iterdir()) == before
