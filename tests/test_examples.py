"""The steps of the CI examples, run as a pipeline runs them."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.test_gates import JUNIT
from tests.traces.workload import Workload, late
from traceq.ingest.pipeline import ingest_run

CI = Path(__file__).parents[1] / "examples" / "ci"
INSTALL = "pip install traceq"  # what the tests run on is installed already


def github() -> list[str]:
    steps = yaml.safe_load((CI / "github.yml").read_text())["jobs"]["judge"]["steps"]
    return [step["run"] for step in steps if "run" in step]


def gitlab() -> list[str]:
    job = yaml.safe_load((CI / "gitlab.yml").read_text())["traces"]
    return [*job["before_script"], *job["script"]]


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    """A checkout with the run file of main and a folder for the traces of the change."""
    (tmp_path / "main").mkdir()
    (tmp_path / "traces").mkdir()
    base = Workload(ranks=2, steps=8).write_torch(tmp_path / "main")
    ingest_run(base, tmp_path / "main.duckdb", name="main")
    return tmp_path


def run_steps(steps: list[str], folder: Path) -> list[int]:
    environment: dict[str, Any] = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "GITHUB_STEP_SUMMARY": str(folder / "step_summary.md"),
        "GITHUB_HEAD_REF": "faster-loader",
        "CI_COMMIT_REF_NAME": "faster-loader",
    }
    assert steps[0] == INSTALL
    return [
        subprocess.run(
            ["bash", "-eo", "pipefail", "-c", step], cwd=folder, env=environment, check=False,
            capture_output=True,
        ).returncode
        for step in steps[1:]
    ]  # fmt: skip


def test_a_change_that_costs_nothing_passes(pipeline: Path) -> None:
    Workload(ranks=2, steps=8).write_torch(pipeline / "traces")
    assert run_steps(github(), pipeline) == [0, 0]
    summary = (pipeline / "step_summary.md").read_text()
    assert "## traceq report: faster-loader" in summary
    assert "no difference in step time" in summary
    JUNIT.validate(str(pipeline / "junit.xml"))
    assert (pipeline / "comparison.html").exists()


def test_a_change_that_makes_a_rank_late_fails(pipeline: Path) -> None:
    work = Workload(ranks=2, steps=8, delay=late([1]))
    work.write_torch(pipeline / "traces")
    assert run_steps(github(), pipeline) == [1, 1]
    assert "❌ `straggler_fraction > 5%`" in (pipeline / "step_summary.md").read_text()


@pytest.mark.parametrize(("ranks", "status"), [([], 0), ([1], 1)])
def test_the_other_pipeline_does_the_same(pipeline: Path, ranks: list[int], status: int) -> None:
    Workload(ranks=2, steps=8, delay=late(ranks)).write_torch(pipeline / "traces")
    assert run_steps(gitlab(), pipeline) == [status]
    JUNIT.validate(str(pipeline / "junit.xml"))


def test_traces_that_are_missing_fail_it(pipeline: Path) -> None:
    assert run_steps(gitlab(), pipeline) == [2]
