"""The timeline of a run: at any level of detail, and as trace events for Perfetto."""

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from tests.commands import traceq
from tests.conftest import RunMaker
from tests.traces.nsys import NsysExport
from tests.traces.workload import MS, Workload, late
from traceq.export import trace_events
from traceq.query import run_query
from traceq.runfile import Run, open_run

KERNELS = ((1000, 1010, "a<f>"), (1020, 1025, "b<f>"), (1300, 1700, "c<f>"), (2005, 2010, "a<f>"))


@pytest.fixture
def small(tmp_path: Path, make_run: RunMaker) -> Run:
    """Four kernels of 10, 5, 400 and 5 ns, the first at 0."""
    export = NsysExport().capture()
    for start, end, name in KERNELS:
        export.kernel(name, start, end)
    return make_run(export.write(tmp_path / "a.sqlite"))


@pytest.fixture
def four(tmp_path: Path, make_run: RunMaker) -> Run:
    """Four ranks on one host, of which rank 3 is 20 ms late at every all_reduce."""
    work = Workload(ranks=4, per_node=4, steps=3, delay=late([3]))
    return make_run(*work.write_torch(tmp_path))


def rows(run: Run, **parameters: int) -> list[tuple[Any, ...]]:
    frame = run_query(run, "timeline", parameters)
    return frame.select("start_ns", "end_ns", "op_count", "busy_ns", "name").rows()


class TestDetail:
    """An operation of a pixel or more is a row; shorter ones are summed by pixel."""

    def test_at_the_finest_every_operation_is_a_row(self, small: Run) -> None:
        assert rows(small) == [
            (0, 10, 1, 10, "a"), (20, 25, 1, 5, "b"), (300, 700, 1, 400, "c"),
            (1005, 1010, 1, 5, "a"),
        ]  # fmt: skip

    def test_shorter_ones_are_summed_and_named_by_the_longest(self, small: Run) -> None:
        assert rows(small, pixel_ns=100) == [
            (0, 25, 2, 15, "a"), (300, 700, 1, 400, "c"), (1005, 1010, 1, 5, "a"),
        ]  # fmt: skip

    def test_what_ends_at_the_start_or_starts_at_the_end_is_not_in_the_window(
        self, small: Run
    ) -> None:
        assert rows(small, from_ns=10, to_ns=300) == [(20, 25, 1, 5, "b")]
        assert rows(small, from_ns=9, to_ns=301)[0] == (0, 10, 1, 10, "a")
        assert rows(small, from_ns=300, to_ns=301) == [(300, 700, 1, 400, "c")]

    def test_only_the_window_is_there(self, small: Run) -> None:
        assert rows(small, from_ns=24, to_ns=301) == [(20, 25, 1, 5, "b"), (300, 700, 1, 400, "c")]

    def test_busy_time_is_kept_at_every_detail(self, four: Run) -> None:
        sums = {
            pixel: run_query(four, "timeline", {"pixel_ns": pixel})["busy_ns"].sum()
            for pixel in (1, 10_000, 2 * MS, 50 * MS)
        }
        (total,) = four.frame("SELECT sum(end_ns - start_ns)::BIGINT FROM device_ops").row(0)
        assert set(sums.values()) == {total}

    def test_collectives_know_what_they_waited(self, four: Run) -> None:
        frame = run_query(four, "timeline").drop_nulls("collective_id")
        waits = Counter((row["rank"], row["wait_ns"]) for row in frame.to_dicts() if row["wait_ns"])
        assert waits == {(rank, 20 * MS): 3 for rank in range(3)}
        assert set(frame["op"]) == {"all_reduce", "all_gather", "reduce_scatter"}

    def test_ranks_can_be_chosen(self, four: Run) -> None:
        frame = run_query(four, "timeline", {"first_rank": 1, "last_rank": 2})
        assert set(frame["rank"]) == {1, 2}


class TestEvents:
    """What ui.perfetto.dev opens."""

    def events(self, run: Run, **more: int) -> list[dict[str, Any]]:
        told: dict[str, Any] = json.loads(b"".join(trace_events(run, 0, 1 << 60, **more)))
        events: list[dict[str, Any]] = told["traceEvents"]
        return events

    def test_every_operation_is_a_slice_in_microseconds(self, small: Run) -> None:
        slices = [e for e in self.events(small) if e["ph"] == "X"]
        assert [(e["name"], e["ts"], e["dur"], e["cat"]) for e in slices] == [
            ("a", 0.0, 0.01, "compute"), ("b", 0.02, 0.005, "compute"),
            ("c", 0.3, 0.4, "compute"), ("a", 1.005, 0.005, "compute"),
        ]  # fmt: skip

    def test_ranks_and_streams_are_named(self, four: Run) -> None:
        named = {(e["name"], e["args"]["name"]) for e in self.events(four) if e["ph"] == "M"}
        assert {("process_name", f"rank {rank}") for rank in range(4)} <= named
        assert ("thread_name", "stream 16") in named

    def test_waiting_is_a_slice_and_a_collective_a_flow_over_its_ranks(self, four: Run) -> None:
        events = self.events(four)
        waits = [e for e in events if e.get("cat") == "wait"]
        assert {(e["pid"], e["dur"]) for e in waits} == {(rank, 20_000.0) for rank in range(3)}
        flows = Counter((e["id"], e["ph"]) for e in events if e.get("cat") == "collective")
        assert {flows[i, "s"] for i, _ in flows} == {1}
        assert {flows[i, "t"] for i, _ in flows} == {3}

    def test_a_flow_begins_with_the_first_to_arrive(
        self, tmp_path: Path, make_run: RunMaker
    ) -> None:
        work = Workload(ranks=4, per_node=4, steps=3, delay=late([0]))
        events = self.events(make_run(*work.write_torch(tmp_path)))
        flows = [e for e in events if e.get("cat") == "collective"]
        begin = {e["id"]: e for e in flows if e["ph"] == "s"}
        assert all(begin[e["id"]]["ts"] <= e["ts"] for e in flows)
        assert {begin[id_]["pid"] for id_ in begin if id_ % 3 == 0} == {1}

    @pytest.mark.parametrize("at_once", [1, 2, 5, 7])
    def test_pieces_make_the_whole(
        self, four: Run, at_once: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        whole = self.events(four)
        monkeypatch.setattr("traceq.export._AT_ONCE", at_once)
        assert Counter(map(json.dumps, self.events(four))) == Counter(map(json.dumps, whole))

    def test_a_long_window_is_cut_at_its_end(self, small: Run) -> None:
        assert [e["name"] for e in self.events(small, most=2) if e["ph"] == "X"] == ["a", "b"]


class TestCommand:
    """`traceq export`: the whole run, or some steps of it, for other tools."""

    @pytest.fixture
    def saved(self, tmp_path: Path) -> Path:
        """A run of four ranks and three steps of 49 ms and more, as a file."""
        sources = Workload(ranks=4, per_node=4, steps=3, delay=late([3])).write_torch(tmp_path)
        path = tmp_path / "night.duckdb"
        assert traceq("report", *sources, "--save", path, "--name", "night").returncode == 0
        return path

    def slices(self, path: Path) -> list[dict[str, Any]]:
        text = path.read_bytes()
        told = json.loads(gzip.decompress(text) if path.suffix == ".gz" else text)
        return [event for event in told["traceEvents"] if event["ph"] == "X"]

    def test_every_operation_is_in_the_trace(self, saved: Path, tmp_path: Path) -> None:
        done = traceq("export", saved, "--to", "perfetto", cwd=tmp_path)
        assert (done.returncode, done.stdout) == (0, "")
        assert done.stderr == "traceq: wrote night.json.gz\n"
        with open_run(saved) as run:
            (count,) = run.frame("SELECT count(*) FROM device_ops").row(0)
        slices = self.slices(tmp_path / "night.json.gz")
        assert sum(e["cat"] != "wait" for e in slices) == count

    def test_steps_are_cut_out(self, saved: Path, tmp_path: Path) -> None:
        for steps, there in (("1", {1}), ("1-2", {1, 2}), ("2-1", {1, 2})):
            path = tmp_path / f"{steps}.json"
            done = traceq("export", saved, "--to", "perfetto", "--steps", steps, "--output", path)
            assert done.returncode == 0
            counts = Counter(e["args"]["step"] for e in self.slices(path) if "args" in e)
            assert counts == dict.fromkeys(there, 4 * 9)  # 4 ranks, 3 phases of 3 kernels

    @pytest.fixture
    def noted(self, tmp_path: Path) -> Path:
        """A run with notes that are about no rank, and no steps."""
        source = NsysExport().capture().kernel("gemm<f>", 1000, 1100).write(tmp_path / "a.sqlite")
        path = tmp_path / "noted.duckdb"
        assert traceq("report", source, "--save", path).returncode == 0
        return path

    @pytest.mark.parametrize("kind", ["saved", "noted"])
    def test_tables_are_those_of_the_run(
        self, kind: str, tmp_path: Path, request: pytest.FixtureRequest
    ) -> None:
        saved = request.getfixturevalue(kind)
        done = traceq("export", saved, "--to", "parquet", "--output", tmp_path / "tables")
        assert done.returncode == 0
        with open_run(saved) as run:
            if kind == "noted":
                assert run.frame("SELECT * FROM diagnostics WHERE rank IS NULL").height > 0
            names = run.frame("SELECT table_name FROM duckdb_tables()")["table_name"].to_list()
            assert {p.name for p in (tmp_path / "tables").iterdir()} == {
                f"{name}.parquet" for name in names
            }
            for name in names:
                written = pl.read_parquet(tmp_path / "tables" / f"{name}.parquet")
                assert_frame_equal(written, run.frame(f"FROM {name}"), check_row_order=False)

    @pytest.mark.parametrize("name", ["../out", 'a"b'])
    def test_a_table_that_is_not_ours_is_refused(
        self, name: str, saved: Path, tmp_path: Path
    ) -> None:
        quoted = name.replace('"', '""')
        with duckdb.connect(str(saved)) as connection:
            connection.execute(f'CREATE TABLE "{quoted}" AS SELECT 1 AS a')
        done = traceq("export", saved, "--to", "parquet", "--output", tmp_path / "b" / "tables")
        assert done.returncode == 2
        (tmp_path / "b").mkdir()
        done = traceq("export", saved, "--to", "parquet", "--output", tmp_path / "b" / "tables")
        assert done.returncode == 2
        assert "holds a table that traceq did not make" in done.stderr
        assert list((tmp_path / "b").iterdir()) == []
        assert not list(tmp_path.glob("*.parquet"))

    def test_sources_are_read_first(self, tmp_path: Path) -> None:
        (source, *_) = Workload(ranks=1, per_node=1, steps=3).write_nsys(tmp_path)
        done = traceq("export", source, "--to", "perfetto", "--output", tmp_path / "a.json")
        assert done.returncode == 0
        assert self.slices(tmp_path / "a.json")

    @pytest.mark.parametrize(
        ("words", "told"),
        [
            (["--to", "perfetto", "--steps", "7-9"], "no steps 7 to 9: the run has steps 0 to 2"),
            (["--to", "perfetto", "--steps", "x"], "must be a step or a range of them"),
            (["--to", "parquet", "--steps", "1"], "use it with --to perfetto"),
            (["--to", "parquet", "--output", "."], "exists: choose another name"),
            (["--to", "perfetto", "--output", "gone/a.json"], "cannot be written: No such file"),
        ],
    )
    def test_what_cannot_be_is_told_and_leaves_nothing(
        self, saved: Path, tmp_path: Path, words: list[str], told: str
    ) -> None:
        before = sorted(tmp_path.iterdir())
        done = traceq("export", saved, *words, cwd=tmp_path)
        assert done.returncode == 2
        assert told in done.stderr
        assert sorted(tmp_path.iterdir()) == before
