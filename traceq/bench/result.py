"""A finished bench: rates by the conventions of nccl-tests, a fit, and its texts."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from traceq.model.collectives import Op, algbw_gbps, busbw_gbps
from traceq.model.latency import fit_alpha_beta

SCHEMA = "traceq.bench/1"
DTYPE = "float"


@dataclass(frozen=True, slots=True)
class Bench:
    """What was measured.

    Attributes:
        ranks: processes that took part [1].
        algorithm: `library` or `ring`.
        nodes: hosts they ran on [1].
        rows: op, algorithm, ranks, size_bytes, count, dtype, time_us, algbw_gbps, busbw_gbps,
            wrong, sent_bytes; busbw is None for one rank, where it is undefined, and for sizes of
            no bytes, sent_bytes where the library does not count what a rank sends.
        fit: op, ranks, points, alpha_us, beta_gbps, alpha_error, beta_error, spread.
        facts: versions, devices and settings, by an allow-list.
    """

    ranks: int
    algorithm: str
    nodes: int
    rows: list[dict[str, Any]]
    fit: list[dict[str, Any]]
    facts: dict[str, Any]

    @property
    def wrong(self) -> int:
        """Returns: elements that differed from what they should be, over all rows."""
        return sum(row["wrong"] or 0 for row in self.rows)

    def as_json(self) -> str:
        """Returns: the bench as JSON, which `report --baseline` reads."""
        return json.dumps({"schema": SCHEMA, **asdict(self)}, indent=1)


def bench_of(
    timed: Sequence[dict[str, Any]],
    *,
    ranks: int,
    nodes: int,
    algorithm: str,
    facts: dict[str, Any],
) -> Bench:
    """Returns: the rates and fits of timed operations.

    Args:
        timed: op, size_bytes, count, time_us, wrong, sent_bytes.
        ranks: processes that took part.
        nodes: hosts they ran on.
        algorithm: `library` or `ring`.
        facts: versions, devices and settings.
    """
    rows = []
    for each in timed:
        op, size, ns = Op(each["op"]), each["size_bytes"], each["time_us"] * 1e3
        rows.append(
            {
                "op": op.value,
                "algorithm": algorithm if op == Op.ALL_REDUCE else "library",
                "ranks": ranks,
                "size_bytes": size,
                "count": each["count"],
                "dtype": DTYPE,
                "time_us": each["time_us"],
                "algbw_gbps": algbw_gbps(size, ns),
                "busbw_gbps": busbw_gbps(op, size, ranks, ns) if size else None,
                "wrong": each["wrong"],
                "sent_bytes": each["sent_bytes"],
            }
        )
    return Bench(ranks, algorithm, nodes, rows, _fits(rows, ranks), facts)


def _fits(rows: list[dict[str, Any]], ranks: int) -> list[dict[str, Any]]:
    fits = []
    for op in dict.fromkeys(row["op"] for row in rows):
        mine = [row for row in rows if row["op"] == op]
        sizes = np.array([row["size_bytes"] for row in mine], dtype=float)
        times = np.array([row["time_us"] * 1e3 for row in mine])
        fit = fit_alpha_beta(Op(op), ranks, sizes, times)
        if fit is not None:
            fits.append({"op": op, "ranks": ranks, **asdict(fit)})
    return fits


_TESTS = {
    "all_reduce": "all_reduce", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter",
    "all_to_all": "alltoall", "broadcast": "broadcast", "reduce": "reduce",
    "send_recv": "sendrecv",
}  # fmt: skip
_REDUCING = (Op.ALL_REDUCE, Op.REDUCE_SCATTER, Op.REDUCE)
_ROOTED = (Op.BROADCAST, Op.REDUCE)


def nccl_tests_text(bench: Bench) -> str:
    """Returns: a bench of one operation as nccl-tests prints its results.

    What was measured stands out of place; nothing was measured in place, so that half is N/A.
    """
    op = Op(bench.rows[0]["op"])
    gpu = bench.facts.get("gpu") or "CPU"
    units = f"{'(us)':>9}{'(GB/s)':>8}{'(GB/s)':>8}{'':>8}"
    devices = [
        f"#  Rank {rank:2} Group  0 Pid {rank:6} on node0 device {rank:2} [0000:00:00] {gpu}"
        for rank in range(bench.ranks)
    ]
    head = [
        f"# Collective test starting: {_TESTS[op]}_perf",
        "# Using devices",
        *devices,
        "#",
        f"#{'out-of-place':>67}{'in-place':>39}",
        f"#{'size':>11}{'count':>14}{'type':>10}{'redop':>8}{'root':>8}{_half_head() * 2}",
        f"#{'(B)':>11}{'(elements)':>14}{'':>26}{units * 2}",
    ]
    redop = "sum" if op in _REDUCING else "none"
    root = 0 if op in _ROOTED else -1
    kind = f"{DTYPE:>10}{redop:>8}{root:>8}"
    lines = [
        f"{row['size_bytes']:>12}{row['count']:>14}{kind}{_half(row)}{_NOT_MEASURED}"
        for row in bench.rows
    ]
    known = [row["busbw_gbps"] for row in bench.rows if row["busbw_gbps"] is not None]
    mean = sum(known) / len(known) if known else 0.0
    foot = [
        f"# Out of bounds values : {bench.wrong} {'FAILED' if bench.wrong else 'OK'}",
        f"# Avg bus bandwidth    : {mean:.6g}",
        "#",
        f"# Collective test concluded: {_TESTS[op]}_perf",
    ]
    return "\n".join([*head, *lines, *foot]) + "\n"


_NOT_MEASURED = f"{'N/A':>9}{'N/A':>8}{'N/A':>8}{'N/A':>8}"


def _half_head() -> str:
    return f"{'time':>9}{'algbw':>8}{'busbw':>8}{'#wrong':>8}"


def _half(row: dict[str, Any]) -> str:
    wrong = "N/A" if row["wrong"] is None else row["wrong"]
    busbw = row["busbw_gbps"] or 0.0
    return f"{row['time_us']:>9.2f}{row['algbw_gbps'] or 0.0:>8.2f}{busbw:>8.2f}{wrong:>8}"
