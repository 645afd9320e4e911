"""The timeline of a run: at any level of detail, and as trace events for Perfetto."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import RunMaker
from tests.traces.nsys import NsysExport
from tests.traces.workload import MS, Workload, late
from traceq.export import trace_events
from traceq.query import run_query
from traceq.runfile import Run

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
        told: dict[str, Any] = json.loads(trace_events(run, 0, 1 << 60, **more))
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

    def test_a_long_window_is_cut_at_its_end(self, small: Run) -> None:
        assert [e["name"] for e in self.events(small, most=2) if e["ph"] == "X"] == ["a", "b"]
