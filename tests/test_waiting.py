"""Lateness, warm-up and the verdict on stragglers, on tables made by hand."""

import datetime as dt
import random
import statistics
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceq.ingest.waiting import with_arrivals
from traceq.query import run_query
from traceq.runfile import SCHEMA_VERSION, Run, create, open_run

US = 1000


def matched(lengths: list[list[int]], size: int = 1 << 20, op: str = "all_reduce") -> pl.DataFrame:
    """One collective per row of lengths [ns], of one rank per column."""
    rows = []
    for number, durations in enumerate(lengths):
        end = 10**9 * (number + 1)
        shortest = min(durations)
        rows += [
            {
                "collective_id": number, "rank": rank, "op": op, "group_size": len(durations),
                "comm_id": "world", "bytes": size, "start_ns": end - d, "end_ns": end,
                "transfer_ns": shortest, "wait_ns": d - shortest, "match": "matched",
            }
            for rank, d in enumerate(durations)
        ]  # fmt: skip
    return pl.DataFrame(rows).cast({"rank": pl.Int32, "group_size": pl.Int32})


@given(st.lists(st.integers(1, 50), min_size=2, max_size=9))
def test_lateness_is_behind_the_median_of_the_others(lengths: list[int]) -> None:
    late = with_arrivals(matched([lengths]), set())["late_ns"].to_list()
    for rank, own in enumerate(lengths):
        others = sorted(lengths[:rank] + lengths[rank + 1 :])
        middle = statistics.median_low(others) + statistics.median_high(others)
        assert late[rank] == middle // 2 - own


def test_the_last_share_is_split_among_ties() -> None:
    found = with_arrivals(matched([[5, 9, 5, 7]]), set())
    assert found["last_share"].to_list() == [0.5, 0, 0.5, 0]


def test_with_two_ranks_lateness_is_the_whole_difference() -> None:
    assert with_arrivals(matched([[186, 19]]), set())["late_ns"].to_list() == [-167, 167]


class TestWarmup:
    """The first call of a communicator, when it was made here or takes ten times the usual."""

    def flags(self, lengths: list[int], made_here: bool = False) -> list[bool]:
        frame = matched([[n, n] for n in lengths])
        found = with_arrivals(frame, {"world"} if made_here else set())
        return found.unique("collective_id", maintain_order=True)["warmup"].to_list()

    def test_a_first_call_that_takes_over_ten_times_the_usual(self) -> None:
        assert self.flags([101, 10, 10, 10]) == [True, False, False, False]
        assert self.flags([100, 10, 10, 10]) == [False] * 4

    def test_two_others_say_nothing(self) -> None:
        assert self.flags([1000, 10, 10]) == [False] * 3

    def test_a_later_call_is_none(self) -> None:
        assert self.flags([10, 1000, 10, 10, 10]) == [False] * 5

    def test_the_first_of_a_communicator_made_in_the_capture(self) -> None:
        assert self.flags([10, 10], made_here=True) == [True, False]


Verdict = Callable[..., list[Any]]


@pytest.fixture
def verdict(tmp_path: Path) -> Iterator[Verdict]:
    with ExitStack() as stack:
        count = 0

        def judge(
            frame: pl.DataFrame, window_ns: int, **parameters: float
        ) -> list[dict[str, object]]:
            nonlocal count
            count += 1
            path = tmp_path / f"{count}.duckdb"
            comm = with_arrivals(frame, set())
            extra = {"stream": 1, "link": "unknown", "name_id": 0}
            filled = comm.with_columns(
                *(pl.lit(value).alias(name) for name, value in extra.items()),
                *(
                    pl.lit(0).alias(f"lead_{part}")
                    for part in ("compute_ns", "comm_ns", "copy_ns", "idle_ns", "ops", "signature")
                    if f"lead_{part}" not in comm.columns
                ),
                step=pl.col("collective_id"),
            )
            about = {
                "name": "x", "created_at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
                "traceq_version": "0", "schema_version": SCHEMA_VERSION, "config": "{}",
            }  # fmt: skip
            with create(path) as writer:
                writer.append("run", pl.DataFrame([about]))
                writer.append("nccl_kernels", filled)
                writer.append(
                    "rank_timings",
                    pl.DataFrame(
                        [
                            {"rank": r, "scope": "capture", "start_ns": 0, "end_ns": window_ns,
                             "window_ns": window_ns}
                            for r in comm["rank"].unique()
                        ]
                    ),
                )  # fmt: skip
            run: Run = stack.enter_context(open_run(path))
            return run_query(run, "stragglers", parameters).sort("rank").to_dicts()

        yield judge


class TestVerdict:
    """A rank is a straggler when it is late by 1 % of its window, and not by chance."""

    def test_late_in_every_step(self, verdict: Verdict) -> None:
        rows = verdict(matched([[30, 30, 10, 30]] * 10), window_ns=10_000)
        assert [row["straggler"] for row in rows] == [False, False, True, False]
        assert rows[2]["lateness_ns"] == 200
        assert rows[2]["straggler_fraction"] == 0.02
        assert rows[2]["p_value"] == pytest.approx(4 / 2**10)

    def test_too_little_of_the_window(self, verdict: Verdict) -> None:
        rows = verdict(matched([[30, 30, 10, 30]] * 10), window_ns=20_001)
        assert not any(row["straggler"] for row in rows)
        rows = verdict(matched([[30, 30, 10, 30]] * 10), window_ns=20_001, fraction=0.005)
        assert rows[2]["straggler"]

    def test_too_few_times(self, verdict: Verdict) -> None:
        rows = verdict(matched([[30, 30, 10, 30]] * 6), window_ns=1000)
        assert not any(row["straggler"] for row in rows)  # 4 / 2^6 = 0.0625
        assert rows[2]["unit"] == "collective"

    def test_imposed_and_removable(self, verdict: Verdict) -> None:
        rows = verdict(matched([[50, 40, 10, 30]]), window_ns=1000)
        assert [row["imposed_wait_ns"] for row in rows] == [0, 0, 40 + 30 + 20, 0]
        assert [row["removable_ns"] for row in rows] == [0, 0, 20, 0]

    def test_ties_share_what_they_impose_and_remove_nothing(self, verdict: Verdict) -> None:
        rows = verdict(matched([[10, 10, 40]]), window_ns=1000)
        assert [row["imposed_wait_ns"] for row in rows] == [15, 15, 0]
        assert [row["removable_ns"] for row in rows] == [0, 0, 0]
        assert [row["times_last"] for row in rows] == [0.5, 0.5, 0]

    def test_the_cause_must_explain_half(self, verdict: Verdict) -> None:
        for own, cause in ((20, "launch"), (4, "unknown")):
            idle = pl.when(pl.col("rank") == 2).then(own).otherwise(0)
            frame = matched([[30, 30, 10, 30]] * 10).with_columns(lead_idle_ns=idle)
            assert verdict(frame, window_ns=10_000)[2]["cause"] == cause

    def test_other_kernels_are_imbalance(self, verdict: Verdict) -> None:
        mine = pl.col("rank") == 2
        frame = matched([[30, 30, 10, 30]] * 10).with_columns(
            lead_compute_ns=pl.when(mine).then(120).otherwise(100),
            lead_signature=pl.when(mine).then(7).otherwise(5),
        )
        assert verdict(frame, window_ns=10_000)[2]["cause"] == "imbalance"
        same = frame.with_columns(lead_signature=pl.lit(5))
        assert verdict(same, window_ns=10_000)[2]["cause"] == "compute"

    def test_chance_alone_names_hardly_anyone(self, verdict: Verdict) -> None:
        chance = random.Random(1)
        alarms = 0
        for _ in range(100):
            frame = matched([[chance.randrange(10, 1000) for _ in range(8)] for _ in range(20)])
            alarms += any(row["straggler"] for row in verdict(frame, window_ns=1000))
        # At most 5 in 100 are expected; more than 10 would have a chance of one in a hundred.
        assert alarms <= 10
