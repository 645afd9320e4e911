"""The demo and the recording on real trainings: the slow rank is found from the traces alone."""

import json
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.commands import traceq_process as traceq
from tests.processes import kill_one
from tests.test_schemas import schema
from traceq.demo import STEPS

SLOW_NS = 40_000_000  # well above what ranks on two cores, measured too, take from each other
PLAIN, SHARDED = (Path(__file__).with_name(f"train_{kind}.py") for kind in ("plain", "fsdp"))


def demo(*words: object) -> dict[str, Any]:
    done = traceq("demo", "--format", "json", *words)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    jsonschema.validate(report, schema("report"))
    return report


@pytest.mark.parametrize(("rank", "cause"), [(2, "compute"), (1, "launch")])
def test_the_slow_rank_is_named_with_its_cause(rank: int, cause: str) -> None:
    report = demo("--slow-rank", rank, "--slow-ms", SLOW_NS / 1e6, "--cause", cause)
    named = [row for row in report["stragglers"] if row["straggler"]]
    assert [(row["rank"], row["cause"]) for row in named] == [(rank, cause)]
    assert named[0]["lateness_ns"] == pytest.approx(SLOW_NS * STEPS, rel=0.2)
    assert (report["run"]["window"], report["run"]["steps"]) == ("steps", STEPS)


def test_without_a_slow_rank_nobody_is_named(tmp_path: Path) -> None:
    report = demo("--slow-rank", "none", "--keep", tmp_path / "traces")
    assert [row["rank"] for row in report["stragglers"] if row["straggler"]] == []
    assert len(list((tmp_path / "traces").glob("rank*.json.gz"))) == 4


def test_its_traces_tell_size_and_group_of_every_collective() -> None:
    report = demo("--slow-ms", 0)
    assert {row["group_size"] for row in report["collectives"]} == {4}
    assert all(row["bytes_p50"] for row in report["collectives"])
    assert {row["count"] for row in report["collectives"]} == {4 * STEPS}
    assert report["matching"]["matched"] == 4 * STEPS * len(report["collectives"])


def test_its_training_on_more_processes_is_compared_end_to_end(tmp_path: Path) -> None:
    saved = [tmp_path / f"on {n}.duckdb" for n in (1, 2, 4)]
    for n, path in zip((1, 2, 4), saved, strict=True):
        demo("--nproc", n, "--slow-rank", "none", "--save", path)
    done = traceq("compare", *saved, "--scaling", "weak", "--format", "json")
    assert done.returncode == 0, done.stderr
    compared = json.loads(done.stdout)
    jsonschema.validate(compared, schema("comparison"))
    assert [run["world_size"] for run in compared["runs"]] == [1, 2, 4]
    steps = [run["step_time_ns"] for run in compared["runs"]]
    for run, step in zip(compared["runs"], steps, strict=True):
        assert run["steps"] == STEPS
        assert run["weak_efficiency"] == steps[0] / step
        assert sum(run["parts"].values()) == step
    for fall, step in zip(compared["waterfalls"], steps[1:], strict=True):
        assert fall["difference_ns"] == step - steps[0]
        assert sum(part["difference_ns"] for part in fall["parts"]) == step - steps[0]
    (row,) = compared["collectives"]
    assert [entry["group_size"] for entry in row["runs"]] == [1, 2, 4]
    assert [entry["busbw_gbps"] is None for entry in row["runs"]] == [True, False, False]
    assert compared["trend"] == []  # one process exchanges nothing, so two sizes remain
    settings = {each["setting"]: each["values"] for each in compared["settings"]}
    assert settings["ranks"] == ["1", "2", "4"]


def test_a_killed_rank_ends_the_demo(tmp_path: Path) -> None:
    ended = kill_one(("demo", "--slow-ms", "1000", "--keep", tmp_path / "t"), ranks=4, after_s=6)
    assert ended.status == 2
    assert "was killed by signal 9: the others were ended" in ended.errors
    assert ended.left == []


class TestRecord:
    """A training script that knows nothing of traceq."""

    def words(
        self, folder: Path, steps: int = 30, ranks: int = 2, script: Path = PLAIN
    ) -> list[object]:
        run = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", ranks]
        schedule = ["--wait", 2, "--warmup", 1, "--active", 5]
        return ["record", "--output", folder, *schedule, "--", *run, script, steps]

    @pytest.mark.parametrize(
        ("script", "ops"), [(PLAIN, {"all_reduce"}), (SHARDED, {"all_gather"})], ids=["ddp", "fsdp"]
    )
    def test_every_rank_leaves_a_trace_that_can_be_reported(
        self, tmp_path: Path, script: Path, ops: set[str]
    ) -> None:
        done = traceq(*self.words(tmp_path / "traces", script=script))
        assert done.returncode == 0, done.stderr
        assert f"2 traces in {tmp_path / 'traces'}" in done.stderr
        report = json.loads(traceq("report", tmp_path / "traces", "--format", "json").stdout)
        assert report["run"]["ranks_present"] == [0, 1]
        assert report["run"]["steps"] == 5
        assert ops <= {row["op"] for row in report["collectives"]}
        assert {row["group_size"] for row in report["collectives"]} == {2}
        assert all(row["bytes_p50"] for row in report["collectives"])

    def test_a_run_that_is_too_short_says_so(self, tmp_path: Path) -> None:
        done = traceq(*self.words(tmp_path / "traces", steps=2))
        assert done.returncode == 2
        assert "made no trace: no optimizer took 5 steps" in done.stderr

    def test_the_status_of_the_command_is_kept(self, tmp_path: Path) -> None:
        done = traceq("record", "--output", tmp_path, "--", sys.executable, "-c", "exit(7)")
        assert done.returncode == 7
        assert "ended with status 7; 0 traces are whole" in done.stderr

    def test_a_killed_rank_ends_the_command_and_leaves_whole_traces(self, tmp_path: Path) -> None:
        folder = tmp_path / "traces"
        ended = kill_one(self.words(folder, steps=100_000), ranks=2, after_s=8)
        assert ended.status not in {0, 2}
        assert "traces are whole" in ended.errors
        assert ended.left == []
        for trace in folder.glob("*.json.gz"):  # written before the rank was killed
            assert traceq("report", trace).returncode == 0

    def test_a_command_that_does_not_exist(self, tmp_path: Path) -> None:
        done = traceq("record", "--output", tmp_path, "--", "no-such-program")
        assert (done.returncode, "no-such-program: cannot be run" in done.stderr) == (2, True)

    def test_nsys_that_is_not_there(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        done = traceq("record", "--nsys", "--output", tmp_path, "--", sys.executable, "-V")
        assert (done.returncode, "nsys is not on the PATH" in done.stderr) == (2, True)

    def test_nsys_is_given_the_flags_that_count(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        told = tmp_path / "told"
        nsys = tmp_path / "nsys"
        nsys.write_text(f'#!/bin/sh\necho "$@" > {told}\n')
        nsys.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        done = traceq(
            "record", "--nsys", "--output", tmp_path / "o", "--", "python", "x.py", "-n", "3"
        )
        assert done.returncode == 0
        words = told.read_text().split()
        assert words[0] == "profile"
        assert {"--trace=cuda,nvtx", "--cuda-graph-trace=node"} <= set(words)
        assert words[-4:] == ["python", "x.py", "-n", "3"]
