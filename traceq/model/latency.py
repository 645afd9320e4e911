"""Latency and bandwidth from measured times: the alpha-beta model, fitted robustly.

``T = alpha * steps + wire_bytes / beta``. Each time is weighed by its own length, so that small and
large messages count alike, and points far from the fit lose their weight.

Source: docs/metrics.md, latency and bandwidth; Tukey's biweight, Beaton and Tukey 1974.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from traceq.model.collectives import Op, ring_steps, wire_bytes

Numbers = npt.NDArray[np.floating]
_LEAST_POINTS = 3
_LEAST_RANGE = 4.0  # largest size over smallest
_TUNING = 4.685  # of the biweight: 95 % as good as least squares on normal errors
_NORMAL = 1.4826  # standard deviation over the median absolute deviation
_ROUNDS = 100
_WORTHLESS = 0.5  # relative error of a parameter that the sizes do not tell
_SCALE = 1 << 40  # S from which the share of it that a rank sends is read off


@dataclass(frozen=True, slots=True)
class Fit:
    """The alpha-beta model of one operation on one group.

    Attributes:
        points: times the fit is made from [1].
        steps: steps of the ring algorithm [1].
        wire_share: bytes each rank sends, as a share of S [1].
        alpha_us: latency of one step [us], None when the sizes do not tell it.
        beta_gbps: bandwidth [GB/s], None when the sizes do not tell it.
        alpha_error: relative standard error of alpha [1].
        beta_error: relative standard error of beta [1].
        spread: median relative distance of the times from the fit [1].
    """

    points: int
    steps: int
    wire_share: float
    alpha_us: float | None
    beta_gbps: float | None
    alpha_error: float | None
    beta_error: float | None
    spread: float


def fit_alpha_beta(op: Op, n: int, sizes: Numbers, times_ns: Numbers) -> Fit | None:
    """Returns: the model of one operation on n ranks, None where it cannot be fitted.

    It takes three times or more, over sizes that lie at least a factor of four apart.

    Args:
        op: the operation.
        n: ranks of the group.
        sizes: S of each collective [bytes], shape (points,).
        times_ns: its transfer time [ns], shape (points,).

    >>> sizes = np.array([1e6, 1e7, 1e8, 1e9])
    >>> fit = fit_alpha_beta(Op.ALL_REDUCE, 8, sizes, 14 * 5_000 + 1.75 * sizes / 450)
    >>> f"{fit.alpha_us:.3f} us, {fit.beta_gbps:.1f} GB/s"
    '5.000 us, 450.0 GB/s'
    """
    steps = ring_steps(op, n)
    usable = (sizes > 0) & (times_ns > 0)
    sizes, times_ns = sizes[usable], times_ns[usable]
    if steps is None or n <= 1 or len(sizes) < _LEAST_POINTS:
        return None
    if sizes.max() < _LEAST_RANGE * sizes.min():
        return None
    share = (wire_bytes(op, _SCALE, n) or _SCALE) / _SCALE
    design = np.stack([steps * 1e3 / times_ns, sizes * share / times_ns], axis=1)
    values, weights = _robust(design)
    residuals = np.abs(design @ values - 1)
    errors = _relative_errors(design, values, weights)
    alpha, inverse_beta = (
        float(value) if value > 0 and error <= _WORTHLESS else None
        for value, error in zip(values, errors, strict=True)
    )
    return Fit(
        points=len(sizes),
        steps=steps,
        wire_share=share,
        alpha_us=alpha,
        beta_gbps=None if inverse_beta is None else 1 / inverse_beta,
        alpha_error=None if alpha is None else float(errors[0]),
        beta_error=None if inverse_beta is None else float(errors[1]),
        spread=float(np.median(residuals)),
    )


def _robust(design: Numbers) -> tuple[Numbers, Numbers]:
    """Returns: the parameters, none below 0, for which the model is 1; and each point's weight."""
    weights = np.ones(len(design))
    values = _nearest(design, weights)
    for _ in range(_ROUNDS):
        residuals = design @ values - 1
        scale = max(_NORMAL * float(np.median(np.abs(residuals))), 1e-9)
        distance = residuals / (_TUNING * scale)
        weights = np.where(np.abs(distance) < 1, (1 - distance**2) ** 2, 0.0)
        closer = _nearest(design, weights)
        settled = np.allclose(closer, values, rtol=1e-9, atol=0)
        values = closer
        if settled:
            break
    return values, weights


def _nearest(design: Numbers, weights: Numbers) -> Numbers:
    root = np.sqrt(weights)[:, None]
    values = np.asarray(np.linalg.lstsq(design * root, root[:, 0], rcond=None)[0], dtype=float)
    for column in (0, 1):
        if values[column] < 0:
            other = 1 - column
            only = (design * root)[:, other]
            values = np.zeros(2)
            values[other] = only @ root[:, 0] / (only @ only)
    return values


def _relative_errors(design: Numbers, values: Numbers, weights: Numbers) -> Numbers:
    used = weights > 0
    free = max(int(used.sum()) - 2, 1)
    variance = float((weights * (design @ values - 1) ** 2).sum()) / free
    information = (design * weights[:, None]).T @ design
    if np.linalg.matrix_rank(information) < len(values):
        return np.full(2, np.inf)
    errors = np.sqrt(np.maximum(variance * np.diag(np.linalg.inv(information)), 0))
    relative: Numbers = np.divide(errors, values, out=np.full(2, np.inf), where=values > 0)
    return relative
