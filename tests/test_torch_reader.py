"""The torch.profiler reader on tiny traces: every reported fault with its right answer."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from tests.commands import traceq
from tests.conftest import RunMaker
from tests.traces.torch import BASE_NS, TorchTrace, collective
from traceq.errors import SourceError
from traceq.query import run_query
from traceq.report import build_report
from traceq.runfile import Run

GEMM = "gemm<float>(int)"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
GENERIC = "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)"


def timings(run: Run, scope: str = "capture") -> dict[str, Any]:
    return run_query(run, "comm_fraction", {"scope": scope}).to_dicts()[0]


def comm(run: Run, *columns: str) -> list[tuple[Any, ...]]:
    joined = "(SELECT k.*, ranks FROM nccl_kernels k LEFT JOIN communicators USING (comm_id))"
    return run.frame(f"SELECT {', '.join(columns)} FROM {joined} ORDER BY start_ns").rows()


def notes(run: Run) -> dict[str, str]:
    return dict(run.frame("SELECT code, message FROM diagnostics").iter_rows())


def test_one_rank_has_every_part_of_its_window(tmp_path: Path, make_run: RunMaker) -> None:
    trace = TorchTrace().kernel(GEMM, 1000, 1600).kernel(ALL_REDUCE, 1400, 1900, stream=16)
    trace.copy("Memcpy HtoD (Pageable -> Device)", 1850, 1950).memset(2050, 2100)
    row = timings(make_run(trace.write(tmp_path / "a.json")))
    parts = (
        "window_ns",
        "compute_ns",
        "comm_ns",
        "overlap_ns",
        "copy_ns",
        "exposed_copy_ns",
        "idle_ns",
    )
    assert [row[part] for part in parts] == [1100, 600, 500, 200, 150, 100, 100]


@pytest.mark.parametrize(
    ("cat", "name", "kind"),
    [
        ("Kernel", GEMM, "compute"),
        ("Memcpy", "Memcpy DtoH (Device -> Pinned)", "copy"),
        ("Memset", "Memset (Device)", "copy"),
        ("gpu_memcpy", "CopyDeviceToHost", "copy"),
        ("gpu_memset", "FillBuffer", "copy"),
    ],
)
def test_older_categories_and_amd_names_are_device_work(
    tmp_path: Path, make_run: RunMaker, cat: str, name: str, kind: str
) -> None:
    trace = TorchTrace().kernel(name, 1000, 1100, cat=cat, stream=0)
    run = make_run(trace.write(tmp_path / "a.json"))
    assert run.frame("SELECT class, stream FROM device_ops").rows() == [(kind, 0)]


def test_rows_that_only_carry_a_stream_are_not_device_work(
    tmp_path: Path, make_run: RunMaker
) -> None:
    trace = TorchTrace().kernel(GEMM, 1000, 1100)
    trace.event("cuda_sync", "Stream Wait Event", 1100, 9000, args={"stream": 7})
    trace.event("gpu_user_annotation", "block", 0, 9000, tid=7, args={"External id": 1})
    trace.event("overhead", "Activity Buffer Request", 0, 9000)
    trace.operator("triton_poi_fused_add_0", 0, 9000, stream=7)
    assert timings(make_run(trace.write(tmp_path / "a.json")))["window_ns"] == 100


def test_absolute_time_is_base_time_and_own_time(tmp_path: Path, make_run: RunMaker) -> None:
    early = TorchTrace(rank=0).kernel(GEMM, 1000, 1100)
    late = TorchTrace(rank=1, base_ns=BASE_NS + 5000).kernel(GEMM, 1000, 1100)
    older = TorchTrace(rank=2, base_ns=None).kernel(GEMM, BASE_NS + 9000, BASE_NS + 9100)
    run = make_run(*(t.write(tmp_path / f"{n}.json") for n, t in enumerate((early, late, older))))
    assert run.frame("SELECT rank, start_ns, end_ns FROM device_ops ORDER BY rank").rows() == [
        (0, 0, 100),
        (1, 5000, 5100),
        (2, 8000, 8100),
    ]


class TestTimes:
    """Reported faults B: durations and clocks."""

    @pytest.mark.parametrize(
        ("event", "why"),
        [
            ({"ts": 0, "dur": 0}, "no timestamp"),  # P14, P19
            ({"ts": 0.0}, "no timestamp"),
            ({"dur": -1}, "negative duration"),  # P15
            ({"dur": 7437000000000000}, "longer than the trace"),  # 236 years
            ({"dur": None}, "no duration"),
            ({"ts": None}, "no duration"),
            ({"ts": "1e999999999"}, "no duration"),
            ({"ts": [1, 2]}, "no duration"),
            ({"ts": 9_000_000_000_000_000}, "more than a day from the others"),
        ],
        ids=str,
    )
    def test_an_impossible_time_is_left_out_and_told_with_its_size(
        self, tmp_path: Path, make_run: RunMaker, event: dict[str, Any], why: str
    ) -> None:
        zero = 50_000_000_000_000  # half a day since boot
        trace = TorchTrace().kernel(GEMM, zero, zero + 100).kernel(GEMM, zero + 200, zero + 300)
        trace.kernel("odd<float>", zero + 400, zero + 500, event=event)
        run = make_run(trace.write(tmp_path / "a.json"))
        assert timings(run)["window_ns"] == 300
        assert f"1 operations left out: {why}: odd<float>" in notes(run)["ops_skipped"]
        assert run.frame("SELECT events_read, events_skipped FROM sources").rows() == [(2, 1)]

    def test_the_trace_says_itself_how_long_it_is(self, tmp_path: Path, make_run: RunMaker) -> None:
        trace = TorchTrace().event("Trace", "PyTorch Profiler (0)", 0, 10_000)
        trace.kernel(GEMM, 1000, 9000).kernel("odd<float>", 2000, 12_001)
        run = make_run(trace.write(tmp_path / "a.json"))
        assert timings(run)["window_ns"] == 8000
        assert "longer than the trace: odd<float> (10.0 µs)" in notes(run)["ops_skipped"]

    def test_a_trace_of_impossible_times_alone_has_nothing_to_measure(
        self, tmp_path: Path, make_run: RunMaker
    ) -> None:
        trace = TorchTrace().kernel(GEMM, 1000, 1100, event={"dur": -1})
        with pytest.raises(SourceError, match="no GPU rows"):
            make_run(trace.write(tmp_path / "a.json"))

    def test_a_child_is_never_longer_than_its_parent(
        self, tmp_path: Path, make_run: RunMaker
    ) -> None:  # P16
        trace = TorchTrace()
        trace.kernel(GEMM, 1000, 2000, event={"ts": 1.4996, "dur": 0.0004})
        trace.kernel(GEMM, 1000, 2000, event={"ts": 1499.6, "dur": 0.5})
        run = make_run(trace.write(tmp_path / "a.json"))
        rows = run.frame("SELECT start_ns, end_ns FROM device_ops ORDER BY start_ns").rows()
        assert rows == [(0, 0), (1_498_100, 1_498_600)]

    def test_a_collective_of_no_length_is_counted(
        self, tmp_path: Path, make_run: RunMaker
    ) -> None:  # P17
        trace = TorchTrace().kernel(GEMM, 1000, 1100)
        trace.kernel(ALL_REDUCE, 1050, 1050, **collective("allreduce", 64))
        run = make_run(trace.write(tmp_path / "a.json"))
        assert comm(run, "op", "bytes", "end_ns - start_ns") == [("all_reduce", 256, 0)]
        assert build_report(run).metrics["busbw_gbps"] is None

    def test_the_device_is_measured_not_the_call(
        self, tmp_path: Path, make_run: RunMaker
    ) -> None:  # P28
        trace = TorchTrace().annotation("nccl:all_reduce", 0, 30)
        trace.kernel(ALL_REDUCE, 1000, 11_000, launch=10)
        assert timings(make_run(trace.write(tmp_path / "a.json")))["comm_ns"] == 10_000

    def test_a_run_without_communication_has_no_overlap(
        self, tmp_path: Path, make_run: RunMaker
    ) -> None:  # P13
        report = build_report(make_run(TorchTrace().kernel(GEMM, 0, 9).write(tmp_path / "a.json")))
        assert report.metrics["overlap_ratio"] is None
        assert report.reasons["overlap_ratio"] == "no_comm"

    def test_jitter_is_shown_by_its_spread(self, tmp_path: Path, make_run: RunMaker) -> None:  # P26
        trace = TorchTrace()
        for k, length in enumerate((100, 100, 100, 900)):
            zero = 2000 * k + 1000
            trace.kernel(ALL_REDUCE, zero, zero + length, **collective("allreduce", 64))
        (row,) = build_report(make_run(trace.write(tmp_path / "a.json"))).collectives
        spread = [row[f"duration_ns_{n}"] for n in ("min", "p50", "p95", "max")]
        assert spread == [100, 100, 900, 900]


class TestClocks:
    """Reported faults P20, P23, P24, P27: waiting told from transfer, clocks from lateness."""

    @pytest.fixture
    def run(self, tmp_path: Path, make_run: RunMaker) -> Run:
        """Rank 1 arrives 20 us late at each of 10 collectives of 30 us; its clock is 3 ms ahead."""
        ahead = 3_000_000
        first = TorchTrace(rank=0, host_name="a")
        second = TorchTrace(rank=1, host_name="b")
        arguments = collective("allreduce", 262_144)
        for k in range(10):
            zero = 1_000_000 * (k + 1)
            first.kernel(ALL_REDUCE, zero, zero + 50_000, **arguments)
            start = zero + 20_000 + ahead
            second.kernel(ALL_REDUCE, start, start + 30_000, **arguments)
        return make_run(first.write(tmp_path / "a.json"), second.write(tmp_path / "b.json"))

    def test_the_shortest_duration_is_the_transfer_and_the_rest_is_waiting(self, run: Run) -> None:
        rows = run.frame("SELECT DISTINCT rank, match, transfer_ns, wait_ns FROM nccl_kernels")
        assert rows.sort("rank").rows() == [
            (0, "matched", 30_000, 20_000),
            (1, "matched", 30_000, 0),
        ]

    def test_the_offset_of_a_host_is_found_and_stated(self, run: Run) -> None:
        report = build_report(run)
        assert [(s["clock_offset_ns"], s["clock_residual_p95_ns"]) for s in report.sources] == [
            (0, 0),
            (-3_000_000, 0),
        ]
        starts = run.frame("SELECT rank, min(start_ns) FROM device_ops GROUP BY rank ORDER BY rank")
        assert starts.rows() == [(0, 0), (1, 20_000)]

    def test_bandwidth_is_of_the_transfer(self, run: Run) -> None:
        (row,) = build_report(run).collectives
        assert (row["transfer_ns_p50"], row["wait_ns"]) == (30_000, 200_000)
        # 1 MiB in 30 us; the bus factor of 2 ranks is 1
        assert row["busbw_gbps"] == row["algbw_gbps"] == 1_048_576 / 30_000
        assert row["quality"] == "measured"

    def test_one_rank_alone_gives_a_bound(self, tmp_path: Path, make_run: RunMaker) -> None:
        trace = TorchTrace().kernel(ALL_REDUCE, 0, 50_000, **collective("allreduce", 262_144))
        (row,) = build_report(make_run(trace.write(tmp_path / "a.json"))).collectives
        assert (row["busbw_gbps"], row["quality"]) == (1_048_576 / 50_000, "partial_ranks")
        assert row["wait_ns"] is None

    def test_ends_that_differ_are_the_residual(self, tmp_path: Path, make_run: RunMaker) -> None:
        paths = []
        for rank, skews in enumerate(((0, 0, 0), (0, 0, 3000))):
            trace = TorchTrace(rank=rank, host_name=f"host{rank}")
            for k, skew in enumerate(skews):
                zero = 100_000 * (k + 1)
                trace.kernel(ALL_REDUCE, zero, zero + 10_000 + skew, **collective("allreduce", 64))
            paths.append(trace.write(tmp_path / f"{rank}.json"))
        sources = build_report(make_run(*paths)).sources
        assert [s["clock_residual_p95_ns"] for s in sources] == [1500, 1500]


class TestSteps:
    """Steps by the host's annotations, placed by the device's where there are such."""

    def test_a_step_covers_what_it_launched(self, tmp_path: Path, make_run: RunMaker) -> None:
        trace = TorchTrace().annotation("ProfilerStep#7", 800, 1500)
        trace.kernel(GEMM, 1000, 1400, launch=900, thread=2).kernel(GEMM, 5000, 5100, launch=4900)
        run = make_run(trace.write(tmp_path / "a.json"))
        assert run_query(run, "step_times").select("step", "start_ns", "end_ns").rows() == [
            (7, 0, 400)
        ]

    def test_the_device_side_of_a_step_places_it(self, tmp_path: Path, make_run: RunMaker) -> None:
        trace = TorchTrace().annotation("ProfilerStep#7", 800, 1500)
        trace.kernel(GEMM, 1000, 1400, launch=900)
        for stream, start, end in ((7, 990, 1410), (16, 1100, 1600)):
            trace.event("gpu_user_annotation", "ProfilerStep#7", start, end, pid=0, tid=stream)
        run = make_run(trace.write(tmp_path / "a.json"))
        rows = run_query(run, "step_times").select("step", "start_ns", "end_ns", "idle_ns").rows()
        assert rows == [(7, -10, 600, 210)]  # 990-1600 less the kernel's 400

    def test_a_mark_of_a_moment_does_not_place_a_step(
        self, tmp_path: Path, make_run: RunMaker
    ) -> None:
        trace = TorchTrace().annotation("ProfilerStep#7", 800, 1500)
        trace.kernel(GEMM, 1000, 1400, launch=900).kernel(GEMM, 1500, 1600, launch=950)
        for length, window in ((299, (0, 600)), (300, (100, 400))):
            marked = copy.deepcopy(trace)
            marked.event("gpu_user_annotation", "ProfilerStep#7", 1100, 1100 + length, pid=0, tid=7)
            run = make_run(marked.write(tmp_path / f"{length}.json"))
            assert run_query(run, "step_times").select("start_ns", "end_ns").rows() == [window]

    def test_steps_of_one_name_are_placed_by_their_order(
        self, tmp_path: Path, make_run: RunMaker
    ) -> None:
        trace = TorchTrace()
        for zero in (1000, 3000):
            trace.annotation("train_step", zero, zero + 500)
            trace.kernel(GEMM, zero + 200, zero + 400)
            trace.event("gpu_user_annotation", "train_step", zero + 150, zero + 450, pid=0, tid=7)
        trace.event("gpu_user_annotation", "train_step", 0, 9000, pid=1, tid=7)  # another GPU
        trace.event("gpu_user_annotation", "train_step", 0, 9000, pid=0, tid=9)  # one of two
        run = make_run(trace.write(tmp_path / "a.json"))
        rows = run_query(run, "step_times").select("step", "start_ns", "end_ns").rows()
        assert rows == [(0, -50, 250), (1, 1950, 2250)]

    def test_a_number_that_returns_makes_no_step_of_steps(
        self, tmp_path: Path, make_run: RunMaker
    ) -> None:
        trace = TorchTrace()
        for k, zero in enumerate((1000, 3000)):
            name = f"epoch {k} step 0"
            trace.annotation(name, zero, zero + 500).kernel(GEMM, zero + 200, zero + 400)
            trace.event("gpu_user_annotation", name, zero + 150, zero + 450, pid=0, tid=7)
        run = make_run(trace.write(tmp_path / "a.json"))
        rows = run_query(run, "step_times").select("step", "start_ns", "end_ns").rows()
        assert rows == [(0, -50, 250), (1, 1950, 2250)]


class TestCollectives:
    """Reported faults D: what a record says of its collective, and what its launch lies in."""

    @pytest.mark.parametrize(
        ("name", "inward", "outward", "op", "size"),
        [
            ("allreduce", 100, 100, "all_reduce", 400),
            ("_allgather_base", 100, 200, "all_gather", 800),
            ("_reduce_scatter_base", 200, 100, "reduce_scatter", 800),
            ("all_to_allv", 100, 300, "all_to_all", 1200),
            ("broadcast", 100, 100, "broadcast", 400),
            ("send", 100, 100, "send", 400),
            ("recv", 0, 100, "recv", 400),
            ("barrier", 1, 1, "barrier", 4),
        ],
    )
    def test_sizes_follow_the_conventions(
        self,
        tmp_path: Path,
        make_run: RunMaker,
        name: str,
        inward: int,
        outward: int,
        op: str,
        size: int,
    ) -> None:
        arguments = collective(name, inward, out=outward)
        trace = TorchTrace().kernel(GENERIC, 1000, 1100, **arguments, Seq=9)  # P50: RCCL's one name
        run = make_run(trace.write(tmp_path / "a.json"))
        assert comm(run, "op", "bytes", "dtype", "group_size", "ranks", "seq", "size_source") == [
            (op, size, "Float", 2, [0, 1], 9, "torch_arguments")
        ]

    @pytest.mark.parametrize(
        ("dtype", "size"),
        [
            ("Float8_e4m3fn", 64),
            ("Float8_e5m2", 64),
            ("BFloat16", 128),
            ("Long", 512),
            ("Float4", None),
        ],
    )
    def test_an_unknown_element_type_has_no_size(
        self, tmp_path: Path, make_run: RunMaker, dtype: str, size: int | None
    ) -> None:
        trace = TorchTrace().kernel(
            ALL_REDUCE, 1000, 1100, **collective("allreduce", 64, dtype=dtype)
        )
        run = make_run(trace.write(tmp_path / "a.json"))
        assert comm(run, "bytes", "dtype") == [(size, dtype)]
        assert ("size_unknown" in notes(run)) == (size is None)

    def test_any_kernel_with_collective_arguments_communicates(
        self, tmp_path: Path, make_run: RunMaker
    ) -> None:  # P49, the next renaming
        trace = TorchTrace().kernel("brandNewName_v9", 1000, 1100, **collective("allreduce", 64))
        run = make_run(trace.write(tmp_path / "a.json"))
        assert comm(run, "op") == [("all_reduce",)]

    @pytest.mark.parametrize("name", ["ncclKernel_AllReduce_RING_LL_Sum_float", ALL_REDUCE])
    def test_renamed_generations_are_communication(
        self, tmp_path: Path, make_run: RunMaker, name: str
    ) -> None:  # P49
        run = make_run(TorchTrace().kernel(name, 1000, 1100).write(tmp_path / "a.json"))
        assert timings(run)["comm_fraction"] == 1.0

    def test_no_algorithm_or_protocol_is_told_from_a_name(
        self, tmp_path: Path, make_run: RunMaker
    ) -> None:  # P51
        path = TorchTrace().kernel(ALL_REDUCE, 1000, 1100).write(tmp_path / "a.json")
        report = json.loads(traceq("report", path, "--format", "json").stdout)
        told = json.dumps([report[key] for key in ("collectives", "metrics", "findings")])
        assert "RING" not in told
        assert "LL" not in told

    def test_without_arguments_sizes_are_unknown_with_a_hint(
        self, tmp_path: Path, make_run: RunMaker
    ) -> None:  # P56
        run = make_run(TorchTrace().kernel(ALL_REDUCE, 1000, 1100).write(tmp_path / "a.json"))
        assert comm(run, "op", "bytes", "comm_id") == [("all_reduce", None, None)]
        hint = run.frame("SELECT hint FROM diagnostics WHERE code = 'size_unknown'").item()
        assert "record_shapes=True" in hint

    def test_the_annotation_around_the_launch_tells_the_same(
        self, tmp_path: Path, make_run: RunMaker
    ) -> None:
        trace = TorchTrace(world_size=4)
        for k, (name, dims, outer) in enumerate(
            [
                ("nccl:all_reduce", [[2, 50]], [[[2, 50]], []]),
                ("nccl:_all_gather_base", [[100]], [[400], [100]]),
                ("nccl:_reduce_scatter_base", [[400]], [[100], [400]]),
                ("nccl:all_to_all", [[100]], [[300], [100]]),
            ]
        ):
            zero = 10_000 * k
            trace.operator("c10d::call_", zero, zero + 100, **{"Input Dims": outer})
            trace.operator("record_param_comms", zero + 5, zero + 95)
            trace.annotation(
                name, zero + 10, zero + 90, **{"Input Dims": dims, "Input type": ["long int"]}
            )
            trace.kernel(GENERIC, zero + 500, zero + 600, launch=zero + 50)
        run = make_run(trace.write(tmp_path / "a.json"))
        assert comm(run, "op", "bytes", "dtype", "group_size", "size_source") == [
            ("all_reduce", 800, "Long", 4, "torch_annotation"),
            ("all_gather", 3200, "Long", 4, "torch_annotation"),
            ("reduce_scatter", 3200, "Long", 4, "torch_annotation"),
            ("all_to_all", 2400, "Long", 4, "torch_annotation"),
        ]
        assert "group_assumed" in notes(run)  # P55: said, since nothing names the group

    def test_an_operator_that_knows_its_collective_tells_it_all(
        self, tmp_path: Path, make_run: RunMaker
    ) -> None:
        trace = TorchTrace().operator(
            "record_param_comms", 0, 100, **collective("allreduce", 64, group="7")
        )
        trace.kernel(GENERIC, 500, 600, launch=50)
        run = make_run(trace.write(tmp_path / "a.json"))
        assert comm(run, "op", "bytes", "comm_id", "size_source") == [
            ("all_reduce", 256, "7 [0-1]", "torch_annotation")
        ]

    def test_an_annotation_of_another_thread_or_time_tells_nothing(
        self, tmp_path: Path, make_run: RunMaker
    ) -> None:
        shape = {"Input Dims": [[64]], "Input type": ["float"]}
        trace = TorchTrace().annotation("nccl:all_reduce", 0, 100, thread=2, **shape)
        trace.annotation("nccl:all_reduce", 0, 40, thread=1, **shape)
        trace.kernel(GENERIC, 500, 600, launch=50)
        run = make_run(trace.write(tmp_path / "a.json"))
        assert comm(run, "op", "bytes") == [("unknown", None)]

    def test_two_groups_of_one_name_are_two_communicators(
        self, tmp_path: Path, make_run: RunMaker
    ) -> None:  # P57
        paths = []
        for rank, ranks in ((0, (0, 1)), (2, (2, 3))):
            trace = TorchTrace(rank=rank, world_size=4)
            trace.kernel(
                ALL_REDUCE, 1000, 1100, **collective("allreduce", 64, group="1", ranks=ranks)
            )
            paths.append(trace.write(tmp_path / f"{rank}.json"))
        run = make_run(*paths)
        rows = run.frame(
            "SELECT comm_id, name, ranks, calls FROM communicators ORDER BY comm_id"
        ).rows()
        assert rows == [("1 [0-1]", "1", [0, 1], 1), ("1 [2,3]", "1", [2, 3], 1)]

    def test_a_list_of_ranks_that_was_cut_is_looked_up(
        self, tmp_path: Path, make_run: RunMaker
    ) -> None:
        ranks = tuple(range(40))
        groups = [{"pg_name": "5", "pg_desc": "dp", "pg_size": 40, "ranks": list(ranks)}] * 2
        shown = "[" + ", ".join(map(str, ranks[:30])) + ", ...]"
        arguments = collective("allreduce", 64, group="5", ranks=ranks) | {
            "Process Group Ranks": shown
        }
        known = TorchTrace(rank=0, world_size=40, groups=groups).kernel(
            ALL_REDUCE, 1000, 1100, **arguments
        )
        unknown = TorchTrace(rank=1, world_size=40).kernel(ALL_REDUCE, 1000, 1100, **arguments)
        for trace, expected in ((known, list(ranks)), (unknown, None)):
            run = make_run(trace.write(tmp_path / f"{expected is None}.json"))
            assert comm(run, "group_size", "ranks") == [(40, expected)]

    def test_exposed_communication_is_told_per_step(
        self, tmp_path: Path, make_run: RunMaker
    ) -> None:  # P53
        trace = TorchTrace()
        for k in range(3):
            zero = 10_000 * k
            trace.annotation(f"ProfilerStep#{k}", zero, zero + 900)
            trace.kernel(GEMM, zero + 1000, zero + 2000, launch=zero + 10)
            trace.kernel(ALL_REDUCE, zero + 2000, zero + 2500, launch=zero + 20, stream=16)
        run = make_run(trace.write(tmp_path / "a.json"))
        assert run_query(run, "step_times")["exposed_comm_ns"].to_list() == [500, 500, 500]


class TestUncertainSizes:
    """Where it is not known which size a kernel has, it has none."""

    def described(
        self, tmp_path: Path, make_run: RunMaker, dims: Any, *kernels: str, name: str = "all_reduce"
    ) -> list[tuple[Any, ...]]:
        trace = TorchTrace(world_size=4)
        arguments = {"Input Dims": dims, "Input type": ["float"]}
        trace.annotation(f"nccl:{name}", 800, 1000, **arguments)
        for k, kernel in enumerate(kernels):
            trace.kernel(kernel, 2000 + 100 * k, 2050 + 100 * k, launch=900 + k, stream=16)
        return comm(make_run(trace.write(tmp_path / "a.json")), "op", "bytes", "group_size")

    def test_a_scalar_is_one_element(self, tmp_path: Path, make_run: RunMaker) -> None:
        assert self.described(tmp_path, make_run, [[]], GENERIC) == [("all_reduce", 4, 4)]

    def test_kernels_that_share_an_annotation(self, tmp_path: Path, make_run: RunMaker) -> None:
        rows = self.described(tmp_path, make_run, [[64]], GENERIC, GENERIC)
        assert rows == [("all_reduce", None, 4)] * 2

    def test_a_kernel_that_is_another_operation(self, tmp_path: Path, make_run: RunMaker) -> None:
        rows = self.described(tmp_path, make_run, [[64]], ALL_REDUCE, name="all_gather")
        assert rows == [("all_reduce", None, 4)]

    @pytest.mark.parametrize("elements", [-1, True, "64", 2**62])
    def test_a_count_that_is_none(self, tmp_path: Path, make_run: RunMaker, elements: Any) -> None:
        arguments = collective("allreduce", elements, **{"Group size": -2, "Seq": 2**70})
        trace = TorchTrace().kernel(GENERIC, 1000, 1100, **arguments)
        run = make_run(trace.write(tmp_path / "a.json"))
        assert comm(run, "bytes", "group_size", "seq") == [(None, 2, None)]

    def test_the_only_group_is_meant(self, tmp_path: Path, make_run: RunMaker) -> None:
        group = {"pg_name": "7", "pg_desc": "tensor", "pg_size": 2, "ranks": [0, 1]}
        trace = TorchTrace(world_size=4, groups=[group])
        trace.annotation(
            "nccl:all_reduce", 800, 1000, **{"Input Dims": [[8]], "Input type": ["float"]}
        )
        trace.kernel(ALL_REDUCE, 2000, 2050, launch=900)
        run = make_run(trace.write(tmp_path / "a.json"))
        assert comm(run, "comm_id", "group_size", "bytes") == [("7 [0-1]", 2, 32)]

    def test_two_streams_may_be_two_groups(self, tmp_path: Path, make_run: RunMaker) -> None:
        trace = TorchTrace()
        for k, stream in enumerate((16, 20)):
            zero = 1000 * (k + 1)
            dims = {"Input Dims": [[8]], "Input type": ["float"]}
            trace.annotation("nccl:all_reduce", zero, zero + 100, **dims)
            trace.kernel(ALL_REDUCE, zero + 500, zero + 550, launch=zero + 100, stream=stream)
        rows = comm(make_run(trace.write(tmp_path / "a.json")), "group_size", "bytes")
        assert rows == [(None, 32)] * 2

    @pytest.mark.parametrize("ranks", ["[0, 99999999999]", [0, -1], [0, "x"], "[]"])
    def test_ranks_beyond_belief(self, tmp_path: Path, make_run: RunMaker, ranks: Any) -> None:
        arguments = collective("allreduce", 8, **{"Process Group Ranks": ranks})
        trace = TorchTrace().kernel(GENERIC, 1000, 1100, **arguments)
        run = make_run(trace.write(tmp_path / "a.json"))
        assert comm(run, "group_size", "ranks", "bytes") == [(2, None, 32)]

    def test_a_number_of_ranks_beyond_belief(self, tmp_path: Path, make_run: RunMaker) -> None:
        trace = TorchTrace(world_size=10**12).kernel(GEMM, 1000, 1100)
        report = build_report(make_run(trace.write(tmp_path / "a.json")))
        assert report.run["world_size"] != 10**12


class TestRanks:
    """Whose trace it is."""

    def test_ranks_come_from_the_trace(self, tmp_path: Path, make_run: RunMaker) -> None:
        paths = [
            TorchTrace(rank=rank, world_size=4).kernel(GEMM, 0, 9).write(tmp_path / f"{name}.json")
            for name, rank in (("a", 3), ("rank9", 1))
        ]
        report = build_report(make_run(*paths))
        assert [(r["rank"], r["rank_source"], r["source"]) for r in report.ranks] == [
            (1, "torch", "rank9.json"),
            (3, "torch", "a.json"),
        ]
        assert report.run["ranks_missing"] == [0, 2]

    def test_without_a_rank_files_are_counted_and_it_is_said(
        self, tmp_path: Path, make_run: RunMaker
    ) -> None:  # P58
        paths = [
            TorchTrace(rank=None, world_size=None).kernel(GEMM, 0, 9).write(tmp_path / f"{n}.json")
            for n in "ab"
        ]
        run = make_run(*paths)
        assert run.frame("SELECT rank, rank_source FROM ranks ORDER BY rank").rows() == [
            (0, "order"),
            (1, "order"),
        ]
        assert "rank_from_order" in notes(run)

    def test_two_traces_of_one_rank_are_named(self, tmp_path: Path, make_run: RunMaker) -> None:
        paths = [TorchTrace(rank=1).kernel(GEMM, 0, 9).write(tmp_path / f"{n}.json") for n in "ab"]
        with pytest.raises(SourceError, match=r"a\.json and b\.json: both claim rank 1"):
            make_run(*paths)

    def test_a_set_on_another_gpu_does_not_hide_the_rank(
        self, tmp_path: Path, make_run: RunMaker
    ) -> None:
        trace = TorchTrace(rank=3, world_size=4).kernel(GEMM, 1000, 1100)
        trace.memset(1200, 1300, device=1)
        run = make_run(trace.write(tmp_path / "a.json"))
        assert run.frame("SELECT rank, rank_source, device FROM ranks").rows() == [(3, "torch", 0)]
        assert "1 operations left out: they are on a GPU that ran no kernel" in notes(run).values()

    @pytest.mark.parametrize("base", [True, "1700000000000000000", 5, 2**70])
    def test_a_base_time_that_is_none_places_nothing(
        self, tmp_path: Path, make_run: RunMaker, base: Any
    ) -> None:
        trace = TorchTrace(base_ns=base).kernel(GEMM, 1000, 1100)
        run = make_run(trace.write(tmp_path / "a.json"))
        assert run.frame("SELECT utc_origin_ns FROM sources").item() is None

    @pytest.mark.parametrize("rank", [-1, True, "3", 2**70])
    def test_a_rank_beyond_belief_is_not_stated(
        self, tmp_path: Path, make_run: RunMaker, rank: Any
    ) -> None:
        trace = TorchTrace(rank=rank).kernel(GEMM, 1000, 1100)
        run = make_run(trace.write(tmp_path / "a.json"))
        assert run.frame("SELECT rank_source FROM ranks").item() != "torch"

    def test_a_device_that_is_not_told_is_unknown(self, tmp_path: Path, make_run: RunMaker) -> None:
        trace = TorchTrace().kernel(GEMM, 1000, 1100, device="x", event={"pid": "unknown"})
        run = make_run(trace.write(tmp_path / "a.json"))
        assert run.frame("SELECT rank, device FROM ranks").rows() == [(0, None)]

    def test_a_correlation_of_zero_links_nothing(self, tmp_path: Path, make_run: RunMaker) -> None:
        trace = TorchTrace().kernel(GEMM, 1000, 1100, correlation=0)
        run = make_run(trace.write(tmp_path / "a.json"))
        assert run.frame("SELECT launch_ns FROM device_ops").item() is None

    def test_ids_beyond_64_bits_are_no_harm(self, tmp_path: Path, make_run: RunMaker) -> None:
        trace = TorchTrace().kernel(GEMM, 1000, 1100, **{"External id": 2**64 + 5})
        trace.kernel(GEMM, 1200, 1300, called=False, correlation=2**64 - 1)
        run = make_run(trace.write(tmp_path / "a.json"))
        rows = run.frame("SELECT correlation, launch_ns FROM device_ops ORDER BY start_ns").rows()
        assert rows == [(1, -100), (None, None)]


class TestIncomplete:
    """A trace that was cut is reported, and never judged."""

    def test_a_cut_trace_is_reported_with_exit_two(self, tmp_path: Path) -> None:  # P6, P87
        trace = TorchTrace()
        for k in range(50):
            trace.kernel(GEMM, 1000 * k, 1000 * k + 500)
        text = trace.text()
        path = tmp_path / "a.json"
        path.write_text(text[: len(text) * 7 // 10])
        done = traceq("report", path)
        assert done.returncode == 2
        assert "INCOMPLETE" in done.stdout
        assert "the trace is cut short (it ends before its last bracket)" in " ".join(
            done.stdout.split()
        )
        assert traceq("report", path, "--allow-incomplete").returncode == 0

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ('{"schemaVersion": 1, "distributedInfo": {"rank": 0}}', "it has no array of events"),
            ('{"schemaVersion": 1, "traceEvents": []}', "only metadata"),
            ('{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1, "dur": 1}]}',
             "it holds 1 operators and 0 annotations"),
            ('{"traceEvents": [', "no event that can be read"),
        ],
    )  # fmt: skip
    def test_a_trace_with_nothing_to_measure_says_what_it_holds(
        self, tmp_path: Path, text: str, message: str
    ) -> None:
        path = tmp_path / "a.json"
        path.write_text(text)
        done = traceq("report", path)
        assert (done.returncode, done.stdout) == (2, "")
        (line,) = done.stderr.splitlines()
        assert message in line

    def test_lost_events_make_a_source_incomplete(self, tmp_path: Path, make_run: RunMaker) -> None:
        text = TorchTrace().kernel(GEMM, 1000, 1100).text().replace("[{", '[{"ph": 7}, {', 1)
        text = text.replace('"traceEvents": [{"ph"', '"traceEvents": [{"ph": 7}, {"ph"', 1)
        path = tmp_path / "a.json"
        path.write_text(text)
        run = make_run(path)
        assert run.frame("SELECT complete FROM sources").item() is False
        message = notes(run)["events_unreadable"]
        assert "events cannot be read in 1 place, the first at byte" in message

    def test_begins_and_ends_apart_make_a_source_incomplete(
        self, tmp_path: Path, make_run: RunMaker
    ) -> None:
        trace = TorchTrace().kernel(GEMM, 1000, 1100)
        for kind in ("B", "E"):
            trace.kernel(GEMM, 1200, 1300, event={"ph": kind})
        trace.event("python_function", "f", 1000, 1100, ph="B")
        run = make_run(trace.write(tmp_path / "a.json"))
        assert run.frame("SELECT complete FROM sources").item() is False
        assert notes(run)["events_unread"].startswith("2 begins and ends of operations stand")

    def test_two_traces_in_one_file_are_told(self, tmp_path: Path, make_run: RunMaker) -> None:
        path = tmp_path / "a.json"
        path.write_text(TorchTrace().kernel(GEMM, 1000, 1100).text() * 2)
        run = make_run(path)
        assert run.frame("SELECT complete FROM sources").item() is False
        assert "trailing_content" in notes(run)

    def test_mended_events_are_counted(self, tmp_path: Path, make_run: RunMaker) -> None:
        text = TorchTrace().kernel("evil<float>", 1000, 1100).text().replace("evil", "C:\\Users")
        path = tmp_path / "a.json"
        path.write_text(text.replace('"dur": 0.010', '"dur": NaN'))
        run = make_run(path)
        assert "events_repaired" in notes(run)
        assert run.frame("SELECT complete FROM sources").item() is True


def test_graph_launches_without_any_kernel_hide_the_rank(
    tmp_path: Path, make_run: RunMaker
) -> None:
    trace = TorchTrace().kernel(GEMM, 1000, 1100).call("cudaGraphLaunch", 2000, 99)
    assert timings(make_run(trace.write(tmp_path / "a.json")))["reason"] == "graph_hidden"


def test_kernels_of_one_graph_launch_share_it(tmp_path: Path, make_run: RunMaker) -> None:
    trace = TorchTrace().annotation("ProfilerStep#1", 0, 100).call("cudaGraphLaunch", 50, 99)
    for k in range(3):
        trace.kernel(GEMM, 1000 + 200 * k, 1100 + 200 * k, called=False, correlation=99)
    run = make_run(trace.write(tmp_path / "a.json"))
    assert run.frame("SELECT step, launch_ns FROM device_ops").rows() == [(1, -950)] * 3


class TestCpuRun:
    """A gloo run: its collectives communicate, operators outside of collective calls compute."""

    @pytest.fixture
    def run(self, tmp_path: Path, make_run: RunMaker) -> Run:
        trace = TorchTrace(gpu=None, world_size=2)
        shape = {"Input Dims": [[100]], "Input type": ["float"]}
        trace.annotation("ProfilerStep#3", 0, 2000)
        trace.operator("aten::mm", 100, 600)
        trace.operator("aten::add", 200, 300)  # nested: counts once
        trace.operator("c10d::allreduce_", 600, 900).operator("aten::copy_", 650, 700)
        trace.annotation("gloo:all_reduce", 500, 1000, thread=2, **shape)
        trace.operator("aten::mul", 1200, 1300)
        return make_run(trace.write(tmp_path / "a.json"))

    def test_the_parts_add_up(self, run: Run) -> None:
        row = timings(run)
        assert {
            k: row[k] for k in ("window_ns", "compute_ns", "comm_ns", "overlap_ns", "idle_ns")
        } == {
            "window_ns": 1200,  # 100-1300
            "compute_ns": 600,  # 100-600 and 1200-1300
            "comm_ns": 500,
            "overlap_ns": 100,  # 500-600
            "idle_ns": 200,
        }

    def test_events_without_a_duration_are_counted(
        self, tmp_path: Path, make_run: RunMaker
    ) -> None:
        trace = TorchTrace(gpu=None).annotation("gloo:all_reduce", 500, 1000)
        trace.operator("aten::mm", 100, 600).operator("aten::lost", 100, 600)
        trace.events[-1]["dur"] = None
        trace.annotation("gloo:all_reduce", 2000, 2100)
        trace.events[-1]["dur"] = -1
        run = make_run(trace.write(tmp_path / "a.json"))
        assert timings(run)["window_ns"] == 900
        assert run.frame("SELECT events_read, events_skipped FROM sources").rows() == [(2, 2)]

    def test_it_is_known_as_a_cpu_run(self, run: Run) -> None:
        assert run.frame("SELECT device_kind, device FROM ranks").rows() == [("cpu", None)]
        assert run.frame("SELECT class, step FROM device_ops ORDER BY start_ns").rows() == [
            ("compute", 3),
            ("compute", 3),
            ("comm", 3),
            ("compute", 3),
        ]
        assert comm(run, "op", "bytes", "group_size") == [("all_reduce", 400, 2)]


class TestDoctor:
    """What a trace can answer."""

    @staticmethod
    def verdicts(path: Path) -> dict[str, str]:
        (source,) = json.loads(traceq("doctor", path, "--format", "json").stdout)
        return {answer["question"]: answer["verdict"] for answer in source["answers"]}

    def test_a_good_trace(self, tmp_path: Path) -> None:
        trace = TorchTrace().annotation("ProfilerStep#1", 800, 1500).kernel(GEMM, 1000, 1100)
        trace.kernel(ALL_REDUCE, 1200, 1300, **collective("allreduce", 64))
        assert set(self.verdicts(trace.write(tmp_path / "a.json")).values()) == {"yes"}

    def test_a_poor_trace(self, tmp_path: Path) -> None:
        trace = TorchTrace(rank=None, gpu=None, base_ns=None).kernel(ALL_REDUCE, 1000, 1100)
        path = tmp_path / "a.json"
        path.write_text(trace.text().removesuffix("}"))
        assert self.verdicts(path) == {
            "Is anything missing?": "partly",
            "What ran on the GPU?": "yes",
            "Where are the training steps?": "no",
            "How large are the messages?": "no",
            "Which GPU model?": "no",
            "Which rank is it?": "no",
            "Can it be laid beside other files in time?": "partly",
        }

    def test_a_trace_of_the_host_alone(self, tmp_path: Path) -> None:
        path = TorchTrace().operator("aten::mm", 0, 9).write(tmp_path / "a.json")
        assert self.verdicts(path)["What ran on the GPU?"] == "no"

    def test_a_trace_whose_graphs_are_hidden(self, tmp_path: Path) -> None:
        trace = TorchTrace().kernel(GEMM, 1000, 1100).call("cudaGraphLaunch", 2000, 99)
        assert self.verdicts(trace.write(tmp_path / "a.json"))["What ran on the GPU?"] == "partly"


def test_no_host_or_path_of_a_trace_is_kept(tmp_path: Path, make_run: RunMaker) -> None:
    trace = TorchTrace(host_name="gpu-17.cluster", username="someone")
    trace._tail["traceName"] = "/home/someone/trace.json"
    run = make_run(trace.kernel(GEMM, 0, 9).write(tmp_path / "a.json"))
    assert run.frame("SELECT host FROM ranks").item() == "node0"
    (stored,) = tmp_path.glob("*.duckdb")
    assert not [s for s in (b"gpu-17", b"someone") if s in stored.read_bytes()]
