"""Comparisons of real captures: what both can know, and nothing more."""

import json
from pathlib import Path

import pytest

from tests.conftest import RunMaker
from traceq.compare.comparison import Comparison, compare_runs
from traceq.render.compared import table


class TestBeforeAndAfter:
    """Two captures of 300 ms on two GPUs, without steps and without sizes."""

    @pytest.fixture
    def comparison(self, corpus: Path, make_run: RunMaker) -> Comparison:
        names = ("before", "after")
        return compare_runs(
            [make_run(corpus / "nsys" / f"h100x2_sendrecv_{n}_nsys2026.2.1.sqlite") for n in names]
        )

    def test_its_coverage_is_named(self, comparison: Comparison) -> None:
        text = table.render(comparison)
        for label in ("before", "after"):
            assert f"{label:<6}  2 of ?  capture 299 ms" in text
        assert "calls and exposed time are of a rank in its capture" in text

    def test_nothing_is_claimed_of_scaling_or_sizes(self, comparison: Comparison) -> None:
        for run in comparison.runs:
            assert run["weak_efficiency"] is run["strong_efficiency"] is None
            assert (run["step_time_ns"], run["reason"]) == (None, "few_steps")
        assert comparison.trend == []
        (fall,) = comparison.waterfalls
        assert (fall["verdict"], fall["parts"]) == ("unknown", [])
        (row,) = comparison.collectives
        assert (row["op"], row["bucket_bytes"], row["growth_ns"]) == ("send_recv", None, None)
        for entry in row["runs"]:
            assert entry["busbw_gbps"] is entry["efficiency"] is None
            assert entry["quality"] == "size_unknown"

    def test_what_both_know_is_compared(self, comparison: Comparison, corpus: Path) -> None:
        oracle = json.loads((corpus / "oracle.json").read_text())
        for run, kind in zip(comparison.runs, ("before", "after"), strict=True):
            ranks = oracle[f"nsys/h100x2_sendrecv_{kind}_nsys2026.2.1.sqlite"].values()
            exposed, window = (
                sum(rank[name] for rank in ranks) for name in ("exposed_comm_ns", "window_ns")
            )
            assert run["exposed_comm_fraction"] == exposed / window
        (cause,) = comparison.causes
        assert "5.6 % of its time is exposed communication, against 4.2 %" in cause["text"]


def test_a_slow_rank_among_gloo_processes_is_named(corpus: Path, make_run: RunMaker) -> None:
    healthy, slow = (corpus / "torch" / f"gloo_4rank_{kind}" for kind in ("healthy", "slow2"))
    comparison = compare_runs([make_run(healthy), make_run(slow)])
    (cause,) = comparison.causes
    assert cause["verdict"] == "more"
    assert "waiting for rank 2 (late by launch)" in cause["text"]
    (fall,) = comparison.waterfalls
    assert sum(part["difference_ns"] for part in fall["parts"]) == fall["difference_ns"]


def test_captures_of_two_formats_are_compared(corpus: Path, make_run: RunMaker) -> None:
    nsys = make_run(corpus / "nsys" / "a100_2node_allgather_pair" / "rank0_with_blobs.sqlite")
    torch = make_run(corpus / "torch" / "dlrm_8xV100")
    comparison = compare_runs([nsys, torch])
    settings = {row["setting"]: row["values"] for row in comparison.settings}
    assert settings["captured with"][1] == "torch.profiler"
    assert settings["captured with"][0].startswith("nsys ")
    assert settings["ranks captured"] == ["1", "8"]
    assert comparison.waterfalls[0]["verdict"] == "unknown"
