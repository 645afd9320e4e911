"""Matching across ranks and aligning clocks, on tables made by hand."""

import polars as pl
import pytest

from traceq.ingest.clocks import Clock, align_clocks
from traceq.ingest.matching import match_collectives

Call = tuple[int, str, int, int]  # rank, op, start_ns, end_ns
SCHEMA = {
    "rank": pl.Int32,
    "op": pl.String,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "comm_id": pl.String,
    "seq": pl.Int64,
    "group_size": pl.Int32,
    "bytes": pl.Int64,
    "clock": pl.Int64,
    "send_bytes": pl.Int64,
}


def calls(*rows: Call, comm: str | None = "0 [0-1]", size: int | None = 2) -> pl.DataFrame:
    return pl.DataFrame(
        [(*row, comm, None, size, 1024, 0, None) for row in rows], schema=SCHEMA, orient="row"
    )


def told(comm: pl.DataFrame) -> list[tuple[object, ...]]:
    found = match_collectives(comm)
    assert found.select(comm.columns).equals(comm)
    return found.select("collective_id", "match", "transfer_ns", "wait_ns").rows()


def test_the_last_to_arrive_transfers_and_the_others_wait() -> None:
    rows = calls((0, "all_reduce", 0, 186), (1, "all_reduce", 167, 186))
    assert told(rows) == [(0, "matched", 19, 167), (0, "matched", 19, 0)]


def test_no_clock_is_needed() -> None:
    rows = calls((0, "all_reduce", 0, 186), (1, "all_reduce", 9_000_167, 9_000_186))
    rows = rows.with_columns(clock=pl.Series([0, 1]))
    assert told(rows) == [(0, "matched", 19, 167), (0, "matched", 19, 0)]


def test_the_kth_call_of_an_operation_belongs_together() -> None:
    rows = calls(
        (0, "all_reduce", 0, 10), (0, "broadcast", 20, 25), (0, "all_reduce", 30, 34),
        (1, "all_reduce", 5, 10), (1, "all_reduce", 31, 34), (1, "broadcast", 40, 48),
    )  # fmt: skip
    assert [row[0] for row in told(rows)] == [0, 1, 2, 0, 2, 1]


def test_sequence_numbers_beat_the_order() -> None:
    rows = calls((0, "all_reduce", 0, 10), (0, "all_reduce", 20, 30), (1, "all_reduce", 20, 26))
    rows = rows.with_columns(seq=pl.Series([7, 8, 8]))
    assert told(rows) == [
        (0, "partial", 10, None),
        (1, "matched", 6, 4),
        (1, "matched", 6, 0),
    ]


def test_a_rank_that_lost_a_call_is_laid_against_the_others() -> None:
    rows = calls((0, "all_reduce", 0, 10), (0, "all_reduce", 20, 30), (1, "all_reduce", 20, 28))
    assert told(rows) == [(0, "partial", 10, None), (1, "matched", 8, 2), (1, "matched", 8, 0)]


def test_a_call_that_may_be_either_of_two_stays_unmatched() -> None:
    rows = calls((0, "all_reduce", 0, 10), (0, "all_reduce", 20, 30), (1, "all_reduce", 10, 20))
    assert [row[1] for row in told(rows)] == ["partial", "partial", "unmatched"]
    other_clock = calls(
        (0, "all_reduce", 0, 10), (0, "all_reduce", 20, 30), (1, "all_reduce", 20, 28)
    ).with_columns(clock=pl.Series([0, 0, 1]))
    assert [row[1] for row in told(other_clock)] == ["partial", "partial", "unmatched"]


def test_ranks_of_one_clock_that_do_not_leave_together_are_no_collective() -> None:
    rows = calls((0, "all_reduce", 0, 186), (1, "all_reduce", 9_000_167, 9_000_186))
    assert [row[1] for row in told(rows)] == ["unmatched", "unmatched"]


def test_a_rank_held_up_on_its_way_out_was_in_it_but_its_waiting_is_unknown() -> None:
    rows = calls((0, "all_reduce", 0, 186), (1, "all_reduce", 100, 9_000_186))
    assert [row[1:] for row in told(rows)] == [("matched", 186, None)] * 2


def test_an_exchange_with_an_empty_share_is_still_one() -> None:
    rows = calls(
        (0, "all_to_all", 0, 10), (1, "send_recv", 4, 10), (2, "all_to_all", 2, 10), size=3
    )
    found = match_collectives(rows)
    assert found["match"].to_list() == ["matched"] * 3
    assert set(found["op"]) == {"all_to_all"}


def test_more_ranks_than_a_group_has_are_no_group() -> None:
    rows = calls(*((rank, "all_reduce", rank, 10) for rank in range(3)), size=2)
    assert {row[1] for row in told(rows)} == {"unmatched"}


def test_nobody_is_said_to_wait_where_shares_differ_much() -> None:
    rows = calls((0, "all_to_all", 0, 8), (1, "all_to_all", 0, 2))
    for shares, waits in (((32, 4), [None, None]), ((32, 30), [6, 0])):
        found = match_collectives(rows.with_columns(send_bytes=pl.Series(shares)))
        assert found["wait_ns"].to_list() == waits
        assert found["match"].to_list() == ["matched"] * 2


def test_a_group_with_missing_ranks_is_partial() -> None:
    rows = calls((0, "all_reduce", 0, 10), (4, "all_reduce", 5, 9), size=8)
    assert told(rows) == [(0, "partial", 4, 6), (0, "partial", 4, 0)]
    assert told(calls((0, "all_reduce", 0, 10), size=8)) == [(0, "partial", 10, None)]


def test_sizes_that_disagree_are_a_mismatch_but_not_of_an_exchange() -> None:
    for op, expected in (("all_reduce", "mismatched"), ("all_to_all", "matched")):
        rows = calls((0, op, 0, 10), (1, op, 2, 10)).with_columns(bytes=pl.Series([64, 128]))
        assert {row[1] for row in told(rows)} == {expected}


def test_operations_that_disagree_under_one_number_are_a_mismatch() -> None:
    rows = calls((0, "all_reduce", 0, 10), (1, "broadcast", 2, 10)).with_columns(seq=pl.lit(3))
    assert [row[1:] for row in told(rows)] == [("mismatched", None, None)] * 2


def test_nobody_waits_in_a_broadcast_for_all_others() -> None:
    rows = calls((0, "broadcast", 0, 10), (1, "broadcast", 6, 10))
    assert told(rows) == [(0, "matched", 4, None), (0, "matched", 4, None)]


@pytest.mark.parametrize("op", ["send", "recv", "send_recv", "unknown"])
def test_what_is_no_collective_is_not_matched(op: str) -> None:
    assert told(calls((0, op, 0, 10), (1, op, 0, 10)))[0] == (None, "unmatched", None, None)


def test_without_a_communicator_nothing_is_matched() -> None:
    rows = calls((0, "all_reduce", 0, 10), (1, "all_reduce", 0, 10), comm=None)
    assert told(rows) == [(None, "unmatched", None, None)] * 2


def test_nothing_matches_nothing() -> None:
    assert told(calls()) == []


def ends(*rows: tuple[int, int, int]) -> pl.DataFrame:
    schema = {"collective_id": pl.Int64, "clock": pl.Int64, "end_ns": pl.Int64}
    return pl.DataFrame(list(rows), schema=schema, orient="row")


def test_a_clock_is_shifted_by_the_median_of_its_ends() -> None:
    rows = [(k, 0, 1000 * k) for k in range(5)]
    rows += [(k, 1, 1000 * k + 3_000_000 + jitter) for k, jitter in enumerate((0, 4, -4, 2, 90))]
    found = align_clocks(ends(*rows))
    assert found[0].offset_ns == 0
    assert found[1].offset_ns == -3_000_002
    assert found[1].residual_p95_ns == 44  # half of 88: the middle lies between the two ends


def test_clocks_are_reached_through_others() -> None:
    found = align_clocks(ends((0, 0, 100), (0, 1, 600), (1, 1, 2600), (1, 2, 2000)))
    assert found == {0: Clock(0, 0, 1), 1: Clock(-500, 0, 2), 2: Clock(100, 0, 1)}


def test_clocks_that_share_nothing_stay_unaligned() -> None:
    assert align_clocks(ends((0, 0, 100), (1, 1, 200))) == {}
    assert set(align_clocks(ends((0, 0, 1), (0, 1, 2), (1, 2, 3), (1, 3, 4)))) == {0, 1}
