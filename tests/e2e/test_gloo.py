"""A real run: four gloo processes with torch.profiler on this machine."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import RunMaker
from traceq.report import Report, build_report

pytest.importorskip("torch", reason="torch is not installed: pip install 'traceq[dev]'")

RANKS = 4
STEPS = 5
PARAMETERS = 64 * 64 + 64 + 64 * 1 + 1


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("traces")
    script = Path(__file__).with_name("train_gloo.py")
    subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={RANKS}", "--standalone",
         str(script), str(folder)],
        check=True,
        timeout=240,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    return folder


@pytest.fixture
def report(traces: Path, make_run: RunMaker) -> Report:
    return build_report(make_run(traces))


def test_the_ranks_are_those_of_the_job(report: Report) -> None:
    assert report.run["world_size"] == RANKS
    assert report.run["ranks_missing"] == []
    assert [(r["rank"], r["rank_source"], r["device_kind"]) for r in report.ranks] == [
        (rank, "torch", "cpu") for rank in range(RANKS)
    ]
    assert report.complete


def test_every_profiled_step_is_there_on_every_rank(report: Report) -> None:
    assert (report.run["window"], report.run["steps"]) == ("steps", STEPS)
    assert len(report.steps) == RANKS * STEPS
    for row in report.steps:
        assert row["comm_ns"] > 0
        assert row["compute_ns"] > 0
        parts = ("compute_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns")
        assert row["window_ns"] == sum(row[part] for part in parts)


def test_each_step_reduces_the_gradients_once(report: Report) -> None:
    # DDP puts all gradients of so small a model into one bucket of 4-byte floats.
    (row,) = report.collectives
    assert (row["op"], row["group_size"], row["dtype"]) == ("all_reduce", RANKS, "Float")
    assert row["bytes_p50"] == 4 * PARAMETERS
    assert row["count"] == RANKS * STEPS
