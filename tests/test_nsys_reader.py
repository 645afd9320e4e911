"""The nsys reader on tiny exports: what is linked, classed, counted, and what stays unknown."""

import sqlite3
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest

from tests.conftest import RunMaker
from tests.traces.nsys import MODERN, NsysExport, global_pid
from traceq.errors import SourceError
from traceq.query import run_query
from traceq.runfile import Run

GEMM = "gemm<float>(int)"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def timings(run: Run, rank: int = 0, scope: str = "capture") -> dict[str, object]:
    frame = run_query(run, "comm_fraction", {"scope": scope})
    return frame.filter(pl.col("rank") == rank).to_dicts()[0]


def codes(run: Run) -> list[str]:
    return run.frame("SELECT code FROM diagnostics ORDER BY code")["code"].to_list()


def ops(run: Run, *columns: str) -> list[tuple[object, ...]]:
    return run.frame(
        f"SELECT {', '.join(columns)} FROM device_ops o JOIN kernel_names n USING (name_id) "
        "ORDER BY rank, start_ns, stream"
    ).rows()


def test_one_rank_has_every_part_of_its_window(tmp_path: Path, make_run: RunMaker) -> None:
    export = (
        NsysExport()
        .capture()
        .kernel(GEMM, 1000, 1600)
        .kernel(ALL_REDUCE, 1400, 1900, stream=16)
        .copy("HtoD", 1850, 1950)
        .memset(2050, 2100)
    )
    row = timings(make_run(export.write(tmp_path / "a.sqlite")))
    # window 1000-2100; copies 1850-1950 and 2050-2100, of which 1850-1900 lies under the comm
    assert row == {
        "rank": 0,
        "windows": 1,
        "window_ns": 1100,
        "compute_ns": 600,
        "comm_ns": 500,
        "overlap_ns": 200,
        "exposed_comm_ns": 300,
        "copy_ns": 150,
        "exposed_copy_ns": 100,
        "idle_ns": 100,
        "comm_fraction": 500 / 1100,
        "exposed_comm_fraction": 300 / 1100,
        "overlap_ratio": 0.4,
        "reason": None,
    }


def test_times_begin_at_the_earliest_device_start(tmp_path: Path, make_run: RunMaker) -> None:
    export = NsysExport().capture().kernel(GEMM, 5000, 5100, launch=4000).copy("DtoH", 5200, 5300)
    run = make_run(export.write(tmp_path / "a.sqlite"))
    assert ops(run, "start_ns", "end_ns", "launch_ns", "o.class", "bytes") == [
        (0, 100, -1000, "compute", None),
        (200, 300, 100, "copy", 1024),
    ]


def test_the_same_correlation_id_in_two_processes_links_each_to_its_own_call(
    tmp_path: Path, make_run: RunMaker
) -> None:
    export = NsysExport().capture()
    for pid, launch in ((10, 500), (11, 700)):
        export.kernel(GEMM, 1000, 1100, pid=pid, launch=launch, correlation=1)
    run = make_run(export.write(tmp_path / "a.sqlite"))
    assert ops(run, "rank", "launch_ns") == [(0, -500), (1, -300)]


def test_a_correlation_id_that_stands_twice_never_multiplies_operations(
    tmp_path: Path, make_run: RunMaker
) -> None:
    export = NsysExport().capture().kernel(GEMM, 1000, 1100, launch=900, correlation=1)
    export.call("cuLaunchKernel", 950, 1)
    run = make_run(export.write(tmp_path / "a.sqlite"))
    assert ops(run, "launch_ns") == [(-100,)]


def test_a_correlation_id_of_zero_names_no_call(tmp_path: Path, make_run: RunMaker) -> None:
    export = NsysExport().capture()
    for start in (1000, 2000):
        export.kernel(GEMM, start, start + 100, correlation=0)
    run = make_run(export.write(tmp_path / "a.sqlite"))
    assert ops(run, "launch_ns") == [(None,), (None,)]


def test_of_two_calls_the_earlier_one_launched(tmp_path: Path, make_run: RunMaker) -> None:
    export = NsysExport().capture().call("cuLaunchKernel", 950, 1)
    export.kernel(GEMM, 1000, 1100, launch=900, correlation=1)
    run = make_run(export.write(tmp_path / "a.sqlite"))
    assert ops(run, "launch_ns") == [(-100,)]


def test_rowids_far_apart_are_read_all_the_same(
    tmp_path: Path, make_run: RunMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("traceq.ingest.nsys.export.CHUNK_ROWS", 2)
    path = NsysExport().capture().kernel(GEMM, 1, 2).write(tmp_path / "a.sqlite")
    table = "CUPTI_ACTIVITY_KIND_KERNEL"
    with closing(sqlite3.connect(path)) as connection, connection:
        for k, rowid in enumerate((2**40, 2**50, 2**62, 2**62 + 1)):
            connection.execute(f"INSERT INTO {table} SELECT * FROM {table} WHERE rowid = 1")
            connection.execute(
                f"UPDATE {table} SET rowid = {rowid}, start = {10 * k + 10}, end = {10 * k + 15} "
                "WHERE start = 1 AND rowid <> 1"
            )
    run = make_run(path)
    assert len(ops(run, "rank")) == 5


def test_operations_without_a_call_count_but_belong_to_no_step(
    tmp_path: Path, make_run: RunMaker
) -> None:
    export = NsysExport().capture().range("step 0", 800, 2000)
    export.kernel(GEMM, 1000, 1100).kernel(GEMM, 1200, 1300, called=False)
    export.kernel(GEMM, 1400, 1500, correlation=None, called=False)
    path = export.write(tmp_path / "a.sqlite")
    run = make_run(path)
    assert ops(run, "step", "launch_ns IS NULL") == [(0, False), (None, True), (None, True)]
    assert "launch_unknown" in codes(run)
    assert timings(run)["compute_ns"] == 300


def test_a_null_correlation_id_joins_nothing(tmp_path: Path, make_run: RunMaker) -> None:
    export = NsysExport().capture().kernel(GEMM, 1000, 1100)
    export.kernel(GEMM, 1200, 1300, called=False, correlationId=None)
    export.row(
        "CUPTI_ACTIVITY_KIND_RUNTIME",
        start=5,
        end=6,
        globalTid=global_pid(10) + 1,
        correlationId=None,
        nameId=export.string("cudaMalloc"),
    )
    run = make_run(export.write(tmp_path / "a.sqlite"))
    assert ops(run, "launch_ns") == [(-100,), (None,)]


@pytest.mark.parametrize(
    ("start", "end"),
    [(1500, None), (1500, 1400), (0, 0), (0, 1500), (None, 1500), (1500, 2**63 - 1)],
    ids=str,
)
def test_records_with_impossible_times_are_left_out_and_counted(
    tmp_path: Path, make_run: RunMaker, start: int, end: int
) -> None:
    export = NsysExport().capture().kernel(GEMM, 1000, 1100)
    export.kernel(GEMM, start, end, called=False)
    run = make_run(export.write(tmp_path / "a.sqlite"))
    assert timings(run)["window_ns"] == 100
    counted = run.frame("SELECT events_read, events_skipped, complete FROM sources").rows()
    assert counted == [(1, 1, True)]
    assert "ops_skipped" in codes(run)


def test_a_kernel_of_no_length_is_an_operation(tmp_path: Path, make_run: RunMaker) -> None:
    export = NsysExport().capture().kernel(GEMM, 1000, 1100).kernel(ALL_REDUCE, 1050, 1050)
    run = make_run(export.write(tmp_path / "a.sqlite"))
    assert len(ops(run, "rank")) == 2
    assert (timings(run)["comm_ns"], timings(run)["overlap_ratio"]) == (0, None)


def test_synchronisation_is_never_device_work(tmp_path: Path, make_run: RunMaker) -> None:
    export = NsysExport().capture().kernel(GEMM, 1000, 1100)
    export.row(
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
        start=1100,
        end=9000,
        streamId=7,
        globalPid=global_pid(10),
        syncType=3,
    )
    assert timings(make_run(export.write(tmp_path / "a.sqlite")))["window_ns"] == 100


def test_negative_times_are_times(tmp_path: Path, make_run: RunMaker) -> None:
    export = NsysExport().capture().kernel(GEMM, -300, -100).kernel(GEMM, 100, 200)
    row = timings(make_run(export.write(tmp_path / "a.sqlite")))
    assert (row["window_ns"], row["compute_ns"], row["idle_ns"]) == (500, 300, 200)


def test_one_process_with_two_devices_is_two_ranks(tmp_path: Path, make_run: RunMaker) -> None:
    export = NsysExport().capture()
    export.kernel(GEMM, 1000, 1100, device=0).kernel(GEMM, 1000, 1300, device=3, context=2)
    run = make_run(export.write(tmp_path / "a.sqlite"))
    assert run.frame("SELECT rank, device, rank_source FROM ranks ORDER BY rank").rows() == [
        (0, 0, "order"),
        (1, 3, "order"),
    ]
    assert [timings(run, rank)["window_ns"] for rank in (0, 1)] == [100, 300]


def test_device_zero_in_several_files_is_several_ranks(tmp_path: Path, make_run: RunMaker) -> None:
    paths = [
        NsysExport().capture().kernel(GEMM, 1000, end).write(tmp_path / f"{name}.sqlite")
        for name, end in (("b", 1200), ("a", 1100))
    ]
    run = make_run(*paths)
    assert run.frame("SELECT rank, device FROM ranks ORDER BY rank").rows() == [(0, 0), (1, 0)]
    assert [timings(run, rank)["window_ns"] for rank in (0, 1)] == [200, 100]
    assert "rank_from_order" in codes(run)


def test_tables_of_others_are_passed_over(tmp_path: Path, make_run: RunMaker) -> None:
    foreign = {"my notes": [("text", "TEXT", False)], 'odd"name': [("x", "INTEGER", False)]}
    export = NsysExport(MODERN | foreign).capture().kernel(GEMM, 1000, 1100)
    export.row("my notes", text="slow").row('odd"name', x=1)
    assert timings(make_run(export.write(tmp_path / "a.sqlite")))["compute_ns"] == 100


def test_without_string_ids_communication_is_unknown_not_zero(
    tmp_path: Path, make_run: RunMaker
) -> None:
    export = NsysExport().capture().kernel(GEMM, 1000, 1600).kernel(ALL_REDUCE, 1400, 1900)
    export.copy("HtoD", 1950, 2000).without("StringIds")
    run = make_run(export.write(tmp_path / "a.sqlite"))
    row = timings(run)
    assert row["reason"] == "names_unknown"
    unknown = ("compute_ns", "comm_ns", "overlap_ns", "exposed_comm_ns", "comm_fraction")
    assert [row[name] for name in unknown] == [None] * 5
    # What needs no name is still known: 900 of kernels, 50 of copies, 50 idle between them.
    assert (row["window_ns"], row["exposed_copy_ns"], row["idle_ns"]) == (1000, 50, 50)
    assert "names_unknown" in codes(run)


def test_without_nvtx_there_are_no_steps_and_a_hint(tmp_path: Path, make_run: RunMaker) -> None:
    export = NsysExport().capture().kernel(ALL_REDUCE, 1000, 1100)
    run = make_run(export.write(tmp_path / "a.sqlite"))
    hints = dict(run.frame("SELECT code, hint FROM diagnostics").rows())
    assert "--step-pattern" in hints["no_steps"]
    assert "--trace=cuda,nvtx" in hints["size_unknown"]


def test_without_gpu_information_the_model_is_unknown(tmp_path: Path, make_run: RunMaker) -> None:
    export = NsysExport().capture(gpu=None).kernel(GEMM, 1000, 1100)
    run = make_run(export.write(tmp_path / "a.sqlite"))
    assert run.frame("SELECT gpu_name FROM ranks").rows() == [(None,)]


def test_a_gpu_is_found_through_the_devices_of_its_process(
    tmp_path: Path, make_run: RunMaker
) -> None:
    export = NsysExport().capture(gpu=None).kernel(GEMM, 1000, 1100, device=0)
    for number, name in ((0, "NVIDIA A100-SXM4-40GB"), (3, "NVIDIA H100 80GB HBM3")):
        export.row("TARGET_INFO_GPU", id=number, name=name)
    alone = make_run(export.write(tmp_path / "unmapped.sqlite"))
    assert alone.frame("SELECT gpu_name FROM ranks").rows() == [(None,)]
    export.row("TARGET_INFO_CUDA_DEVICE", gpuId=3, cudaId=0, pid=10)
    export.row("TARGET_INFO_CUDA_DEVICE", gpuId=0, cudaId=0, pid=99)
    mapped = make_run(export.write(tmp_path / "mapped.sqlite"))
    assert mapped.frame("SELECT gpu_name FROM ranks").rows() == [("NVIDIA H100 80GB HBM3",)]


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ("RANK=3;WORLD_SIZE=8", (3, "env", 8)),
        ("A=1\nOMPI_COMM_WORLD_RANK=2\nOMPI_COMM_WORLD_SIZE=4", (2, "env", 4)),
        ("MY_RANK=3;RANKING=4;RANK=x", (0, "order", None)),
    ],
)
def test_a_rank_comes_from_the_environment_of_its_command(
    tmp_path: Path, make_run: RunMaker, environment: str, expected: tuple[int, str, int]
) -> None:
    export = NsysExport().capture(environment=environment).kernel(GEMM, 1000, 1100)
    run = make_run(export.write(tmp_path / "a.sqlite"))
    rows = run.frame("SELECT rank, rank_source, world_size FROM ranks, run").rows()
    assert rows == [expected]


def test_the_environment_speaks_for_no_process_when_there_are_several(
    tmp_path: Path, make_run: RunMaker
) -> None:
    export = NsysExport().capture(environment="RANK=5")
    export.kernel(GEMM, 1000, 1100, pid=10).kernel(GEMM, 1000, 1100, pid=11)
    run = make_run(export.write(tmp_path / "a.sqlite"))
    assert run.frame("SELECT rank, rank_source FROM ranks ORDER BY rank").rows() == [
        (0, "order"),
        (1, "order"),
    ]


def test_an_mpi_rank_speaks_for_no_device_when_its_process_has_two(
    tmp_path: Path, make_run: RunMaker
) -> None:
    export = NsysExport().capture().kernel(GEMM, 1000, 1100, device=0)
    export.kernel(GEMM, 1000, 1100, device=1, context=2)
    export.row("MPI_RANKS", globalTid=global_pid(10) + 4, rank=6)
    run = make_run(export.write(tmp_path / "a.sqlite"))
    assert run.frame("SELECT rank, rank_source FROM ranks ORDER BY rank").rows() == [
        (0, "order"),
        (1, "order"),
    ]


def test_mpi_ranks_are_taken_by_process(tmp_path: Path, make_run: RunMaker) -> None:
    export = NsysExport().capture()
    for pid, rank in ((10, 6), (11, 2)):
        export.kernel(GEMM, 1000, 1000 + pid, pid=pid)
        export.row("MPI_RANKS", globalTid=global_pid(pid) + 4, rank=rank)
    run = make_run(export.write(tmp_path / "a.sqlite"))
    assert run.frame("SELECT rank, pid, rank_source FROM ranks ORDER BY rank").rows() == [
        (2, 11, "mpi"),
        (6, 10, "mpi"),
    ]


def test_steps_are_placed_by_the_operations_they_launched(
    tmp_path: Path, make_run: RunMaker
) -> None:
    export = NsysExport().capture()
    for step, zero in ((0, 1000), (1, 3000)):
        export.range(f"step {step}", zero, zero + 500, registered=bool(step))
        export.kernel(GEMM, zero + 600, zero + 1000, launch=zero + 100)
        export.kernel(ALL_REDUCE, zero + 900, zero + 1100, launch=zero + 200, thread=2, stream=9)
    export.kernel(GEMM, 5000, 5200)  # launched after the last step
    run = make_run(export.write(tmp_path / "a.sqlite"))
    rows = run_query(run, "step_times").select(
        "step", "start_ns", "end_ns", "compute_ns", "exposed_comm_ns", "idle_ns"
    )
    assert rows.rows() == [(0, 0, 500, 400, 100, 0), (1, 2000, 2500, 400, 100, 0)]


def test_ranges_of_a_data_loader_or_another_process_mark_no_steps(
    tmp_path: Path, make_run: RunMaker
) -> None:
    export = NsysExport().capture().range("ProfilerStep#1", 1, 5, pid=99)
    for k in range(10):
        export.range(f"batch {k}", 400 * k, 400 * k + 300, thread=2)
    for k in range(3):
        zero = 2000 * k + 1000
        export.range(f"step {k}", zero - 500, zero).kernel(
            GEMM, zero, zero + 100, launch=zero - 100
        )
    run = make_run(export.write(tmp_path / "a.sqlite"))
    assert run_query(run, "step_times")["step"].to_list() == [0, 1, 2]


def test_an_unfinished_step_is_no_step(tmp_path: Path, make_run: RunMaker) -> None:
    export = NsysExport().capture().range("step 0", 800, 1500).range("step 1", 1600, None)
    export.kernel(GEMM, 1000, 1100).kernel(GEMM, 1700, 1800)
    run = make_run(export.write(tmp_path / "a.sqlite"))
    assert run_query(run, "step_times")["step"].to_list() == [0]
    assert "ranges_unfinished" in codes(run)


def test_a_start_end_range_marks_a_step_too(tmp_path: Path, make_run: RunMaker) -> None:
    export = NsysExport().capture().range("step 4", 800, 1500, kind=60).kernel(GEMM, 1000, 1100)
    run = make_run(export.write(tmp_path / "a.sqlite"))
    assert run_query(run, "step_times")["step"].to_list() == [4]


def test_an_older_name_of_the_nvtx_table_is_read(tmp_path: Path, make_run: RunMaker) -> None:
    tables = {name: c for name, c in MODERN.items() if name != "NVTX_EVENTS"}
    export = NsysExport(tables | {"NVTX_EVENTS_V3": MODERN["NVTX_EVENTS"]}).capture()
    export.kernel(GEMM, 1000, 1100).row(
        "NVTX_EVENTS_V3", start=800, end=1500, eventType=59, globalTid=global_pid(10), text="step 2"
    )
    run = make_run(export.write(tmp_path / "a.sqlite"))
    assert run_query(run, "step_times")["step"].to_list() == [2]


def test_a_name_that_is_not_utf8_is_kept_readable(tmp_path: Path, make_run: RunMaker) -> None:
    export = NsysExport().capture().kernel(GEMM, 1000, 1100)
    export.row("StringIds")
    path = export.kernel("bad", 1200, 1300).write(tmp_path / "a.sqlite")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE StringIds SET value = CAST(x'6b91' AS TEXT) WHERE value = 'bad'")
    run = make_run(path)
    assert [name for (name,) in ops(run, "name")] == [GEMM, "k\ufffd"]


class TestNcclLaunches:
    """What NCCL launched itself is communication, whatever it is called."""

    def test_a_renamed_kernel_inside_an_nccl_call_is_communication(
        self, tmp_path: Path, make_run: RunMaker
    ) -> None:
        export = NsysExport().capture().nccl_domain()
        export.range("ncclAllReduce", 850, 950, domain=1, registered=True)
        export.kernel("brandNewName_v9", 1000, 1100, launch=900)
        export.kernel("brandNewName_v9", 1200, 1300, called=False)
        export.kernel(GEMM, 1300, 1400, launch=960)
        run = make_run(export.write(tmp_path / "a.sqlite"))
        assert ops(run, "o.class", "family") == [
            ("comm", "nccl"),
            ("comm", "nccl"),
            ("compute", None),
        ]

    def test_a_kernel_that_others_launch_too_is_communication_only_inside(
        self, tmp_path: Path, make_run: RunMaker
    ) -> None:
        export = NsysExport().capture().nccl_domain()
        export.range("ncclAllReduce", 850, 950, domain=1)
        export.kernel(GEMM, 1000, 1100, launch=900).kernel(GEMM, 1200, 1300, launch=990)
        run = make_run(export.write(tmp_path / "a.sqlite"))
        assert [c for (c,) in ops(run, "o.class")] == ["comm", "compute"]

    def test_a_range_of_another_domain_is_none_of_nccls(
        self, tmp_path: Path, make_run: RunMaker
    ) -> None:
        export = NsysExport().capture().nccl_domain(domain=1)
        export.range("ncclAllReduce", 850, 950, domain=2).kernel(GEMM, 1000, 1100, launch=900)
        run = make_run(export.write(tmp_path / "a.sqlite"))
        assert [c for (c,) in ops(run, "o.class")] == ["compute"]

    def test_device_copies_inside_an_nccl_call_are_communication(
        self, tmp_path: Path, make_run: RunMaker
    ) -> None:
        export = NsysExport().capture().nccl_domain()
        export.range("ncclAllGather", 850, 950, domain=1)
        export.copy("PtoP", 1000, 1100, launch=900).copy("HtoD", 1200, 1300, launch=910)
        export.copy("PtoP", 1400, 1500, launch=990)
        run = make_run(export.write(tmp_path / "a.sqlite"))
        assert [c for (c,) in ops(run, "o.class")] == ["comm", "copy", "copy"]
        assert run.frame("SELECT op, start_ns FROM nccl_kernels").rows() == [("all_gather", 0)]

    def test_calls_on_another_thread_are_not_inside(
        self, tmp_path: Path, make_run: RunMaker
    ) -> None:
        export = NsysExport().capture().nccl_domain()
        export.range("ncclAllReduce", 850, 950, domain=1, thread=2)
        export.kernel(GEMM, 1000, 1100, launch=900, thread=1)
        run = make_run(export.write(tmp_path / "a.sqlite"))
        assert [c for (c,) in ops(run, "o.class")] == ["compute"]

    def test_set_up_calls_launch_no_communication(self, tmp_path: Path, make_run: RunMaker) -> None:
        export = NsysExport().capture().nccl_domain()
        export.range("ncclCommInitRank", 850, 950, domain=1)
        export.kernel(GEMM, 1000, 1100, launch=900)
        run = make_run(export.write(tmp_path / "a.sqlite"))
        assert [c for (c,) in ops(run, "o.class")] == ["compute"]

    def test_a_user_range_called_like_nccl_does_not_count_beside_the_real_domain(
        self, tmp_path: Path, make_run: RunMaker
    ) -> None:
        export = NsysExport().capture().nccl_domain().range("ncclAllReduce", 850, 950, domain=0)
        export.kernel(GEMM, 1000, 1100, launch=900)
        run = make_run(export.write(tmp_path / "a.sqlite"))
        assert [c for (c,) in ops(run, "o.class")] == ["compute"]

    def test_without_the_domain_row_the_api_names_outside_the_default_domain_count(
        self, tmp_path: Path, make_run: RunMaker
    ) -> None:
        for domain, expected in ((1, "comm"), (0, "compute")):
            export = NsysExport().capture().range("ncclGroupEnd", 850, 950, domain=domain)
            export.kernel("brandNewName_v9", 1000, 1100, launch=900)
            run = make_run(export.write(tmp_path / f"{domain}.sqlite"))
            assert [c for (c,) in ops(run, "o.class")] == [expected]

    def test_calls_without_any_kernel_are_pointed_out(
        self, tmp_path: Path, make_run: RunMaker
    ) -> None:
        export = NsysExport().capture().nccl_domain()
        export.range("ncclAllReduce", 850, 950, domain=1).kernel(GEMM, 1000, 1100, launch=980)
        assert "calls_without_kernels" in codes(make_run(export.write(tmp_path / "a.sqlite")))

    def test_peer_copies_are_communication_only_when_asked(
        self, tmp_path: Path, make_run: RunMaker
    ) -> None:
        path = NsysExport().capture().copy("PtoP", 1000, 1100).write(tmp_path / "a.sqlite")
        assert timings(make_run(path))["comm_ns"] == 0
        assert timings(make_run(path, p2p_as_comm=True))["comm_ns"] == 100

    def test_a_pattern_of_the_user_adds_a_family(self, tmp_path: Path, make_run: RunMaker) -> None:
        path = NsysExport().capture().kernel("flux_ag", 1000, 1100).write(tmp_path / "a.sqlite")
        assert timings(make_run(path))["comm_ns"] == 0
        assert timings(make_run(path, comm_patterns=("^flux",)))["comm_ns"] == 100


class TestCudaGraphs:
    """Graphs traced as a whole hide what ran inside; by node, everything is there."""

    def test_graph_mode_makes_every_part_unknown_but_the_window(
        self, tmp_path: Path, make_run: RunMaker
    ) -> None:
        export = NsysExport().capture().kernel(GEMM, 1000, 1100).graph(1200, 1900)
        run = make_run(export.write(tmp_path / "a.sqlite"))
        row = timings(run)
        assert (row["window_ns"], row["reason"]) == (900, "graph_hidden")
        parts = ("compute_ns", "comm_ns", "overlap_ns", "exposed_comm_ns", "idle_ns", "copy_ns")
        assert [row[part] for part in parts] == [None] * 6
        hint = run.frame("SELECT hint FROM diagnostics WHERE code = 'graph_hidden'").item()
        assert "--cuda-graph-trace=node" in hint

    def test_a_capture_of_graphs_alone_still_has_its_rank(
        self, tmp_path: Path, make_run: RunMaker
    ) -> None:
        run = make_run(NsysExport().capture().graph(1200, 1900).write(tmp_path / "a.sqlite"))
        row = timings(run)
        assert (row["window_ns"], row["comm_ns"]) == (700, None)

    def test_steps_without_a_graph_are_known(self, tmp_path: Path, make_run: RunMaker) -> None:
        export = NsysExport().capture()
        export.range("step 0", 800, 900).kernel(ALL_REDUCE, 1000, 1100, launch=850)
        export.range("step 1", 2000, 2100).kernel(GEMM, 2200, 2600, launch=2050)
        export.graph(2300, 2400, launch=2060)
        run = make_run(export.write(tmp_path / "a.sqlite"))
        rows = run_query(run, "step_times").select("step", "comm_ns", "reason").rows()
        assert rows == [(0, 100, None), (1, None, "graph_hidden")]

    def test_a_graph_launch_that_left_no_record_hides_the_whole_rank(
        self, tmp_path: Path, make_run: RunMaker
    ) -> None:
        export = NsysExport().capture().kernel(GEMM, 1000, 1100)
        export.call("cudaGraphLaunch_v10000", 2000, 99)
        run = make_run(export.write(tmp_path / "a.sqlite"))
        assert timings(run)["reason"] == "graph_hidden"

    def test_node_mode_counts_its_kernels(self, tmp_path: Path, make_run: RunMaker) -> None:
        export = NsysExport().capture().range("step 3", 800, 950)
        export.call("cudaGraphLaunch_v10000", 900, 77)
        for node, (name, start, end) in enumerate(
            [(GEMM, 1000, 1300), (ALL_REDUCE, 1200, 1500), (GEMM, 1500, 1600)]
        ):
            export.kernel(
                name,
                start,
                end,
                called=False,
                correlation=77,
                stream=7 + node,
                graphNodeId=node + 1,
            )
        run = make_run(export.write(tmp_path / "a.sqlite"))
        row = timings(run)
        assert (row["compute_ns"], row["comm_ns"], row["overlap_ns"]) == (400, 300, 100)
        assert ops(run, "step", "launch_ns") == [(3, -100)] * 3

    def test_a_copy_node_that_nccl_captured_is_communication(
        self, tmp_path: Path, make_run: RunMaker
    ) -> None:
        export = NsysExport().capture().nccl_domain()
        export.range("ncclAllGather", 100, 200, domain=1)
        made = {"eventClass": 1, "nameId": export.string("cudaGraphAddMemcpyNode")}
        export.row(
            "CUDA_GRAPH_NODE_EVENTS",
            start=150, end=160, globalTid=global_pid(10) + 1, graphNodeId=1, **made,
        )  # fmt: skip
        export.row(
            "CUDA_GRAPH_NODE_EVENTS",
            start=500, end=510, globalTid=global_pid(10) + 1, graphNodeId=21, originalGraphNodeId=1,
            **made,
        )  # fmt: skip
        export.call("cudaGraphLaunch_v10000", 900, 77)
        for node, start in ((21, 1000), (22, 1200)):
            export.copy("DtoD", start, start + 100, called=False, graphNodeId=node)
        run = make_run(export.write(tmp_path / "a.sqlite"))
        assert [c for (c,) in ops(run, "o.class")] == ["comm", "copy"]

    def test_a_graph_launched_in_a_step_hides_that_step(
        self, tmp_path: Path, make_run: RunMaker
    ) -> None:
        export = NsysExport().capture()
        for k in range(3):
            zero = 10_000 * (k + 1)
            export.range(f"step {k}", zero - 1000, zero).copy(
                "HtoD", zero, zero + 50, launch=zero - 500
            )
            export.graph(zero + 60, zero + 9000, launch=zero - 400)
        export.range("step 3", 49_000, 50_000).graph(50_100, 50_200, launch=49_500)
        run = make_run(export.write(tmp_path / "a.sqlite"))
        rows = run_query(run, "step_times").select("step", "window_ns", "comm_ns", "reason").rows()
        assert rows == [
            *((k, 9000, None, "graph_hidden") for k in range(3)),
            (3, 100, None, "graph_hidden"),
        ]

    def test_a_step_after_a_graph_is_known(self, tmp_path: Path, make_run: RunMaker) -> None:
        export = NsysExport().capture().graph(500, 700, launch=100)
        export.range("step 0", 800, 900).kernel(GEMM, 1000, 1100, launch=850)
        run = make_run(export.write(tmp_path / "a.sqlite"))
        assert run_query(run, "step_times").select("comm_ns", "reason").rows() == [(0, None)]

    @pytest.mark.parametrize("call", ["cuGraphLaunch", "cudaGraphLaunch_v10000"])
    def test_both_kinds_of_launch_are_known(
        self, tmp_path: Path, make_run: RunMaker, call: str
    ) -> None:
        export = NsysExport().capture().kernel(GEMM, 1000, 1100).call(call, 2000, 99)
        assert timings(make_run(export.write(tmp_path / "a.sqlite")))["reason"] == "graph_hidden"

    def test_a_launch_of_a_process_without_device_work_hides_nothing(
        self, tmp_path: Path, make_run: RunMaker
    ) -> None:
        export = NsysExport().capture().kernel(GEMM, 1000, 1100)
        export.call("cudaGraphLaunch_v10000", 2000, 99, pid=77)
        run = make_run(export.write(tmp_path / "a.sqlite"))
        assert timings(run)["reason"] is None
        assert "graph_hidden" not in codes(run)


class TestStreams:
    """What ran on each stream."""

    def test_a_stream_has_the_role_of_its_kernels(self, tmp_path: Path, make_run: RunMaker) -> None:
        export = NsysExport().capture()
        export.kernel(GEMM, 1000, 1100, stream=7).copy("HtoD", 1100, 1150, stream=7)
        export.kernel(ALL_REDUCE, 1000, 1200, stream=16)
        export.copy("DtoH", 1000, 1050, stream=20)
        export.kernel(GEMM, 1000, 1020, stream=30).kernel(ALL_REDUCE, 1010, 1030, stream=30)
        run = make_run(export.write(tmp_path / "a.sqlite"))
        rows = run_query(run, "streams").sort("stream")
        assert rows.select(
            "stream", "role", "op_count", "busy_ns", "comm_ns", "compute_ns"
        ).rows() == [
            (7, "compute", 2, 150, 0, 100),
            (16, "comm", 1, 200, 200, 0),
            (20, "copy", 1, 50, 0, 0),
            (30, "mixed", 2, 30, 20, 20),
        ]
        assert rows["busy_fraction"].to_list() == [0.75, 1.0, 0.25, 0.15]

    def test_overlap_names_the_streams_that_cannot(
        self, tmp_path: Path, make_run: RunMaker
    ) -> None:
        export = NsysExport().capture().kernel(GEMM, 1000, 1100, stream=7)
        export.kernel(ALL_REDUCE, 1100, 1200, stream=7).kernel(GEMM, 1150, 1200, stream=8)
        run = make_run(export.write(tmp_path / "a.sqlite"))
        row = run_query(run, "overlap").to_dicts()[0]
        assert (row["comm_streams"], row["compute_streams"], row["shared_streams"]) == (
            [7],
            [7, 8],
            [7],
        )
        assert row["overlap_ratio"] == 0.5


class TestNothingToMeasure:
    """A capture without GPU work is an error that says how to get some."""

    def test_no_kernel_table(self, tmp_path: Path, make_run: RunMaker) -> None:
        path = NsysExport().capture().range("step 0", 0, 10).write(tmp_path / "cpu.sqlite")
        with pytest.raises(SourceError, match=r"no CUPTI_ACTIVITY_KIND_KERNEL table.*--trace=cuda"):
            make_run(path)

    def test_child_processes_that_were_not_traced(self, tmp_path: Path, make_run: RunMaker) -> None:
        export = NsysExport().capture()
        for pid in (10, 11):
            export.row("PROCESSES", globalPid=global_pid(pid), pid=pid, name="python")
        with pytest.raises(SourceError, match="--trace-fork-before-exec=true"):
            make_run(export.write(tmp_path / "cpu.sqlite"))


class TestLosses:
    """What nsys says about its own losses, without its words."""

    def test_lost_events_make_the_source_incomplete(
        self, tmp_path: Path, make_run: RunMaker
    ) -> None:
        export = NsysExport().capture().kernel(GEMM, 1000, 1100)
        export.row("DIAGNOSTIC_EVENT", severity=3, text="12 events dropped by /home/someone/app")
        run = make_run(export.write(tmp_path / "a.sqlite"))
        assert run.frame("SELECT complete FROM sources").item() is False
        stored = run.frame("SELECT message FROM diagnostics")["message"].to_list()
        assert not any("someone" in text for text in stored)

    def test_events_that_may_be_missing_are_a_warning(
        self, tmp_path: Path, make_run: RunMaker
    ) -> None:
        export = NsysExport().capture().kernel(GEMM, 1000, 1100)
        export.row(
            "DIAGNOSTIC_EVENT", severity=2, text="Not all CUDA events might have been collected."
        )
        run = make_run(export.write(tmp_path / "a.sqlite"))
        assert run.frame("SELECT complete FROM sources").item() is True
        assert "events_maybe_lost" in codes(run)


def test_hosts_that_are_not_named_are_unknown_not_one(tmp_path: Path, make_run: RunMaker) -> None:
    paths = []
    for name in "ab":
        export = NsysExport().capture(host=None).kernel(GEMM, 1000, 1100)
        export.row("TARGET_INFO_SYSTEM_ENV", name="Hostname", value=None)
        paths.append(export.write(tmp_path / f"{name}.sqlite"))
    assert make_run(*paths).frame("SELECT nodes FROM run").item() is None


class TestClock:
    """Sources lie on one axis where their session starts are known."""

    def test_graphs_alone_may_be_utc_already_too(self, tmp_path: Path, make_run: RunMaker) -> None:
        graph = NsysExport().capture(utc_ns=10**18).graph(10**18 + 1000, 10**18 + 1100)
        plain = NsysExport().capture(utc_ns=10**18).kernel(GEMM, 1500, 1600)
        run = make_run(graph.write(tmp_path / "a.sqlite"), plain.write(tmp_path / "b.sqlite"))
        rows = run.frame("SELECT rank, start_ns FROM rank_timings ORDER BY rank").rows()
        assert rows == [(0, 0), (1, 500)]

    def test_two_sources_are_placed_by_their_session_starts(
        self, tmp_path: Path, make_run: RunMaker
    ) -> None:
        first = NsysExport().capture(utc_ns=10**18).kernel(GEMM, 1000, 1100)
        second = NsysExport().capture(utc_ns=10**18 + 5000).kernel(GEMM, 1000, 1100)
        run = make_run(first.write(tmp_path / "a.sqlite"), second.write(tmp_path / "b.sqlite"))
        assert ops(run, "rank", "start_ns") == [(0, 0), (1, 5000)]

    def test_times_that_are_utc_already_are_not_moved_again(
        self, tmp_path: Path, make_run: RunMaker
    ) -> None:
        plain = NsysExport().capture(utc_ns=10**18).kernel(GEMM, 1000, 1100)
        normal = NsysExport().capture(utc_ns=10**18, EXPORT_PARAM_TIME_NORMALIZE="true")
        normal.kernel(GEMM, 10**18 + 1500, 10**18 + 1600)
        run = make_run(plain.write(tmp_path / "a.sqlite"), normal.write(tmp_path / "b.sqlite"))
        assert ops(run, "rank", "start_ns", "end_ns") == [(0, 0, 100), (1, 500, 600)]

    def test_a_source_without_session_start_is_said_to_be_incomparable(
        self, tmp_path: Path, make_run: RunMaker
    ) -> None:
        first = NsysExport().capture().kernel(GEMM, 1000, 1100)
        second = NsysExport().capture(utc_ns=None).kernel(GEMM, 7000, 7100)
        run = make_run(first.write(tmp_path / "a.sqlite"), second.write(tmp_path / "b.sqlite"))
        assert "clock_unknown" in codes(run)
        assert ops(run, "start_ns") == [(0,), (0,)]


def test_versions_of_driver_and_cuda_are_kept_and_nothing_else(
    tmp_path: Path, make_run: RunMaker
) -> None:
    export = NsysExport().capture().kernel("gemm<f>", 1000, 1100)
    for name, value in (("NvDriverVersion", "580.95.05"), ("CudaDriverVersion", "12090")):
        export.row("TARGET_INFO_SYSTEM_ENV", name=name, value=value, devStateName="x")
    odd = NsysExport().capture().kernel("gemm<f>", 1000, 1100)
    odd.row("TARGET_INFO_SYSTEM_ENV", name="NvDriverVersion", value="/home/x", devStateName="x")
    run, other = (
        make_run(each.write(tmp_path / f"{k}.sqlite")) for k, each in enumerate((export, odd))
    )
    versions = "SELECT driver_version, cuda_version, nccl_version FROM sources"
    assert run.frame(versions).rows() == [("580.95.05", "12.9", None)]
    assert other.frame(versions).rows() == [(None, None, None)]
