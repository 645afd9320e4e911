"""The alpha-beta model, against worked values and generated points."""

import numpy as np
import pytest

from traceq.model.collectives import Op, alpha_beta_ns
from traceq.model.latency import fit_alpha_beta

SIZES = np.array([2.0**k for k in range(10, 31)])


def times(op: Op, n: int, alpha_us: float, beta_gbps: float, sizes: np.ndarray) -> np.ndarray:
    parts = [alpha_beta_ns(op, int(s), n, alpha_us=alpha_us, beta_gbps=beta_gbps) for s in sizes]
    return np.array([latency + transfer for latency, transfer in parts])


def test_worked_values() -> None:
    # 8 ranks, 450 GB/s, 5 us: 14 steps, 1.75 of the bytes.
    latency, transfer = alpha_beta_ns(Op.ALL_REDUCE, 10**9, 8, alpha_us=5, beta_gbps=450)
    assert (round(latency / 1e6, 2), round(transfer / 1e6, 2)) == (0.07, 3.89)
    latency, transfer = alpha_beta_ns(Op.ALL_REDUCE, 10**6, 8, alpha_us=5, beta_gbps=450)
    assert (round(latency / 1e3), round(transfer / 1e3, 1)) == (70, 3.9)


@pytest.mark.parametrize("op", [Op.ALL_REDUCE, Op.ALL_GATHER, Op.REDUCE_SCATTER, Op.BROADCAST])
@pytest.mark.parametrize("n", [2, 8, 64])
def test_exact_points_give_exact_parameters(op: Op, n: int) -> None:
    fit = fit_alpha_beta(op, n, SIZES, times(op, n, 7.0, 120.0, SIZES))
    assert fit is not None
    assert (fit.alpha_us, fit.beta_gbps) == (
        pytest.approx(7, rel=1e-6),
        pytest.approx(120, rel=1e-6),
    )
    assert fit.spread < 1e-6


@pytest.mark.parametrize("seed", range(10))
def test_noise_and_outliers_move_it_by_less_than_a_twentieth(seed: int) -> None:
    chance = np.random.default_rng(seed)
    sizes = np.repeat(SIZES, 20)
    noisy = times(Op.ALL_REDUCE, 8, 5.0, 450.0, sizes) * (
        1 + 0.1 * chance.standard_normal(len(sizes))
    )
    outliers = chance.random(len(sizes)) < 0.1
    noisy[outliers] *= chance.uniform(3, 20, outliers.sum())
    fit = fit_alpha_beta(Op.ALL_REDUCE, 8, sizes, noisy)
    assert fit is not None
    assert fit.alpha_us == pytest.approx(5, rel=0.05)
    assert fit.beta_gbps == pytest.approx(450, rel=0.05)
    assert 0.05 < fit.spread < 0.15
    assert fit.alpha_error is not None
    assert fit.alpha_error < 0.05


def test_large_messages_alone_do_not_tell_latency() -> None:
    sizes = np.array([1e9, 2e9, 4e9, 8e9])
    wobble = np.array([1.05, 0.95, 1.02, 0.98])
    fit = fit_alpha_beta(Op.ALL_REDUCE, 8, sizes, times(Op.ALL_REDUCE, 8, 5, 450, sizes) * wobble)
    assert fit is not None
    assert fit.alpha_us is None
    assert fit.beta_gbps == pytest.approx(450, rel=0.1)


@pytest.mark.parametrize(
    ("op", "n", "sizes"),
    [
        (Op.ALL_REDUCE, 8, [1e6, 1e6, 1e6]),
        (Op.ALL_REDUCE, 8, [1e6, 4e6]),
        (Op.ALL_REDUCE, 1, [1e6, 4e6, 9e6]),
        (Op.BARRIER, 8, [1e6, 4e6, 9e6]),
        (Op.ALL_REDUCE, 8, []),
    ],
    ids=["one size", "two points", "one rank", "no model", "nothing"],
)
def test_what_cannot_be_fitted_is_none(op: Op, n: int, sizes: list[float]) -> None:
    assert fit_alpha_beta(op, n, np.array(sizes), np.array(sizes)) is None
