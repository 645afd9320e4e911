"""Runs of known truth side by side: every part of a difference to the nanosecond."""

import random
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.conftest import RunMaker
from tests.traces.nsys import NsysExport
from tests.traces.workload import MIB, MS, STEP, Phase, Workload, late
from traceq.compare.collectives import _paired
from traceq.compare.comparison import Comparison, compare_runs
from traceq.compare.waterfall import _spread
from traceq.errors import TraceqError
from traceq.gates import judge_comparison, parse_gate
from traceq.ingest.pipeline import ingest_run
from traceq.render.compared import table
from traceq.runfile import Run, open_run

US = 1000
STEP_NS = 48_100 * US  # 30 ms of compute, 18 ms of transfers, five gaps of 20 us
COMPUTE_NS = 33 * MS  # with the 3 ms that hide the ends of transfers


def workload(ranks: int, **more: Any) -> Workload:
    return Workload(ranks=ranks, per_node=8, node_offset_ns=0, **more)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, Run]]:
    """8 ranks on time, 16 of which rank 11 is 20 ms late, 64 whose all_gather takes three times."""
    works = {
        8: workload(8),
        16: workload(16, delay=late([11])),
        64: workload(64, transfer=lambda _, p: p.transfer_ns * (1 + 2 * (p.op == "all_gather"))),
    }
    with ExitStack() as stack:
        opened = {}
        for ranks, work in works.items():
            folder = tmp_path_factory.mktemp(f"n{ranks}")
            path = folder / f"n{ranks}.duckdb"
            ingest_run(work.write_torch(folder), path, name=f"n{ranks}")
            opened[ranks] = stack.enter_context(open_run(path))
        yield opened


@pytest.fixture(scope="module")
def comparison(runs: dict[int, Run]) -> Comparison:
    return compare_runs([runs[8], runs[16], runs[64]])


def parts(fall: dict[str, Any], column: str = "difference_ns") -> dict[str, int]:
    return {part["part"]: part[column] for part in fall["parts"]}


class TestWaterfall:
    """Where the difference of two step times comes from."""

    def test_a_late_rank_costs_waiting_on_all_others(self, comparison: Comparison) -> None:
        fall = comparison.waterfalls[0]
        assert (fall["base_ns"], fall["run_ns"]) == (STEP_NS, STEP_NS + 20 * MS)
        assert parts(fall) == {
            "compute": 20 * MS // 16,
            "exposed_transfer": 0,
            "exposed_wait": 20 * MS * 15 // 16,
            "exposed_copy": 0,
            "idle": 0,
            "rest": 0,
        }

    def test_a_slow_operation_costs_transfer(self, comparison: Comparison) -> None:
        fall = comparison.waterfalls[1]
        assert fall["difference_ns"] == 8 * MS
        assert {part: ns for part, ns in parts(fall).items() if ns} == {"exposed_transfer": 8 * MS}

    def test_parts_add_up_to_the_step_time_in_every_column(self, comparison: Comparison) -> None:
        for fall in comparison.waterfalls:
            for column in ("base_ns", "run_ns", "difference_ns"):
                assert sum(parts(fall, column).values()) == fall[column]
        for run in comparison.runs:
            assert sum(run["parts"].values()) == run["step_time_ns"]

    def test_parts_add_up_whatever_the_steps(self, tmp_path: Path, make_run: RunMaker) -> None:
        made = []
        for seed in range(2):
            chance = random.Random(seed)
            delays = {
                (rank, step, phase): chance.randrange(7_000_001)
                for rank in range(3) for step in range(5) for phase in range(3)
            }  # fmt: skip
            folder = tmp_path / str(seed)
            folder.mkdir()
            work = Workload(ranks=3, per_node=3, steps=5, delay=lambda r, s, p, d=delays: (
                d[r, s, p], ("compute", "copy", "launch")[p],
            ))  # fmt: skip
            made.append(make_run(*work.write_torch(folder)))
        compared = compare_runs(made)
        (fall,) = compared.waterfalls
        assert fall["difference_ns"] != 0
        for column in ("base_ns", "run_ns", "difference_ns"):
            assert sum(parts(fall, column).values()) == fall[column]

    def test_identical_runs_show_no_difference_anywhere(self, runs: dict[int, Run]) -> None:
        compared = compare_runs([runs[16], runs[16]])
        (fall,) = compared.waterfalls
        verdicts = {fall["verdict"], *(part["verdict"] for part in fall["parts"])}
        verdicts |= {run["verdict"] for row in compared.collectives for run in row["runs"]}
        assert verdicts == {"no difference"}
        assert compared.settings == []
        assert compared.causes[0]["text"] == "no difference in step time"
        assert [run["name"] for run in compared.runs] == ["n16", "n16 (2)"]

    @pytest.mark.parametrize("seed", range(3))
    def test_jitter_alone_is_inconclusive(
        self, tmp_path: Path, make_run: RunMaker, seed: int
    ) -> None:
        made = []
        for run in range(2):
            chance = random.Random(f"{seed} {run}")
            jitter = [chance.randrange(4 * MS) for _ in range(30)]
            folder = tmp_path / str(run)
            folder.mkdir()
            work = workload(4, steps=30, transfer=lambda s, p, j=jitter: p.transfer_ns + j[s])
            made.append(make_run(*work.write_torch(folder)))
        (fall,) = compare_runs(made).waterfalls
        assert fall["difference_ns"] != 0
        assert fall["verdict"] == "inconclusive"
        assert {part["verdict"] for part in fall["parts"]} <= {"inconclusive", "no difference"}
        assert "inconclusive: the step is" in compare_runs(made).causes[0]["text"]

    def test_the_spread_is_of_the_middle_half_or_of_few_steps_all(self) -> None:
        assert _spread(pl.Series([10, 90, 20, 30])) == 80
        assert _spread(pl.Series([1, 2, 3, 4, 5, 6, 7, 8, 900])) == 7 - 3


def test_the_documented_comparison_is_what_is_printed(comparison: Comparison) -> None:
    page = (Path(__file__).parents[1] / "docs" / "comparing-runs.md").read_text()
    shown = re.search(r"```text\n(traceq compare.*?)\n```", page, re.DOTALL)
    assert shown is not None
    assert shown[1] == table.render(comparison).rstrip()


class TestEfficiency:
    """Weak and strong efficiency against the base."""

    def test_both_are_exact(self, comparison: Comparison) -> None:
        late_, slow = comparison.runs[1:]
        assert late_["weak_efficiency"] == 48.1 / 68.1
        assert late_["strong_efficiency"] == pytest.approx(48.1 * 8 / (68.1 * 16), rel=1e-15)
        assert slow["weak_efficiency"] == 48.1 / 56.1
        assert slow["strong_efficiency"] == pytest.approx(48.1 * 8 / (56.1 * 64), rel=1e-15)
        assert late_["efficiency"] == late_["weak_efficiency"]

    def test_the_word_of_the_user_chooses(self, runs: dict[int, Run]) -> None:
        strong = compare_runs([runs[8], runs[16]], "strong").runs[1]
        assert strong["efficiency"] == strong["strong_efficiency"]

    def test_it_is_unknown_without_the_size_of_the_job(
        self, runs: dict[int, Run], tmp_path: Path, make_run: RunMaker
    ) -> None:
        export = NsysExport().capture()
        for step in range(3):
            export.range(f"step {step}", 1000 * step, 1000 * step + 500)
            export.kernel("g<f>", 1000 * step + 600, 1000 * step + 700, launch=1000 * step + 100)
        other = make_run(export.write(tmp_path / "a.sqlite"))
        run = compare_runs([runs[8], other]).runs[1]
        assert (run["step_time_ns"], run["efficiency"]) == (100, None)
        assert run["reason"] == "world_size_unknown"


class TestCauses:
    """The first cause in words."""

    def test_the_late_rank_is_named_with_its_share(self, comparison: Comparison) -> None:
        assert comparison.causes[0]["text"] == (
            "the step is 20.0 ms (41.6 %) longer: 93.8 % of it is waiting for rank 11 (late by "
            "compute); 6.2 % compute"
        )
        assert [row["rank"] for row in comparison.stragglers if row["run"] == "n16"] == [11]

    @pytest.mark.parametrize("op", ["all_reduce", "all_gather", "reduce_scatter"])
    def test_the_operation_that_was_slowed_is_named_first(
        self, runs: dict[int, Run], tmp_path: Path, make_run: RunMaker, op: str
    ) -> None:
        work = workload(16, transfer=lambda _, p: p.transfer_ns + 6 * MS * (p.op == op))
        compared = compare_runs([runs[8], make_run(*work.write_torch(tmp_path))])
        assert compared.collectives[0]["op"] == op
        assert compared.collectives[0]["growth_ns"] == 6 * MS
        assert (
            f"100.0 % of it is exposed transfer, most of all {op} of" in compared.causes[0]["text"]
        )

    def test_faster_is_told_as_shorter(self, runs: dict[int, Run]) -> None:
        (cause,) = compare_runs([runs[16], runs[8]]).causes
        assert cause["text"] == (
            "the step is 20.0 ms (29.4 %) shorter: 93.8 % of it is waiting; 6.2 % compute"
        )

    def test_lateness_that_is_no_one_ranks_fault_names_nobody(
        self, runs: dict[int, Run], tmp_path: Path, make_run: RunMaker
    ) -> None:
        in_turn = lambda rank, step, phase: (10 * MS * (step % 8 == rank and phase == 0), "compute")  # noqa: E731
        other = make_run(*workload(8, steps=16, delay=in_turn).write_torch(tmp_path))
        text = compare_runs([runs[8], other]).causes[0]["text"]
        assert "waiting for late ranks, none of them late by more than chance" in text


class TestCollectives:
    """The same kind of collective in several runs."""

    def test_transfer_waiting_and_rate_of_each_run(self, comparison: Comparison) -> None:
        row = next(r for r in comparison.collectives if r["op"] == "all_reduce")
        assert row["bucket_bytes"] == 256 * MIB
        base, other, _ = row["runs"]
        assert (base["transfer_ns_p50"], other["transfer_ns_p50"]) == (10 * MS, 10 * MS)
        assert (base["wait_ns_mean"], other["wait_ns_mean"]) == (0, 20 * MS * 15 // 16)
        assert base["busbw_gbps"] == pytest.approx(256 * MIB / 10e6 * 1.75)
        assert other["busbw_gbps"] == pytest.approx(256 * MIB / 10e6 * 2 * 15 / 16)
        assert base["efficiency"] == pytest.approx(base["busbw_gbps"] / 450)
        assert other["window_exposed_ns"] == 9 * MS + 20 * MS * 15 // 16
        assert other["window_exposed_transfer_ns"] == 9 * MS
        assert other["window_exposed_wait_ns"] == 20 * MS * 15 // 16

    def test_a_kind_that_one_run_lacks_has_a_line_of_its_own(
        self, runs: dict[int, Run], tmp_path: Path, make_run: RunMaker
    ) -> None:
        work = workload(8, phases=(*STEP, Phase("all_to_all", 64 * MIB, 2 * MS)))
        compared = compare_runs([runs[8], make_run(*work.write_torch(tmp_path))])
        row = next(r for r in compared.collectives if r["op"] == "all_to_all")
        assert row["runs"][0] is None
        assert row["growth_ns"] == row["runs"][1]["window_exposed_ns"] == 1 * MS

    @pytest.mark.parametrize("order", [1, -1])
    def test_calls_without_a_size_are_of_no_kind_and_of_every_kind(
        self, tmp_path: Path, make_run: RunMaker, order: int
    ) -> None:
        """The same training, of which one capture tells no sizes: nothing grew from nothing."""
        made = []
        for name in ("sized", "bare"):
            folder = tmp_path / name
            folder.mkdir()
            paths = workload(2, steps=3).write_torch(folder)
            for path in paths if name == "bare" else ():
                path.write_text(path.read_text().replace("In msg nelems", "x").replace(
                    "Out msg nelems", "y"
                ))  # fmt: skip
            made.append(make_run(*paths, name=name))
        compared = compare_runs(made[::order])
        assert {row["bucket_bytes"] is None for row in compared.collectives} == {True, False}
        assert [row["growth_ns"] for row in compared.collectives] == [None] * 6
        assert compared.causes[0]["text"] == "no difference in step time"

    @pytest.mark.parametrize(
        ("before", "after", "ranks", "pairs"),
        [
            ([8], [16], (8, 16), {0: 0}),  # the group of all ranks
            ([8], [8, 2], (8, 16), {0: 0}),  # tensor parallel stays, data parallel is new
            ([8], [8, 16], (8, 16), {0: 1}),  # sharded over all ranks
            ([4, 2], [4, 4], (8, 16), {0: 0, 1: 1}),
            ([8], [2, 4], (8, 16), {}),  # nothing tells which
            ([None], [None], (None, None), {0: 0}),
        ],
    )
    def test_groups_answer_each_other(
        self, before: list[int], after: list[int], ranks: tuple[int, int], pairs: dict[int, int]
    ) -> None:
        rows = [
            [{"op": "all_reduce", "bucket_bytes": 1024, "group_size": n} for n in sizes]
            for sizes in (before, after)
        ]
        assert _paired(rows[0], rows[1], *ranks) == pairs


class TestScaling:
    """Exposed transfer over three or more numbers of ranks."""

    @pytest.fixture
    def ring(self, tmp_path: Path, make_run: RunMaker) -> Callable[..., Comparison]:
        def compared(*sizes: int, slow: int | None = None) -> Comparison:
            made = []
            for n in sizes:
                # A ring with 50 us a step and 100 MiB at 10 GB/s, of which HIDDEN_NS is hidden.
                bandwidth = 2 * (n - 1) / n * 100 * MIB / 10
                length = round(2 * (n - 1) * 50 * US + bandwidth) + MS
                folder = tmp_path / str(n)
                folder.mkdir()
                phase = Phase("all_reduce", 100 * MIB, length * (2 if n == slow else 1))
                work = workload(n, steps=3, phases=[phase])
                made.append(make_run(*work.write_torch(folder), name=f"n{n}"))
            return compare_runs(made)

        return compared

    def test_a_ring_is_fitted_and_carried_on(self, ring: Callable[..., Comparison]) -> None:
        (row,) = ring(2, 4, 8).trend
        assert row["op"] == "all_reduce"
        assert row["latency_ns"] == pytest.approx(14 * 50 * US, rel=1e-3)
        assert row["bandwidth_ns"] == pytest.approx(1.75 * 100 * MIB / 10, rel=1e-3)
        assert row["predicted_ranks"] == 16
        expected = 30 * 50 * US + 2 * 15 / 16 * 100 * MIB / 10
        assert row["predicted_ns"] == pytest.approx(expected, rel=1e-3)
        assert row["breaks"] is False
        assert "ring" in row["assumption"]

    def test_an_operation_off_the_trend_breaks_it(self, ring: Callable[..., Comparison]) -> None:
        (row,) = ring(2, 4, 8, slow=8).trend
        assert row["breaks"] is True
        expected = 14 * 50 * US + 1.75 * 100 * MIB / 10
        assert row["expected_ns"] == pytest.approx(expected, rel=1e-3)
        assert row["excess_ns"] == pytest.approx(expected + MS, rel=1e-3)

    def test_two_sizes_have_no_trend(self, ring: Callable[..., Comparison]) -> None:
        assert ring(2, 4).trend == []

    def test_the_one_that_breaks_it_comes_first(self, comparison: Comparison) -> None:
        assert (comparison.trend[0]["op"], comparison.trend[0]["breaks"]) == ("all_gather", True)
        assert not any(row["breaks"] for row in comparison.trend[1:])
        assert [p["link"] for p in comparison.trend[0]["points"]] == ["intra", "inter", "inter"]


class TestWhatBothCanKnow:
    """Runs of different sources, and captures of a part."""

    def test_the_two_formats_of_one_run_do_not_differ(
        self, tmp_path: Path, make_run: RunMaker
    ) -> None:
        work = workload(8, delay=late([5]))
        (tmp_path / "n").mkdir()
        (tmp_path / "t").mkdir()
        nsys = make_run(*work.write_nsys(tmp_path / "n"), name="nsys")
        torch = make_run(*work.write_torch(tmp_path / "t"), name="torch")
        compared = compare_runs([nsys, torch])
        (fall,) = compared.waterfalls
        assert {fall["verdict"], *(p["verdict"] for p in fall["parts"])} == {"no difference"}
        settings = {row["setting"]: row["values"] for row in compared.settings}
        assert settings["captured with"] == ["nsys 2025.1.3", "torch.profiler"]

    def test_one_rank_alone_is_compared_without_waiting(
        self, runs: dict[int, Run], tmp_path: Path, make_run: RunMaker
    ) -> None:
        alone = make_run(*workload(16, delay=late([11])).write_torch(tmp_path, only=[0]))
        compared = compare_runs([runs[8], alone])
        (fall,) = compared.waterfalls
        assert parts(fall) == {
            "compute": 0, "exposed_comm": 20 * MS, "exposed_copy": 0, "idle": 0, "rest": 0,
        }  # fmt: skip
        assert "exposed communication" in compared.causes[0]["text"]
        assert compared.runs[1]["ranks_present_count"] == 1

    def test_without_steps_times_are_not_compared(
        self, runs: dict[int, Run], tmp_path: Path, make_run: RunMaker
    ) -> None:
        export = NsysExport().capture().kernel("gemm<f>", 1000, 1100)
        compared = compare_runs([runs[8], make_run(export.write(tmp_path / "a.sqlite"))])
        (fall,) = compared.waterfalls
        assert (fall["difference_ns"], fall["reason"]) == (None, "few_steps")
        assert compared.runs[1]["efficiency"] is None
        assert "step times cannot be compared" in compared.causes[0]["text"]

    def test_parts_that_one_run_hides_are_left_out(
        self, runs: dict[int, Run], tmp_path: Path, make_run: RunMaker
    ) -> None:
        export = NsysExport().capture(environment="RANK=0;WORLD_SIZE=1")
        for step in range(3):
            export.range(f"step {step}", 1000 * step, 1000 * step + 500)
            export.graph(1000 * step + 600, 1000 * step + 700, launch=1000 * step + 100)
        hidden = make_run(export.write(tmp_path / "a.sqlite"))
        compared = compare_runs([runs[8], hidden])
        (fall,) = compared.waterfalls
        assert (fall["run_ns"], fall["parts"]) == (100, [])
        assert "what it is made of is not known in both runs" in compared.causes[0]["text"]

    def test_steps_without_length_are_no_base(self, tmp_path: Path, make_run: RunMaker) -> None:
        made = []
        for length in (0, 100):
            export = NsysExport().capture(environment="RANK=0;WORLD_SIZE=1")
            for step in range(3):
                begin = 1000 * step
                export.range(f"step {step}", begin, begin + 500)
                export.kernel("g<f>", begin + 600, begin + 600 + length, launch=begin + 100)
            made.append(make_run(export.write(tmp_path / f"{length}.sqlite")))
        compared = compare_runs(made)
        assert compared.waterfalls[0]["difference_ns"] == 100
        assert compared.causes[0]["text"] == "the step is 100 ns longer: 100.0 % of it is compute"
        assert compared.runs[1]["reason"] == "empty_window"
        (row,) = judge_comparison(compared, [parse_gate("step_time_regression > 5%")]).gates
        assert (row["passed"], row["reason"]) == (None, "empty_window")

    def test_versions_and_options_that_differ_are_told(
        self, tmp_path: Path, make_run: RunMaker
    ) -> None:
        made = []
        for version in ("2.27.5", "2.28.3"):
            folder = tmp_path / version
            folder.mkdir()
            paths = workload(2, steps=3).write_torch(folder)
            for path in paths:
                text = path.read_text()
                path.write_text(
                    text.replace(
                        '"backend": "nccl"', f'"backend": "nccl", "nccl_version": "{version}"'
                    )
                )
            keep = {"keep_warmup": True} if version == "2.28.3" else {}
            made.append(make_run(*paths, **keep))
        settings = {row["setting"]: row["values"] for row in compare_runs(made).settings}
        assert settings == {
            "NCCL": ["2.27.5", "2.28.3"],
            "option keep_warmup": ["false", "true"],
        }

    def test_one_run_compares_with_nothing(self, runs: dict[int, Run]) -> None:
        with pytest.raises(TraceqError, match="name two or more"):
            compare_runs([runs[8]])
