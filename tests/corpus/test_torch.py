"""Real torch.profiler traces against answers computed by brute force elsewhere (`oracle.json`)."""

import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.commands import traceq
from tests.conftest import RunMaker
from traceq.model.timing import PARTS
from traceq.query import run_query
from traceq.report import build_report
from traceq.runfile import Run

RANKS = range(8)
DLRM = tuple(f"torch/dlrm_8xV100/worker{r}.pt.trace.json.gz" for r in RANKS)
ENRICHED = tuple(f"torch/dlrm_8xV100_enriched/rank{r}_trace.json.gz" for r in RANKS)
GLOO = tuple(
    f"torch/gloo_4rank_{state}/rank{r}.json.gz" for state in ("healthy", "slow2") for r in range(4)
)
EDGE = tuple(
    f"torch/edge_cases/{name}"
    for name in (
        "backward_thread.json",
        "cuda_event_sync_multi_stream.json.gz",
        "gpu_user_annotation_step_based_trace.json.gz",
        "inference_rank_1.json.gz",
        "large_integer_rank-70.pt.trace.json.gz",
        "rank-34.pt.trace.json.gz",
        "triton_example.json.gz",
    )
)
SINGLE = tuple(
    f"torch/{name}.json.gz"
    for name in (
        "a100_nccl_args_rank0of2",
        "b200_eager_rank0of8",
        "ddp_v100_rank1of2",
        "mi250_rank0of1",
        "mi300x_resnet_ddp_rank0of8",
        "sendrecv_128gpu_rank0",
        "sendrecv_128gpu_rank1",
    )
)
MEASURED = DLRM + ENRICHED + GLOO + EDGE + SINGLE
NOT_MEASURED = tuple(
    f"torch/edge_cases/{name}.json.gz"
    for name in ("distributed_info_not_found", "rank_non_gpu", "rank_not_found")
)


@pytest.fixture
def oracle(corpus: Path) -> dict[str, dict[str, dict[str, Any]]]:
    answers = json.loads((corpus / "oracle.json").read_text())
    return {name: ranks for name, ranks in answers.items() if name.startswith("torch/")}


def test_every_trace_of_the_corpus_is_tested(
    corpus: Path, oracle: dict[str, dict[str, dict[str, Any]]]
) -> None:
    there = {str(p.relative_to(corpus)) for p in corpus.glob("torch/**/*.json*")}
    assert there == {*MEASURED, *NOT_MEASURED}
    assert {name for name, ranks in oracle.items() if ranks} == set(MEASURED)


@pytest.mark.parametrize("name", MEASURED)
def test_every_part_of_every_rank_equals_the_oracle(
    corpus: Path, oracle: dict[str, dict[str, dict[str, Any]]], make_run: RunMaker, name: str
) -> None:
    run = make_run(corpus / name)
    ((stated, answers),) = oracle[name].items()
    (rank,) = run.frame("SELECT rank, rank_source FROM ranks").rows()
    assert (rank[1] == "torch") == (stated != "rank=None")
    assert stated in {f"rank={rank[0]}", "rank=None"}
    row = run_query(run, "comm_fraction").to_dicts()[0]
    assert {part: row[part] for part in PARTS} == {part: answers[part] for part in PARTS}
    assert row["window_ns"] == sum(
        row[p] for p in ("compute_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns")
    )
    counted = dict(run.frame("SELECT class, count(*) FROM device_ops GROUP BY class").iter_rows())
    assert counted == answers["events"]
    assert run.frame("SELECT complete, events_skipped FROM sources").rows() == [(True, 0)]


@pytest.mark.parametrize("name", NOT_MEASURED)
def test_a_trace_without_device_work_says_what_it_holds(corpus: Path, name: str) -> None:
    done = traceq("report", corpus / name)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert "no GPU rows and no gloo collectives" in line
    assert "2424 operators and 43 annotations" in line


def test_eight_traces_are_one_run_of_eight_ranks(corpus: Path, make_run: RunMaker) -> None:
    report = build_report(make_run(corpus / "torch/dlrm_8xV100"))
    assert report.run["world_size"] == 8
    assert report.run["ranks_present"] == list(RANKS)
    assert report.run["ranks_missing"] == []
    assert report.complete


def collectives(run: Run) -> pl.DataFrame:
    """The collectives of every rank in order of time."""
    return run.frame(
        "SELECT rank, op, bytes, dtype, wire_bytes, group_size, comm_id "
        "FROM nccl_kernels ORDER BY rank, start_ns"
    )


def test_annotations_tell_as_much_as_arguments(corpus: Path, make_run: RunMaker) -> None:
    plain = collectives(make_run(corpus / "torch/dlrm_8xV100"))
    enriched = collectives(make_run(corpus / "torch/dlrm_8xV100_enriched"))
    assert plain.height == 64
    assert plain.equals(enriched)


def test_sizes_of_the_eight_ranks_are_those_of_the_oracle(corpus: Path, make_run: RunMaker) -> None:
    answers = json.loads((corpus / "oracle_dlrm_collectives.json").read_text())["collectives"]
    run = make_run(corpus / "torch/dlrm_8xV100")
    rows = run.frame(
        "SELECT rank, op, bytes, end_ns - start_ns AS duration_ns FROM nccl_kernels "
        "ORDER BY rank, start_ns"
    )
    for rank in RANKS:
        mine = rows.filter(pl.col("rank") == rank).to_dicts()
        assert [row["op"] for row in mine] == [each["op"] for each in answers]
        for row, each in zip(mine, answers, strict=True):
            assert row["duration_ns"] == each["duration_ns"][str(rank)]
            sent = each["send_bytes"][str(rank)]
            # The size of an uneven exchange is its larger side; every other is what was sent.
            assert row["bytes"] == sent or (each["op"] == "all_to_all" and row["bytes"] > sent)


@pytest.mark.parametrize("variant", ["dlrm_8xV100", "dlrm_8xV100_enriched"])
def test_transfer_waiting_and_bandwidth_equal_the_oracle(
    corpus: Path, make_run: RunMaker, variant: str
) -> None:
    answers = json.loads((corpus / "oracle_dlrm_collectives.json").read_text())["collectives"]
    run = make_run(corpus / "torch" / variant)
    rows = run.frame(
        "SELECT collective_id, rank, op, match, transfer_ns, wait_ns FROM nccl_kernels"
    ).to_dicts()
    assert len(rows) == 64
    for row in rows:
        each = answers[row["collective_id"]]
        assert (row["op"], row["match"]) == (each["op"], "matched")
        assert row["transfer_ns"] == each["transfer_ns"]
        assert row["wait_ns"] == each["wait_ns"][str(row["rank"])]
    reported = {
        row["bytes_p50"]: row["busbw_gbps"]
        for row in build_report(run).collectives
        if row["op"] == "all_reduce"
    }
    expected = {e["send_bytes"]["0"]: e["busbw_gbps"] for e in answers if e["op"] == "all_reduce"}
    assert reported == {size: pytest.approx(rate, abs=5e-5) for size, rate in expected.items()}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a100_nccl_args_rank0of2", {"all_reduce": 15, "broadcast": 6}),
        ("b200_eager_rank0of8", {"all_gather": 1, "all_reduce": 73}),
    ],
)
def test_collectives_are_known_by_operation(
    corpus: Path, make_run: RunMaker, name: str, expected: dict[str, int]
) -> None:
    run = make_run(corpus / f"torch/{name}.json.gz")
    assert (
        dict(run.frame("SELECT op, count(*) FROM nccl_kernels GROUP BY op").iter_rows()) == expected
    )


def test_the_type_of_generic_kernels_comes_from_around_them(
    corpus: Path, make_run: RunMaker
) -> None:
    run = make_run(corpus / "torch/mi300x_resnet_ddp_rank0of8.json.gz")
    names = run.frame(
        "SELECT DISTINCT short_name FROM nccl_kernels JOIN kernel_names USING (name_id)"
    )
    assert names.rows() == [("ncclDevKernel_Generic",)]
    counted = dict(run.frame("SELECT op, count(*) FROM nccl_kernels GROUP BY op").iter_rows())
    # 12 launches lie inside an annotation; 5 were made before the trace began.
    assert counted == {"all_reduce": 6, "broadcast": 6, "unknown": 5}


def test_cpu_runs_have_their_steps_and_sizes(corpus: Path, make_run: RunMaker) -> None:
    report = build_report(make_run(corpus / "torch/gloo_4rank_slow2"))
    assert (report.run["window"], report.run["steps"]) == ("steps", 20)
    (row,) = report.collectives
    assert (row["op"], row["group_size"], row["count"]) == ("all_reduce", 4, 80)
    assert row["bytes_p50"] == 263168 * 4  # the one bucket of the model, as floats


@pytest.mark.parametrize("name", ["mi250_rank0of1", "mi300x_resnet_ddp_rank0of8"])
def test_steps_marked_on_a_device_for_a_moment_cover_what_they_launched(
    name: str, corpus: Path, make_run: RunMaker
) -> None:
    path = corpus / f"torch/{name}.json.gz"
    events = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)["traceEvents"]

    def span(event: dict[str, Any]) -> tuple[int, int]:
        start = round(Decimal(event["ts"]) * 1000)
        return start, start + round(Decimal(event["dur"]) * 1000)

    calls = {e["args"]["correlation"]: span(e)[0] for e in events if e.get("cat") == "cuda_runtime"}
    device = [e for e in events if e.get("cat") in {"kernel", "gpu_memcpy", "gpu_memset"}]
    expected = {}
    for step in (e for e in events if e.get("cat") == "user_annotation"):
        if not step["name"].startswith("ProfilerStep#"):
            continue
        low, high = span(step)
        mine = [e for e in device if low <= calls.get(e["args"]["correlation"], -1) <= high]
        if mine:
            begin, end = min(span(e)[0] for e in mine), max(span(e)[1] for e in mine)
            comm = [span(e) for e in device if "nccl" in e["name"].lower()]
            at, total = begin, 0
            for first, last in sorted(comm):
                total += max(0, min(last, end) - max(first, at))
                at = max(at, min(last, end))
            expected[int(step["name"].split("#")[1])] = (end - begin, total)
    steps = run_query(make_run(path), "step_times")
    told = {step: (window, comm) for step, window, comm in
            steps.select("step", "window_ns", "comm_ns").iter_rows()}  # fmt: skip
    assert told.keys() == expected.keys()
    for step, numbers in expected.items():
        assert told[step] == numbers
