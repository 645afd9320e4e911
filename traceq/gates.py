"""Gates: conditions under which a run fails, as `exposed_comm_fraction > 20%`.

A gate states what must not be. It fails closed: what is unknown, or known of a part of the ranks or
of an incomplete source only, is not judged, which is no pass.
"""

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

from traceq.compare.comparison import Comparison
from traceq.errors import ConfigError
from traceq.model.collectives import Op
from traceq.model.timing import PARTS, RATIOS
from traceq.model.units import percent_text
from traceq.report import Report, Row, reason_text

_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
_SHAPE = re.compile(
    r"\s*(?P<metric>\w+)\s*(?:\[\s*(?P<op>\w+)\s*(?:,\s*(?P<size>[\d.]+)\s*(?P<unit>[KMGT]?i?B)\s*)?\])?"
    r"\s*(?P<sign>[<>]=?)\s*(?P<value>[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)\s*(?P<percent>%?)\s*",
    re.ASCII | re.IGNORECASE,
)
_EXAMPLE = "as in 'exposed_comm_fraction > 20%' or 'busbw_gbps[all_reduce] < 300'"
_UNITS = {"B": 0, "KIB": 10, "MIB": 20, "GIB": 30, "TIB": 40}


@dataclass(frozen=True, slots=True)
class Metric:
    """What a gate can be about.

    Attributes:
        across: it needs every rank of the job.
        per_op: it is told by operation.
        share: it is a fraction, so a limit may be in percent.
        compared: it needs a run to compare with.
    """

    across: bool = False
    per_op: bool = False
    share: bool = False
    compared: bool = False


METRICS: dict[str, Metric] = {
    **{name: Metric() for name in PARTS},
    **{name: Metric(share=True) for name in RATIOS},
    "transfer_overlap_ratio": Metric(across=True, share=True),
    "step_time_ms": Metric(),
    "straggler_fraction": Metric(across=True, share=True),
    "algbw_gbps": Metric(across=True, per_op=True),
    "busbw_gbps": Metric(across=True, per_op=True),
    "efficiency": Metric(across=True, per_op=True, share=True),
    "step_time_regression": Metric(share=True, compared=True),
    "weak_efficiency": Metric(share=True, compared=True),
    "strong_efficiency": Metric(share=True, compared=True),
}


@dataclass(frozen=True, slots=True)
class Gate:
    """One condition that must not hold.

    Attributes:
        expr: the condition as the user wrote it.
        metric: its name.
        op: the operation it is about, None for metrics of the run.
        bucket_bytes: the size bucket of the operation [bytes], None for the one that moves most.
        sign: one of `<`, `<=`, `>`, `>=`.
        limit: what the metric is compared with.
    """

    expr: str
    metric: str
    op: Op | None
    bucket_bytes: int | None
    sign: str
    limit: float

    def fails(self, value: float) -> bool:
        """Returns: whether the condition holds for a value."""
        return _OPERATORS[self.sign](value, self.limit)


@dataclass(frozen=True, slots=True)
class Value:
    """The value of a metric, or the reason code of why it has none; and its noise."""

    value: float | None
    reason: str | None = None
    noise: float = 0.0


def parse_gate(expr: str) -> Gate:
    """Returns: a gate from its expression.

    Raises:
        ConfigError: it has another shape, or names no metric or operation that there is.

    >>> parse_gate("busbw_gbps[all_reduce, 64MiB] < 300").bucket_bytes
    67108864
    """
    match = _SHAPE.fullmatch(expr)
    if match is None:
        message = f"{expr!r}: not a gate: write METRIC OP VALUE, {_EXAMPLE}"
        raise ConfigError(message)
    name, op = match["metric"], match["op"]
    if name not in METRICS:
        message = f"{name}: no such metric{_nearest(name, list(METRICS))}"
        raise ConfigError(message)
    metric = METRICS[name]
    if metric.per_op and op is None:
        message = f"{name} is told by operation: write {name}[all_reduce]"
        raise ConfigError(message)
    if op is not None and not metric.per_op:
        message = f"{name} is of the whole run: write it without [{op}]"
        raise ConfigError(message)
    if op is not None and op not in set(Op):
        message = f"{op}: no such operation{_nearest(op, list(Op))}"
        raise ConfigError(message)
    if match["percent"] and not metric.share:
        message = f"{expr!r}: {name} is no fraction, so its limit is not in percent"
        raise ConfigError(message)
    limit = float(match["value"]) / (100 if match["percent"] else 1)
    return Gate(
        expr=expr.strip(),
        metric=name,
        op=None if op is None else Op(op),
        bucket_bytes=_bucket(match["size"], match["unit"]),
        sign=match["sign"],
        limit=limit,
    )


def _bucket(size: str | None, unit: str | None) -> int | None:
    if size is None or unit is None:
        return None
    shift = _UNITS.get(unit.upper())
    if shift is None or size.count(".") > 1 or not 1 <= float(size) * (1 << shift) < 1 << 60:
        message = f"{size}{unit}: not a size: write it in B, KiB, MiB or GiB, as in 64MiB"
        raise ConfigError(message)
    return 1 << (int(float(size) * (1 << shift)).bit_length() - 1)


def _nearest(name: str, known: Sequence[str]) -> str:
    close = get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]}?" if close else f"; there are: {', '.join(known)}"


def judge_report(report: Report, gates: Sequence[Gate], *, incomplete_ok: bool = False) -> Report:
    """Returns: the report with a row for each gate: expr, value, passed, reason.

    `passed` is None where it could not be judged, with the reason code.

    Args:
        report: the report.
        gates: what must not be.
        incomplete_ok: judge what one rank tells although a source is incomplete.
    """
    rows = [_judged(gate, _of_report(gate, report, incomplete_ok=incomplete_ok)) for gate in gates]
    return replace(report, gates=rows)


def judge_comparison(
    comparison: Comparison, gates: Sequence[Gate], *, incomplete_ok: bool = False
) -> Comparison:
    """Returns: the comparison with a row for each gate and run but the base.

    A difference within the noise is not judged where the noise is larger than the limit.

    Args:
        comparison: the comparison.
        gates: what must not be.
        incomplete_ok: judge what one rank tells although a source is incomplete.
    """
    rows = []
    for position, report in enumerate(comparison.reports[1:], start=1):
        for gate in gates:
            value = (
                _of_comparison(gate, comparison, position, incomplete_ok=incomplete_ok)
                if METRICS[gate.metric].compared
                else _of_report(gate, report, incomplete_ok=incomplete_ok)
            )
            rows.append({"run": comparison.runs[position]["name"], **_judged(gate, value)})
    return replace(comparison, gates=rows)


def exit_status(gates: Sequence[Row]) -> int:
    """Returns: 1 when a gate failed, else 2 when one could not be judged, else 0."""
    if any(row["passed"] is False for row in gates):
        return 1
    return 2 if any(row["passed"] is None for row in gates) else 0


def gate_text(row: Row) -> str:
    """Returns: the value of a judged gate in the unit of its metric, or why it was not judged."""
    value, name = row["value"], parse_gate(row["expr"]).metric
    if value is None:
        return reason_text(row["reason"])
    text = percent_text(value) if METRICS[name].share else f"{value:.6g}{_unit(name)}"
    return text if row["passed"] is not None else f"{text}, {reason_text(row['reason'])}"


def _unit(name: str) -> str:
    units = {"_ns": " ns", "_ms": " ms", "_gbps": " GB/s"}
    return next((unit for suffix, unit in units.items() if name.endswith(suffix)), "")


def _judged(gate: Gate, found: Value) -> Row:
    passed: bool | None = None
    reason = found.reason
    if found.value is not None and reason is None:
        if abs(found.value) <= found.noise and found.noise > abs(gate.limit):
            reason = "inconclusive"
        else:
            passed = not gate.fails(found.value)
    return {"expr": gate.expr, "value": found.value, "passed": passed, "reason": reason}


def _of_report(gate: Gate, report: Report, *, incomplete_ok: bool) -> Value:
    metric = METRICS[gate.metric]
    if metric.compared:
        return Value(None, "nothing_to_compare")
    if not report.complete and (metric.across or not incomplete_ok):
        return Value(None, "incomplete")
    lacking = _lacking(report) if metric.across else None
    if lacking is not None:
        return Value(None, lacking)
    if gate.op is not None:
        return _of_operation(gate, report)
    value = report.metrics[gate.metric]
    return Value(value, None if value is not None else report.reasons[gate.metric])


def _lacking(report: Report) -> str | None:
    """Returns: why nothing can be said across the ranks of a run, None where it can."""
    if len(report.run["ranks_present"]) == 1:
        return "single_rank"
    if report.run["world_size"] is None:
        return "world_size_unknown"
    return "partial_ranks" if report.run["ranks_missing_count"] else None


def _of_operation(gate: Gate, report: Report) -> Value:
    rows = [row for row in report.collectives if row["op"] == gate.op]
    if gate.bucket_bytes is not None:
        rows = [row for row in rows if row["bucket_bytes"] == gate.bucket_bytes]
    if not rows:
        return Value(None, "op_absent")
    sized = [row for row in rows if row["bytes_p50"] is not None]
    if 2 * sum(row["count"] for row in sized) <= sum(row["count"] for row in rows):
        return Value(None, "size_unknown")
    moved = max(sized, key=lambda row: (row["count"] * row["bytes_p50"], -(row[gate.metric] or 0)))
    if moved["quality"] != "measured":
        return Value(None, moved["quality"])
    value = moved[gate.metric]
    return Value(value, None if value is not None else "peak_unknown")


def _of_comparison(
    gate: Gate, comparison: Comparison, position: int, *, incomplete_ok: bool
) -> Value:
    fall = comparison.waterfalls[position - 1]
    if not incomplete_ok and not all(comparison.reports[place].complete for place in (0, position)):
        return Value(None, "incomplete")
    if gate.metric != "step_time_regression":
        run = comparison.runs[position]
        return Value(run[gate.metric], run["reason"])
    if not fall["base_ns"] or fall["difference_ns"] is None:
        return Value(None, "few_steps")
    return Value(fall["difference_ns"] / fall["base_ns"], noise=fall["noise_ns"] / fall["base_ns"])
