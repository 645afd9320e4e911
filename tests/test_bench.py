"""The bench on real processes with gloo: rates, results, the ring, and what a killed rank does."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.bench_work import parts_of_an_all_reduce, ring_and_library
from tests.commands import traceq_process as traceq
from tests.conftest import RunMaker
from tests.processes import kill_one
from tests.test_schemas import schema
from tests.traces.workload import MIB, MS, Phase, Workload
from traceq.bench.launch import run_processes
from traceq.ingest.nccl_tests import read_nccl_tests
from traceq.model.collectives import Op, bus_factor
from traceq.report import build_report

OPS = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce",
       "send_recv"]  # fmt: skip


def bench(*words: object) -> dict[str, Any]:
    done = traceq("bench", "--backend", "gloo", "--iters", "3", "--warmup", "1", "--format", "json",
                  *words)  # fmt: skip
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    jsonschema.validate(result, schema("bench"))
    return result


@pytest.fixture(scope="module")
def four() -> dict[str, Any]:
    """All operations on four processes."""
    return bench("--nproc", "4", "-b", "4K", "-e", "1M", "-f", "16")


def test_every_operation_is_measured_and_right(four: dict[str, Any]) -> None:
    assert list(dict.fromkeys(row["op"] for row in four["rows"])) == OPS
    assert {row["wrong"] for row in four["rows"]} == {0}
    assert {row["size_bytes"] for row in four["rows"]} == {4096, 65536, 1 << 20}


def test_rates_follow_from_size_time_and_factor(four: dict[str, Any]) -> None:
    for row in four["rows"]:
        algbw = row["size_bytes"] / (row["time_us"] * 1e3)
        assert row["algbw_gbps"] == pytest.approx(algbw)
        factor = bus_factor(Op(row["op"]), 4)
        assert factor is not None
        assert row["busbw_gbps"] == pytest.approx(algbw * factor)


def test_a_fit_has_its_spread(four: dict[str, Any]) -> None:
    assert {fit["op"] for fit in four["fit"]} <= set(OPS)
    assert all(fit["points"] == 3 and fit["spread"] >= 0 for fit in four["fit"])
    assert len(four["fit"]) == len(OPS)


def test_counts_are_those_of_nccl_tests(four: dict[str, Any]) -> None:
    counts = {row["op"]: row["count"] for row in four["rows"] if row["size_bytes"] == 4096}
    assert counts["all_reduce"] == 1024
    assert counts["all_gather"] == counts["all_to_all"] == 256


def test_its_text_is_read_as_that_of_nccl_tests(tmp_path: Path) -> None:
    file = tmp_path / "b.txt"
    sizes = ("--nproc", "2", "--backend", "gloo", "-b", "64K", "-e", "1M", "-f", "4")
    form = ("--ops", "all_gather", "--format", "nccl-tests", "--output", file)
    done = traceq("bench", *sizes, "--iters", "3", *form)
    assert done.returncode == 0, done.stderr
    read = read_nccl_tests(file)
    assert (read.op, read.ranks, read.nodes, read.complete, read.dropped) == (
        Op.ALL_GATHER, 2, 1, True, 0,
    )  # fmt: skip
    assert read.rows["size_bytes"].to_list() == [65536, 262_144, 1 << 20]
    for row in read.rows.to_dicts():
        assert row["busbw_gbps"] == pytest.approx(row["algbw_gbps"] / 2, abs=0.011)


def test_one_rank_has_no_bus_bandwidth() -> None:
    result = bench("--nproc", "1", "-b", "4K", "-e", "64K", "--ops", "all_reduce,all_gather")
    assert {row["busbw_gbps"] for row in result["rows"]} == {None}
    assert result["fit"] == []
    shown = traceq("bench", "--nproc", "1", "--ops", "all_reduce", "-b", "4K", "-e", "4K")
    assert "unknown" in shown.stdout


def test_a_bench_is_a_baseline(tmp_path: Path, make_run: RunMaker) -> None:
    file = tmp_path / "bench.json"
    result = bench("--nproc", "2", "-b", "1M", "-e", "4M", "-f", "4", "--ops", "all_reduce")
    file.write_text(json.dumps(result, indent=1))
    phases = (Phase("all_reduce", MIB, 2 * MS),)
    files = Workload(ranks=2, per_node=2, steps=3, phases=phases).write_torch(tmp_path)
    (row,) = build_report(make_run(*files, baselines=(str(file),))).collectives
    assert row["peak_source"] == "baseline"
    assert row["peak_gbps"] == pytest.approx(result["rows"][0]["busbw_gbps"])


class TestRing:
    """The all_reduce of sends and receives."""

    def test_four_ranks_send_6144_of_4096_bytes(self) -> None:
        assert run_processes(ring_and_library, 4, 1024) == [(6144, True)] * 4

    @pytest.mark.parametrize(("ranks", "elements"), [(2, 1024), (3, 1000), (4, 1001), (3, 2)])
    def test_its_sum_is_the_library_s(self, ranks: int, elements: int) -> None:
        told = run_processes(ring_and_library, ranks, elements)
        assert {same for _, same in told} == {True}
        assert sum(sent for sent, _ in told) == 2 * (ranks - 1) * elements * 4

    def test_the_bench_measures_it(self) -> None:
        result = bench("--nproc", "4", "--ops", "all_reduce", "--algorithm", "ring",
                       "-b", "4096", "-e", "4096")  # fmt: skip
        (row,) = result["rows"]
        assert (row["algorithm"], row["wrong"], row["sent_bytes"]) == ("ring", 0, 6144)

    def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather(self) -> None:
        assert run_processes(parts_of_an_all_reduce, 3, 5) == [(True, True)] * 3


def test_a_killed_rank_ends_the_others_and_the_command() -> None:
    words = ("bench", "--nproc", "3", "--backend", "gloo", "--ops", "all_reduce", "-b", "4K")
    ended = kill_one((*words, "-e", "4K", "--iters", "100000000"), ranks=3)
    assert (ended.status, ended.out) == (2, "")
    message = r"^traceq: rank \d of 3 was killed by signal 9: the others were ended$"
    assert re.search(message, ended.errors, re.MULTILINE)
    assert ended.left == []


@pytest.mark.parametrize(
    ("words", "fact"),
    [
        (("--ops", "all_reduces"), "no such operation"),
        (("-b", "4X"), "must be bytes"),
        (("--backend", "nccl", "--nproc", "2"), "nccl needs a GPU"),
        (("-b", "1M", "-e", "4K"), "there is none"),
        (("--ops", "all_reduce,reduce", "--format", "nccl-tests"), "name one with --ops"),
    ],
)
def test_mistakes_are_told(words: tuple[str, ...], fact: str) -> None:
    done = traceq("bench", *words)
    assert (done.returncode, fact in done.stderr) == (2, True)
