"""Real exports against answers computed by brute force elsewhere (`oracle.json`)."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.commands import traceq
from tests.conftest import RunMaker
from traceq.errors import SourceError
from traceq.model.families import classify
from traceq.model.timing import PARTS
from traceq.query import run_query
from traceq.render import json as as_json
from traceq.render import table as as_table
from traceq.report import build_report
from traceq.runfile import Run

CANARY = "s3cr3t-canary-value"
BEFORE = "nsys/h100x2_sendrecv_before_nsys2026.2.1.sqlite"
# The sources of the corpus, so that each is a test of its own; a test holds the list complete.
WITH_GPU_WORK = (
    "nsys/a100_2node_allgather_pair/rank0_default_export.sqlite",
    "nsys/a100_2node_allgather_pair/rank0_with_blobs.sqlite",
    "nsys/a100_2node_allgather_pair/rank4_default_export.sqlite",
    "nsys/a100_2node_allgather_pair/rank4_with_blobs.sqlite",
    "nsys/a100_mpi_cloverleaf_nsys2024.5.1.sqlite",
    "nsys/a100x1_lm_train_nsys2026.3.1.sqlite",
    "nsys/h100x2_sendrecv_after_nsys2026.2.1.sqlite",
    BEFORE,
    "nsys/h200x1_nsys2025.1.1.sqlite",
    "nsys/t4x1_nsys2025.3.1.sqlite",
    "nsys/v100x2_p2p_memcpy_nsys2024.2.3.sqlite",
)
WITHOUT = (
    "nsys/cpu_only_nsys2024.2.3.sqlite",
    "nsys/skeleton_all_tables_nsys2022.4.2.sqlite",
    "nsys/skeleton_all_tables_nsys2023.4.4.sqlite",
    "nsys/skeleton_all_tables_nsys2024.2.3.sqlite",
)


@pytest.fixture
def oracle(corpus: Path) -> dict[str, dict[str, dict[str, Any]]]:
    answers = json.loads((corpus / "oracle.json").read_text())
    return {name: ranks for name, ranks in answers.items() if name.startswith("nsys/")}


def test_every_export_of_the_corpus_is_tested(
    corpus: Path, oracle: dict[str, dict[str, dict[str, Any]]]
) -> None:
    there = {str(path.relative_to(corpus)) for path in corpus.glob("nsys/**/*.sqlite")}
    assert there == {*WITH_GPU_WORK, *WITHOUT}
    assert {name for name, ranks in oracle.items() if ranks} == set(WITH_GPU_WORK)


@pytest.mark.parametrize("name", WITH_GPU_WORK)
def test_every_part_of_every_rank_equals_the_oracle(
    corpus: Path, oracle: dict[str, dict[str, dict[str, Any]]], make_run: RunMaker, name: str
) -> None:
    run = make_run(corpus / name)
    who = run.frame("SELECT rank, pid, device FROM ranks").join(
        run_query(run, "comm_fraction"), on="rank"
    )
    found = {f"pid={row['pid']} device={row['device']}": row for row in who.iter_rows(named=True)}
    expected = oracle[name]
    assert found.keys() == expected.keys()
    for rank, answers in expected.items():
        row = found[rank]
        assert {part: row[part] for part in PARTS} == {part: answers[part] for part in PARTS}
        assert row["window_ns"] == sum(
            row[p] for p in ("compute_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns")
        )
        for ratio in ("comm_fraction", "exposed_comm_fraction", "overlap_ratio"):
            assert row[ratio] == pytest.approx(answers[ratio], abs=1e-6)


@pytest.mark.parametrize("name", WITH_GPU_WORK)
def test_operations_are_counted_by_class_as_in_the_oracle(
    corpus: Path, oracle: dict[str, dict[str, dict[str, Any]]], make_run: RunMaker, name: str
) -> None:
    run = make_run(corpus / name)
    counted: dict[str, dict[str, int]] = {}
    for pid, device, kind, count in run.frame(
        "SELECT pid, device, class, count(*) FROM device_ops JOIN ranks USING (rank) GROUP BY ALL"
    ).iter_rows():
        counted.setdefault(f"pid={pid} device={device}", {})[kind] = count
    assert counted == {rank: answers["events"] for rank, answers in oracle[name].items()}


@pytest.mark.parametrize("name", WITHOUT)
def test_a_capture_without_gpu_work_says_so(corpus: Path, make_run: RunMaker, name: str) -> None:
    with pytest.raises(
        SourceError, match=r"no GPU work was traced; capture with --trace=cuda,nvtx"
    ):
        make_run(corpus / name)


class TestTwoProcessesInOneFile:
    """The export in which correlation ids repeat across processes."""

    @pytest.fixture
    def run(self, corpus: Path, make_run: RunMaker) -> Run:
        return make_run(corpus / BEFORE)

    def test_kernels_find_their_own_call(self, run: Run) -> None:
        counts = run.frame(
            "SELECT count(*), count(launch_ns) FROM device_ops JOIN kernel_names n USING (name_id) "
            "WHERE n.class <> 'copy'"
        )
        assert counts.row(0) == (4010, 3986)

    def test_each_call_is_of_the_same_process_and_correlation(self, corpus: Path, run: Run) -> None:
        with closing(sqlite3.connect(f"file:{corpus / BEFORE}?mode=ro&immutable=1", uri=True)) as c:
            expected = c.execute(
                "SELECT (k.globalPid >> 24) & 16777215, k.correlationId, r.start - k.start "
                "FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN CUPTI_ACTIVITY_KIND_RUNTIME r "
                "ON r.correlationId = k.correlationId AND r.globalTid >> 24 = k.globalPid >> 24"
            ).fetchall()
        found = run.frame(
            "SELECT pid, correlation, launch_ns - start_ns FROM device_ops JOIN ranks USING (rank) "
            "JOIN kernel_names n USING (name_id) WHERE n.class <> 'copy' AND launch_ns IS NOT NULL"
        ).rows()
        assert sorted(found) == sorted(expected)

    def test_send_and_receive_kernels_are_communication_on_both_ranks(self, run: Run) -> None:
        rows = run.frame("SELECT rank, op, count(*) FROM nccl_kernels GROUP BY ALL ORDER BY rank")
        assert rows.rows() == [(0, "send_recv", 33), (1, "send_recv", 33)]

    def test_every_kernel_that_nccl_launched_was_known_by_its_name_already(self, run: Run) -> None:
        names = run.frame(
            "SELECT DISTINCT n.short_name FROM device_ops o JOIN kernel_names n USING (name_id) "
            "WHERE o.class = 'comm'"
        )
        assert names.rows() == [("ncclDevKernel_SendRecv",)]


def test_a_pair_of_nodes_lies_on_one_clock(corpus: Path, make_run: RunMaker) -> None:
    pair = "nsys/a100_2node_allgather_pair"
    run = make_run(*(corpus / pair / f"rank{r}_with_blobs.sqlite" for r in (0, 4)))
    rows = run.frame(
        "SELECT rank, node, start_ns, end_ns FROM nccl_kernels JOIN ranks USING (rank)"
    )
    (first, second) = rows.sort("rank").rows()
    assert (first[:2], second[:2]) == ((0, 0), (4, 1))
    # Published, on UTC: rank 4 starts 166.998 ms later and ends 0.113 ms later. Aligned, ends meet.
    offsets = run.frame("SELECT clock_offset_ns FROM sources ORDER BY source_id")
    ((zero,), (offset,)) = offsets.rows()
    assert (zero, second[3] - first[3]) == (0, 0)
    assert round(-offset / 1e6, 3) == 0.113
    assert round((second[2] - first[2] - offset) / 1e6, 3) == 166.998


@pytest.mark.parametrize("name", WITH_GPU_WORK + WITHOUT)
def test_no_secret_of_a_capture_gets_out(
    corpus: Path, tmp_path: Path, make_run: RunMaker, name: str
) -> None:
    source = corpus / name
    secrets = (CANARY, "TRACEQ_CANARY_SECRET", "/home/someone", "host-a", "node-1")
    assert CANARY.encode() in source.read_bytes()
    shown = [traceq(command, source) for command in ("report", "doctor")]
    texts = [done.stdout + done.stderr for done in shown]
    try:
        run = make_run(source)
    except SourceError as error:
        texts.append(str(error))
    else:
        texts += [render(build_report(run)) for render in (as_json.render, as_table.render)]
        (stored,) = tmp_path.glob("*.duckdb")
        content = stored.read_bytes()
        assert not [secret for secret in secrets if secret.encode() in content]
        cells = [
            str(run.frame(f"SELECT * FROM {table}").to_dicts())
            for (table,) in run.frame(
                "SELECT table_name FROM duckdb_tables() WHERE NOT internal"
            ).iter_rows()
            if table != "device_ops"
        ]
        texts += cells
    assert not [secret for secret in secrets for text in texts if secret in text]


def test_every_kernel_name_of_every_nccl_is_communication(corpus: Path) -> None:
    files = sorted((corpus / "nccl").glob("kernel_names_nccl_*.txt"))
    assert len(files) == 21
    words = {
        "AllGather": "all_gather", "AllReduce": "all_reduce", "Broadcast": "broadcast",
        "ReduceScatter": "reduce_scatter", "Reduce": "reduce", "SendRecv": "send_recv",
        "Generic": "unknown", "AllGatherV": "all_gather",
    }  # fmt: skip
    for file in files:
        for name in file.read_text().split():
            found = classify(name)
            assert found is not None, name
            # The word after the prefix is the collective, in all generations of names.
            assert found.op == words[name.split("_")[1].split("(")[0]], name
            assert classify(f"void {name}(ncclDevKernelArgsStorage<4096ul>)") == found


def test_no_compute_kernel_of_the_real_captures_is_taken_for_communication(
    corpus: Path, make_run: RunMaker
) -> None:
    for name in WITH_GPU_WORK:
        run = make_run(corpus / name)
        names = run.frame("SELECT short_name FROM kernel_names WHERE class = 'comm'")
        assert names.filter(~pl.col("short_name").str.starts_with("nccl")).is_empty()
