"""The arithmetic of collectives: sizes, bus factors, ring steps, wire bytes, alpha-beta time.

Conventions are those of nccl-tests, so that a busbw printed here can be laid beside one measured
there. ``n`` is the number of ranks in the group and ``S`` the size of the operation in bytes.

Source: https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction


class Op(StrEnum):
    """A communication operation, by the one name it has in tables, JSON and flags."""

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_TO_ALL = "all_to_all"
    BROADCAST = "broadcast"
    REDUCE = "reduce"
    GATHER = "gather"
    SCATTER = "scatter"
    SEND = "send"
    RECV = "recv"
    SEND_RECV = "send_recv"
    BARRIER = "barrier"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Rule:
    """How one operation is counted.

    Attributes:
        payload_is_per_rank: an NCCL call states the bytes of one rank, so that S is n times that.
        bus_factor: busbw / algbw for n ranks.
        ring_steps: steps of the ring algorithm for n ranks.
        wire_share: bytes each rank sends under the ring model, as a share of S; None when ranks
            send different amounts.
    """

    payload_is_per_rank: bool
    bus_factor: Callable[[int], Fraction]
    ring_steps: Callable[[int], int]
    wire_share: Callable[[int], Fraction] | None


def _one(n: int) -> Fraction:  # noqa: ARG001
    return Fraction(1)


def _others(n: int) -> Fraction:
    return Fraction(n - 1, n)


def _twice_others(n: int) -> Fraction:
    return Fraction(2 * (n - 1), n)


def _one_step(n: int) -> int:  # noqa: ARG001
    return 1


def _around(n: int) -> int:
    return n - 1


def _twice_around(n: int) -> int:
    return 2 * (n - 1)


RULES: dict[Op, Rule] = {
    Op.ALL_REDUCE: Rule(False, _twice_others, _twice_around, _twice_others),
    Op.ALL_GATHER: Rule(True, _others, _around, _others),
    Op.REDUCE_SCATTER: Rule(True, _others, _around, _others),
    Op.ALL_TO_ALL: Rule(True, _others, _around, _others),
    Op.GATHER: Rule(True, _others, _around, None),
    Op.SCATTER: Rule(True, _others, _around, None),
    Op.BROADCAST: Rule(False, _one, _around, None),
    Op.REDUCE: Rule(False, _one, _around, None),
    Op.SEND: Rule(False, _one, _one_step, _one),
    Op.RECV: Rule(False, _one, _one_step, _one),
    Op.SEND_RECV: Rule(False, _one, _one_step, _one),
}


def size_bytes(op: Op, payload_bytes: int, n: int) -> int | None:
    """Returns: the size S of an operation [bytes] from the bytes an NCCL call states, or None.

    >>> size_bytes(Op.ALL_GATHER, 16, 8), size_bytes(Op.ALL_REDUCE, 16, 8)
    (128, 16)
    """
    rule = RULES.get(op)
    if rule is None:
        return None
    return payload_bytes * n if rule.payload_is_per_rank else payload_bytes


def bus_factor(op: Op, n: int) -> float | None:
    """Returns: busbw / algbw [1], or None where it is undefined: one rank, barrier, unknown.

    >>> bus_factor(Op.ALL_REDUCE, 8), bus_factor(Op.ALL_GATHER, 8), bus_factor(Op.ALL_REDUCE, 1)
    (1.75, 0.875, None)
    """
    rule = RULES.get(op)
    return float(rule.bus_factor(n)) if rule is not None and n > 1 else None


def algbw_gbps(size: int, transfer_ns: int) -> float | None:
    """Returns: S / t [GB/s, 1 GB = 1e9 bytes], or None when t is not positive.

    >>> algbw_gbps(250_000_000, 1_000_000)
    250.0
    """
    return size / transfer_ns if transfer_ns > 0 else None


def busbw_gbps(op: Op, size: int, n: int, transfer_ns: int) -> float | None:
    """Returns: the bus bandwidth [GB/s], or None where a factor or the time is undefined.

    >>> round(busbw_gbps(Op.ALL_REDUCE, 268_435_456, 8, 10_000_000), 2)
    46.98
    """
    factor, algbw = bus_factor(op, n), algbw_gbps(size, transfer_ns)
    return None if factor is None or algbw is None else algbw * factor


def wire_bytes(op: Op, size: int, n: int) -> int | None:
    """Returns: bytes each rank sends under the ring model, rounded to the byte, or None.

    >>> wire_bytes(Op.ALL_REDUCE, 4096, 4)
    6144
    """
    rule = RULES.get(op)
    if rule is None or rule.wire_share is None or n < 1:
        return None
    return round(size * rule.wire_share(n))


def ring_steps(op: Op, n: int) -> int | None:
    """Returns: the number of steps of the ring algorithm, or None for an operation without one.

    >>> ring_steps(Op.ALL_REDUCE, 8)
    14
    """
    rule = RULES.get(op)
    return None if rule is None else rule.ring_steps(n)


def alpha_beta_ns(
    op: Op, size: int, n: int, *, alpha_us: float, beta_gbps: float
) -> tuple[float, float] | None:
    """Returns: (latency, transfer) parts of the modelled time [ns], or None without a model.

    ``T = alpha * steps + wire_bytes / beta``: a message pays alpha per step of the ring, and its
    bytes travel at beta. Broadcast and reduce pass the whole buffer along the ring once.

    >>> latency, transfer = alpha_beta_ns(
    ...     Op.ALL_REDUCE, 1_000_000_000, 8, alpha_us=5, beta_gbps=450)
    >>> f"{transfer / 1e6:.2f} ms + {latency / 1e6:.2f} ms"
    '3.89 ms + 0.07 ms'
    """
    steps = ring_steps(op, n)
    if steps is None or n <= 1:
        return None
    sent = wire_bytes(op, size, n)
    return alpha_us * 1e3 * steps, (size if sent is None else sent) / beta_gbps
