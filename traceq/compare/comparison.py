"""Runs of any number of ranks side by side, as plain data."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from traceq.compare.causes import cause
from traceq.compare.collectives import collectives
from traceq.compare.scaling import LEAST_SIZES, scaling
from traceq.compare.side import Side, settings_that_differ, sides_of
from traceq.compare.waterfall import SPLIT, WHOLE, knows, step_time, waterfall
from traceq.errors import TraceqError
from traceq.report import Report, Row
from traceq.runfile import Run

SCHEMA = "traceq.comparison/1"
Scaling = Literal["weak", "strong"]
_LEAST_RUNS = 2
_STRAGGLER = ("rank", "lateness_ns", "imposed_wait_ns", "straggler_fraction", "p_value", "cause")


@dataclass(frozen=True, slots=True)
class Comparison:
    """Runs side by side; the fields are the keys of `compare --format json`.

    The first run is the base.

    Attributes:
        scaling: `weak` (work per rank stays) or `strong` (work in all stays).
        runs: one row per run: name, coverage, step time with its spread and parts, efficiencies.
        settings: what is not the same in all runs, with the value of each.
        waterfalls: one row per run but the base: the difference of step times and its parts.
        causes: one row per run but the base: why, in words.
        collectives: one row per kind of collective, the most grown first, with an entry per run;
            absent_ns is what a run without the kind exposes in it [ns].
        stragglers: one row per straggler of each run.
        trend: one row per operation that was fitted over three or more numbers of ranks.
        gates: empty without gates.
        reports: the report of each run.
    """

    scaling: Scaling
    runs: list[Row]
    settings: list[Row]
    waterfalls: list[Row]
    causes: list[Row]
    collectives: list[Row]
    stragglers: list[Row]
    trend: list[Row]
    reports: list[Report]
    gates: list[Row] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Returns: whether every source of every run was read whole."""
        return all(report.complete for report in self.reports)

    def as_json(self) -> dict[str, Any]:
        """Returns: the comparison as plain data, without the reports."""
        data = asdict(self)
        del data["reports"]
        version = self.reports[0].traceq_version
        return {"schema": SCHEMA, "traceq_version": version, "base": self.runs[0]["name"], **data}


def compare_runs(runs: Sequence[Run], scaling_kind: Scaling = "weak") -> Comparison:
    """Returns: the comparison of two or more open run files with the first of them.

    Raises:
        TraceqError: there are fewer than two.
        QueryError: a run file is damaged.
    """
    if len(runs) < _LEAST_RUNS:
        message = "one run alone compares with nothing: name two or more"
        raise TraceqError(message)
    sides = sides_of(runs)
    base = sides[0]
    rows = collectives(sides)
    falls = [waterfall(base, side) for side in sides[1:]]
    return Comparison(
        scaling=scaling_kind,
        runs=[_run(side, base, scaling_kind) for side in sides],
        settings=settings_that_differ(sides),
        waterfalls=falls,
        causes=[
            cause(fall, base, side, rows, position)
            for position, (fall, side) in enumerate(zip(falls, sides[1:], strict=True), start=1)
        ],
        collectives=rows,
        stragglers=[
            {"run": side.name, **{name: row[name] for name in _STRAGGLER}}
            for side in sides
            for row in side.report.stragglers
            if row["straggler"]
        ],
        trend=scaling(sides) if len({s.ranks for s in sides} - {None}) >= LEAST_SIZES else [],
        reports=[side.report for side in sides],
    )


def _run(side: Side, base: Side, scaling_kind: Scaling) -> Row:
    report = side.report
    step = step_time(side, SPLIT if knows(side, SPLIT) else WHOLE)
    weak, strong, reason = _efficiencies(side, base)
    return {
        "name": side.name,
        **{name: report.run[name] for name in ("world_size", "nodes", "gpus", "window", "steps")},
        "ranks_present_count": len(report.run["ranks_present"]),
        "complete": report.complete,
        "window_ns": report.metrics["window_ns"],
        "comm_fraction": report.metrics["comm_fraction"],
        "exposed_comm_fraction": report.metrics["exposed_comm_fraction"],
        "overlap_ratio": report.metrics["overlap_ratio"],
        "step_time_ns": step.step_time_ns,
        "step_spread_ns": step.spread_ns,
        "parts": step.parts,
        "weak_efficiency": weak,
        "strong_efficiency": strong,
        "efficiency": weak if scaling_kind == "weak" else strong,
        "reason": reason,
    }


def _efficiencies(side: Side, base: Side) -> tuple[float | None, float | None, str | None]:
    """Returns: weak and strong efficiency against the base, and why they are unknown."""
    before, after = (step_time(each, ()).step_time_ns for each in (base, side))
    if before is None or after is None:
        return None, None, "few_steps"
    if not before or not after:
        return None, None, "empty_window"
    if base.ranks is None or side.ranks is None:
        return None, None, "world_size_unknown"
    return before / after, before * base.ranks / (after * side.ranks), None
