"""Runs of several ranks whose truth is known by construction, in both formats."""

import random
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import RunMaker
from tests.traces.nsys import NsysExport
from tests.traces.workload import MIB, MS, STEP, Operation, Phase, Workload, late
from traceq.report import Layout, Report, build_report
from traceq.runfile import Run

WRITERS: dict[str, Callable[..., list[Path]]] = {
    "nsys": lambda work, folder, **more: work.write_nsys(folder, **more),
    "nsys of a node": lambda work, folder, **more: work.write_nsys(folder, together=True, **more),
    "torch": lambda work, folder, **more: work.write_torch(folder, **more),
}
both = pytest.mark.parametrize("form", ["nsys", "torch"])
Reporter = Callable[..., Report]


@pytest.fixture
def read(tmp_path: Path, make_run: RunMaker) -> Callable[..., Run]:
    def reader(
        work: Workload, form: str, options: dict[str, Any] | None = None, **more: Any
    ) -> Run:
        return make_run(*WRITERS[form](work, tmp_path, **more), **(options or {}))

    return reader


def stragglers(report: Report) -> dict[int, str]:
    return {row["rank"]: row["cause"] for row in report.stragglers if row["straggler"]}


def rates(report: Report) -> dict[str, float]:
    return {row["op"]: row["busbw_gbps"] for row in report.collectives}


def codes(report: Report) -> set[str]:
    return {row["code"] for row in report.diagnostics}


@pytest.mark.parametrize("form", WRITERS)
class TestOneRankLate:
    """Rank 5 of 8 on two nodes is 20 ms late at every all_reduce; clocks are 3 ms apart."""

    @pytest.fixture
    def report(self, form: str, read: Callable[..., Run]) -> Report:
        return build_report(read(Workload(delay=late([5])), form))

    def test_bandwidths_are_those_of_the_transfer(self, report: Report) -> None:
        expected = {"all_reduce": 46.98, "all_gather": 29.36, "reduce_scatter": 29.36}
        assert rates(report) == pytest.approx(expected, rel=1e-3)
        assert {row["quality"] for row in report.collectives} == {"measured"}
        assert {row["bytes_p50"] for row in report.collectives} == {256 * MIB, 128 * MIB}

    def test_the_late_rank_is_the_straggler_and_only_it(self, report: Report) -> None:
        assert stragglers(report) == {5: "compute"}
        row = report.stragglers[0]
        assert (row["lateness_ns"], row["imposed_wait_ns"], row["removable_ns"]) == (
            200 * MS, 1400 * MS, 200 * MS,
        )  # fmt: skip
        assert (row["unit"], row["unit_count"], row["late_count"]) == ("step", 10, 10)
        assert row["p_value"] == pytest.approx(8 / 2**10)

    def test_the_clock_offset_is_found(self, report: Report) -> None:
        offsets = {row["clock_offset_ns"] for row in report.matching["clock"]["sources"]}
        assert min(offsets) == pytest.approx(-3 * MS, abs=1000)
        assert max(offsets) == 0

    def test_waiting_does_not_make_the_late_rank_hide_best(self, report: Report) -> None:
        raw = {row["rank"]: row["overlap_ratio"] for row in report.ranks}
        trimmed = {row["rank"]: row["transfer_overlap_ratio"] for row in report.ranks}
        assert raw[5] > max(ratio for rank, ratio in raw.items() if rank != 5)
        assert trimmed[5] <= min(ratio for rank, ratio in trimmed.items() if rank != 5)
        assert set(trimmed.values()) == {3 / 18}  # 1 ms of each of 10, 4 and 4 ms
        assert report.metrics["transfer_overlap_ratio"] == 3 / 18

    def test_every_operation_is_matched(self, report: Report) -> None:
        assert report.matching["matched"] == 8 * 30
        assert sum(report.matching[s] for s in ("partial", "mismatched", "unmatched")) == 0


@both
def test_two_ranks_that_are_late_together_are_both_found(
    form: str, read: Callable[..., Run]
) -> None:
    report = build_report(read(Workload(delay=late([2, 6])), form))
    assert stragglers(report) == {2: "compute", 6: "compute"}


@both
def test_nobody_late_is_nobody_named(form: str, read: Callable[..., Run]) -> None:
    report = build_report(read(Workload(), form))
    assert stragglers(report) == {}
    assert report.metrics["straggler_fraction"] == 0
    assert [finding for finding in report.findings if finding["id"] == "straggler"] == []


@pytest.mark.parametrize("seed", range(4))
def test_random_jitter_names_nobody(seed: int, read: Callable[..., Run]) -> None:
    chance = random.Random(seed)
    # Up to 0.4 ms three times in a step of 48: under a hundredth, whoever it hits most often.
    jitter = {
        (r, s, p): chance.randrange(400_000) for r in range(8) for s in range(20) for p in range(3)
    }
    work = Workload(steps=20, delay=lambda *key: (jitter[key], "compute"))
    assert stragglers(build_report(read(work, "torch"))) == {}


@pytest.mark.parametrize("cause", ["compute", "imbalance", "launch", "copy"])
@both
def test_the_cause_is_what_grew(form: str, cause: str, read: Callable[..., Run]) -> None:
    report = build_report(read(Workload(delay=late([3], cause=cause)), form))
    assert stragglers(report) == {3: cause}
    (finding,) = (f for f in report.findings if f["id"] == "straggler")
    assert finding["evidence"]["cause"] == cause


PAIRS = {"tp": [[0, 1], [2, 3], [4, 5], [6, 7]], "dp": [[0, 2, 4, 6], [1, 3, 5, 7]]}
TP_DP = (
    Phase("all_reduce", 16 * MIB, 2 * MS, group="tp"),
    Phase("all_reduce", 64 * MIB, 6 * MS, group="dp"),
)


@both
def test_a_rank_kept_by_another_group_is_late_because_of_it(
    form: str, read: Callable[..., Run]
) -> None:
    # Rank 1 waits in its pair for rank 0, so both come late to their data parallel groups.
    work = Workload(phases=TP_DP, groups=PAIRS, delay=late([0]))
    report = build_report(read(work, form))
    assert stragglers(report)[0] == "compute"
    causes = {row["rank"]: row["cause"] for row in report.stragglers}
    assert causes[1] == "upstream"


@both
def test_groups_of_equal_names_stay_apart(form: str, read: Callable[..., Run]) -> None:
    run = read(Workload(phases=TP_DP, groups=PAIRS, delay=late([0])), form)
    communicators = run.frame(
        "SELECT group_size, ranks, link, calls FROM communicators ORDER BY group_size, ranks"
    ).rows()
    assert [row[:3] for row in communicators] == [
        (2, [0, 1], "intra"), (2, [2, 3], "intra"), (2, [4, 5], "intra"), (2, [6, 7], "intra"),
        (4, [0, 2, 4, 6], "inter"), (4, [1, 3, 5, 7], "inter"),
    ]  # fmt: skip
    assert {row[3] for row in communicators} == {20, 40}
    report = build_report(run)
    bandwidth = {row["group_size"]: row["busbw_gbps"] for row in report.collectives}
    assert bandwidth == pytest.approx(
        {2: 16 * MIB / (2 * MS), 4: 64 * MIB / (6 * MS) * 1.5}, rel=1e-9
    )
    assert report.matching["matched"] == 8 * 20


@both
def test_a_missing_rank_makes_bandwidth_a_bound(form: str, read: Callable[..., Run]) -> None:
    report = build_report(read(Workload(delay=late([5])), form, only=[0, 1, 2, 3, 4, 5, 6]))
    assert report.run["ranks_missing"] == [7]
    assert {row["quality"] for row in report.collectives} == {"partial_ranks"}
    assert report.matching["partial"] == 7 * 30
    assert all(row["partial"] for row in report.stragglers)
    assert stragglers(report) == {5: "compute"}


def lost_by(rank: int, *which: int) -> Callable[[int, Operation, int], bool]:
    """Keeps all records but some collectives of a rank, by their number."""

    def keep(own: int, op: Operation, nth: int) -> bool:
        return own != rank or op.phase is None or nth // 3 not in which

    return keep


@pytest.mark.parametrize("lost", [(0,), (29,), (12,), (0, 3, 6)], ids=str)
@both
def test_a_rank_that_lost_records_is_repaired(
    form: str, lost: Sequence[int], read: Callable[..., Run]
) -> None:
    run = read(Workload(delay=late([5])), form, keep=lost_by(6, *lost))
    report = build_report(run)
    assert report.matching["matched"] == 8 * (30 - len(lost))
    assert report.matching["partial"] == 7 * len(lost)
    assert stragglers(report) == {5: "compute"}
    worst = run.frame("SELECT max(wait_ns) FROM nccl_kernels").item()
    assert worst == 20 * MS  # a misplaced call would wait for a whole step


@both
def test_captures_that_are_shifted_by_a_call_are_laid_right(
    form: str, read: Callable[..., Run]
) -> None:
    # Both ranks hold nine of ten calls of one size: only the ends tell that they are not the same.
    work = Workload(ranks=2, per_node=2, phases=STEP[:1], delay=late([1]))

    def keep(rank: int, op: Operation, nth: int) -> bool:
        return op.phase is None or op.step != (9 if rank == 0 else 0)

    run = read(work, form, keep=keep)
    report = build_report(run)
    assert (report.matching["matched"], report.matching["partial"]) == (16, 2)
    (row,) = report.collectives
    assert row["transfer_ns_max"] == 10 * MS
    assert stragglers(report) == {1: "compute"}


@both
def test_overlapped_compute_that_is_slow_is_not_called_imbalance(
    form: str, read: Callable[..., Run]
) -> None:
    # As in DDP: kernels run on while earlier buckets are reduced.
    phases = [Phase("all_reduce", 16 * MIB, 3 * MS, compute_ns=4 * MS) for _ in range(3)]
    work = Workload(ranks=4, phases=phases, steps=10, delay=late([3], ns=6 * MS, phase=1))
    work.overlapped = True
    report = build_report(read(work, form))
    assert stragglers(report) == {3: "compute"}


@both
def test_sizes_that_disagree_are_named_with_both_sides(form: str, read: Callable[..., Run]) -> None:
    def sizes(rank: int, step: int, phase: Phase) -> int:
        return phase.size // 2 if (rank, step, phase.op) == (3, 4, "all_reduce") else phase.size

    report = build_report(read(Workload(sizes=sizes), form))
    assert report.matching["mismatched"] == 8
    (note,) = (d for d in report.diagnostics if d["code"] == "mismatched")
    assert "rank 3: all_reduce of 128 MiB" in note["message"]
    assert "ranks 0, 1, 2, 4, ...: all_reduce of 256 MiB" in note["message"]
    assert report.matching["matched"] == 8 * 29


@both
def test_one_rank_alone(form: str, read: Callable[..., Run]) -> None:
    report = build_report(read(Workload(ranks=1), form))
    assert report.reasons["transfer_overlap_ratio"] == "single_rank"
    assert report.stragglers == []
    assert {row["busbw_gbps"] for row in report.collectives} == {None}  # undefined, not 0
    assert {row["quality"] for row in report.collectives} == {"single_rank"}


def test_eight_bit_floats_have_their_sizes(read: Callable[..., Run]) -> None:
    report = build_report(read(Workload(dtype="Float8_e4m3fn"), "torch"))
    assert {row["dtype"] for row in report.collectives} == {"Float8_e4m3fn"}
    assert rates(report)["all_reduce"] == pytest.approx(46.98, rel=1e-3)


EXCHANGE = (Phase("all_to_all", 64 * MIB, 5 * MS, compute_ns=20 * MS),)


def test_an_uneven_exchange_is_told(read: Callable[..., Run]) -> None:
    def sizes(rank: int, step: int, phase: Phase) -> int:
        return phase.size * (2 if rank == 1 else 1)

    report = build_report(read(Workload(phases=EXCHANGE, sizes=sizes), "torch"))
    assert report.matching["matched"] == 80
    (finding, other) = (f for f in report.findings if f["id"] == "exchange_imbalance")
    assert {f["evidence"]["side"] for f in (finding, other)} == {"send", "recv"}
    assert finding["evidence"]["rank"] == 1
    assert finding["evidence"]["ratio"] == pytest.approx(2 / (9 / 8))
    assert {row["quality"] for row in report.collectives} == {"uneven"}


@both
def test_an_even_exchange_has_its_bandwidth(form: str, read: Callable[..., Run]) -> None:
    report = build_report(read(Workload(phases=EXCHANGE), form))
    assert rates(report) == pytest.approx({"all_to_all": 64 * MIB / (5 * MS) * 7 / 8})
    assert [f for f in report.findings if f["id"] == "exchange_imbalance"] == []


def test_lists_of_ranks_that_were_cut_are_completed(read: Callable[..., Run]) -> None:
    work = Workload(ranks=32, per_node=8, steps=3, delay=late([20]))
    report = build_report(read(work, "torch", cut_lists=True))
    assert report.matching["matched"] == 32 * 9
    assert {row["group_size"] for row in report.collectives} == {32}
    assert [row["rank"] for row in report.stragglers[:1]] == [20]


@both
def test_a_warm_up_call_is_kept_out(form: str, read: Callable[..., Run]) -> None:
    def transfer(step: int, phase: Phase) -> int:
        first = step == 0 and phase.op == "all_reduce"
        return 5_000 * MS if first else phase.transfer_ns

    run = read(Workload(transfer=transfer), form)
    report = build_report(run)
    rows = {row["op"]: row for row in report.collectives}
    assert (rows["all_reduce"]["collective_count"], rows["all_reduce"]["transfer_ns_max"]) == (
        9, 10 * MS,
    )  # fmt: skip
    assert run.frame("SELECT count(*) FROM nccl_kernels WHERE warmup").item() == 8
    assert "warmup" in codes(report)


def test_warm_up_counts_when_asked(tmp_path: Path, make_run: RunMaker) -> None:
    work = Workload(transfer=lambda step, phase: (50 if step == 0 else 1) * phase.transfer_ns)
    report = build_report(make_run(*work.write_torch(tmp_path), keep_warmup=True))
    (row,) = (row for row in report.collectives if row["op"] == "all_reduce")
    assert (row["collective_count"], row["transfer_ns_max"]) == (10, 500 * MS)


def test_a_slow_link_is_told_from_a_late_rank(read: Callable[..., Run]) -> None:
    """Pairs with rank 6 transfer four times as long; nobody arrives late."""
    work = Workload(phases=TP_DP[:1], groups={"tp": PAIRS["tp"]})
    work.slow = lambda members: 4 if 6 in members else 1
    report = build_report(read(work, "nsys"))
    assert stragglers(report) == {}
    (finding,) = (f for f in report.findings if f["id"] == "slow_link")
    assert finding["evidence"]["ranks"] == [6, 7]
    assert finding["evidence"]["slowdown_ratio"] == 4
    assert "rank 6 and 7" in finding["title"]
    assert finding["evidence"]["lost_ns"] == 2 * 10 * 3 * 2 * MS


def test_a_slow_node_is_named(read: Callable[..., Run]) -> None:
    work = Workload(phases=TP_DP[:1], groups={"tp": PAIRS["tp"]}, per_node=2)
    work.slow = lambda members: 2 if 3 in members else 1
    (finding,) = (f for f in build_report(read(work, "torch")).findings if f["id"] == "slow_link")
    assert "all that touch node1" in finding["title"]


class TestOldNccl:
    """Before 2.25 a payload does not say its communicator."""

    def test_one_communicator_is_assumed_where_there_is_one_stream(
        self, read: Callable[..., Run]
    ) -> None:
        report = build_report(read(Workload(delay=late([5])), "nsys", old=True))
        assert stragglers(report) == {5: "compute"}
        assert rates(report)["all_reduce"] == pytest.approx(46.98, rel=1e-3)
        assert "communicator_assumed" in codes(report)

    def test_groups_that_are_not_one_are_not_taken_for_one(self, read: Callable[..., Run]) -> None:
        work = Workload(phases=TP_DP[:1], groups={"tp": PAIRS["tp"]}, delay=late([0], ns=40 * MS))
        report = build_report(read(work, "nsys", old=True))
        assert report.matching["matched"] == 0
        assert report.stragglers == []


class TestLinks:
    """Inside a node, between nodes, and what the user says."""

    def test_inside_a_node_the_model_tells_the_peak(self, read: Callable[..., Run]) -> None:
        report = build_report(read(Workload(per_node=8), "nsys"))
        row = report.collectives[0]
        assert (row["link"], row["peak_gbps"], row["peak_source"]) == ("intra", 450.0, "NVLink 4")
        assert row["efficiency"] == row["busbw_gbps"] / 450

    def test_between_nodes_only_the_user_knows(self, read: Callable[..., Run]) -> None:
        row = build_report(read(Workload(), "nsys")).collectives[0]
        assert (row["link"], row["peak_gbps"], row["efficiency"]) == ("inter", None, None)

    def test_the_user_has_the_last_word(self, read: Callable[..., Run]) -> None:
        row = build_report(
            read(Workload(), "nsys", options={"link_peak": {"inter": 46.0}})
        ).collectives[0]
        assert (row["peak_gbps"], row["peak_source"]) == (46.0, "user")
        assert row["efficiency"] > 1  # never clamped


def test_split_communicators_are_counted_over_all_files(tmp_path: Path, make_run: RunMaker) -> None:
    """The payload of a split says the parent's ranks; the child's are who say so."""
    parent, children = 0xAAAA, {0: 0xB0B0, 1: 0xB1B1}

    def export(rank: int) -> Path:
        made = NsysExport().capture(utc_ns=None).nccl_domain()
        color = rank % 2
        split = struct.pack("<QQiiiii4x", children[color], parent, 4, rank, 0, color, -rank)
        made.nccl("ncclCommSplit", 13, split, 500)
        made.nccl("ncclCommDestroy", 2, struct.pack("<Qiii4x", parent, 4, rank, 0), 90_000)
        for k in range(4):
            start = 1000 + 10_000 * k
            made.nccl(
                "ncclAllGather", 4, struct.pack("<QQ", children[color], 1024), start - 50, length=30
            )
            made.kernel("ncclDevKernel_AllGather_RING_LL", start, start + 500, launch=start - 40)
        return made.write(tmp_path / f"{rank}.sqlite")

    run = make_run(*(export(rank) for rank in range(4)))
    rows = run.frame("SELECT comm_id, group_size, ranks FROM communicators ORDER BY comm_id").rows()
    # Ordered by key, which is -rank here.
    assert rows == [("0x000000000000b0b0", 2, [2, 0]), ("0x000000000000b1b1", 2, [3, 1])]
    sizes = run.frame("SELECT DISTINCT bytes, group_size, match FROM nccl_kernels").rows()
    assert sizes == [(2048, 2, "matched")]
    part = make_run(*(tmp_path / f"{rank}.sqlite" for rank in range(3)))
    sizes = part.frame("SELECT DISTINCT bytes, group_size, match FROM nccl_kernels").rows()
    assert sizes == [(None, None, "partial")]


def test_what_a_step_sends_is_compared_with_the_layout(tmp_path: Path, make_run: RunMaker) -> None:
    work = Workload(phases=STEP[:1])
    report = build_report(make_run(*work.write_torch(tmp_path)), Layout(128 * MIB, 2))
    assert report.volume["expected_bytes"] == 2 * 7 * 256 * MIB // 8
    (row,) = report.volume["by_op"]
    assert (row["op"], row["step_wire_bytes_min"], row["step_wire_bytes_max"]) == (
        "all_reduce", 448 * MIB, 448 * MIB,
    )  # fmt: skip
