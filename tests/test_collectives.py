"""The arithmetic of collectives against hand calculations and published tables."""

import pytest

from traceq.model.collectives import (
    RULES,
    Op,
    algbw_gbps,
    alpha_beta_ns,
    bus_factor,
    busbw_gbps,
    ring_steps,
    size_bytes,
    wire_bytes,
)


@pytest.mark.parametrize(
    ("op", "n", "factor"),
    [
        (Op.ALL_REDUCE, 8, 1.75),
        (Op.ALL_REDUCE, 16, 1.875),
        (Op.ALL_REDUCE, 2, 1.0),
        (Op.ALL_GATHER, 8, 0.875),
        (Op.REDUCE_SCATTER, 4, 0.75),
        (Op.ALL_TO_ALL, 2, 0.5),
        (Op.GATHER, 8, 0.875),
        (Op.SCATTER, 8, 0.875),
        (Op.BROADCAST, 8, 1.0),
        (Op.REDUCE, 8, 1.0),
        (Op.SEND_RECV, 8, 1.0),
    ],
)
def test_bus_factors_are_those_of_nccl_tests(op: Op, n: int, factor: float) -> None:
    assert bus_factor(op, n) == factor


@pytest.mark.parametrize("op", list(RULES))
def test_one_rank_has_no_bus_bandwidth(op: Op) -> None:
    assert bus_factor(op, 1) is None
    assert busbw_gbps(op, 1024, 1, 100) is None


@pytest.mark.parametrize("op", [Op.BARRIER, Op.UNKNOWN])
def test_operations_without_a_rule_have_no_figures(op: Op) -> None:
    assert size_bytes(op, 100, 8) is None
    assert bus_factor(op, 8) is None
    assert wire_bytes(op, 100, 8) is None
    assert ring_steps(op, 8) is None
    assert alpha_beta_ns(op, 100, 8, alpha_us=5, beta_gbps=100) is None


def test_sizes_of_payloads_are_per_rank_for_gathers_and_scatters() -> None:
    assert size_bytes(Op.ALL_REDUCE, 2_097_152, 8) == 2_097_152
    assert size_bytes(Op.ALL_GATHER, 16_384, 8) == 131_072
    assert size_bytes(Op.REDUCE_SCATTER, 16_384, 8) == 131_072
    assert size_bytes(Op.SEND, 4_936, 8) == 4_936


def test_the_two_node_all_gather_has_its_published_bandwidths() -> None:
    size = 21_233_664 * 8
    assert algbw_gbps(size, 19_113_166) == pytest.approx(8.89, abs=0.005)
    assert busbw_gbps(Op.ALL_GATHER, size, 8, 19_113_166) == pytest.approx(7.78, abs=0.005)


def test_gigabytes_are_powers_of_ten() -> None:
    assert busbw_gbps(Op.ALL_REDUCE, 268_435_456, 8, 10_000_000) == pytest.approx(46.976, abs=1e-3)


def test_a_call_without_duration_has_no_bandwidth() -> None:
    assert algbw_gbps(1024, 0) is None
    assert busbw_gbps(Op.ALL_REDUCE, 1024, 8, 0) is None


def test_a_ring_of_four_sends_its_share_in_each_step() -> None:
    assert wire_bytes(Op.ALL_REDUCE, 4096, 4) == 6144 == 2 * 3 * 1024
    assert ring_steps(Op.ALL_REDUCE, 4) == 6


def test_latency_and_transfer_have_the_worked_values() -> None:
    model = {"alpha_us": 5, "beta_gbps": 450}
    latency, transfer = alpha_beta_ns(Op.ALL_REDUCE, 10**9, 8, **model) or (0, 0)
    assert (round(transfer / 1e6, 2), round(latency / 1e6, 2)) == (3.89, 0.07)
    latency, transfer = alpha_beta_ns(Op.ALL_REDUCE, 10**6, 8, **model) or (0, 0)
    assert (round(transfer / 1e3, 1), round(latency / 1e3, 1)) == (3.9, 70.0)
