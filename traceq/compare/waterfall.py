"""Where the difference of two step times comes from: parts that add up to it exactly.

The step time is the median over steps of the slowest rank. Each part is the median over steps of
its mean over ranks; what is left to the step time is the part `rest`: steps of other ranks are
shorter, and medians of parts do not add up to the median of their sum.

Source: docs/metrics.md, comparing runs.
"""

from dataclasses import dataclass
from enum import StrEnum

import polars as pl

from traceq.compare.side import Side
from traceq.model.timing import lower_median
from traceq.report import Row

WHOLE = ("compute", "exposed_comm", "exposed_copy", "idle")
SPLIT = ("compute", "exposed_transfer", "exposed_wait", "exposed_copy", "idle")
_QUARTILE_STEPS = 8  # quartiles of fewer say little: then it is the whole range


class Verdict(StrEnum):
    """What a difference between two medians means."""

    NONE = "no difference"
    NOISE = "inconclusive"
    MORE = "more"
    LESS = "less"
    UNKNOWN = "unknown"


def judge(base: int | None, other: int | None, noise: int | None) -> Verdict:
    """Returns: whether two medians differ by more than their steps do among themselves.

    >>> judge(100, 120, 15), judge(100, 110, 15), judge(100, 100, 15), judge(None, 1, 0)
    (<Verdict.MORE: 'more'>, <Verdict.NOISE: 'inconclusive'>, <Verdict.NONE: 'no difference'>, \
<Verdict.UNKNOWN: 'unknown'>)
    """
    if base is None or other is None or noise is None:
        return Verdict.UNKNOWN
    if base == other:
        return Verdict.NONE
    if abs(other - base) <= noise:
        return Verdict.NOISE
    return Verdict.MORE if other > base else Verdict.LESS


@dataclass(frozen=True, slots=True)
class StepTime:
    """The step of a run, and its parts.

    Attributes:
        step_time_ns: median over steps of the slowest rank [ns]; None without steps.
        spread_ns: how far apart its steps are [ns].
        parts: median of each part over steps [ns]; with `rest` they add up to the step time.
        spreads: how far apart the steps are in each part [ns].
    """

    step_time_ns: int | None
    spread_ns: int | None
    parts: dict[str, int]
    spreads: dict[str, int]


def step_time(side: Side, names: tuple[str, ...]) -> StepTime:
    """Returns: the step of a run and its parts, where these are known.

    Args:
        side: the run.
        names: the parts: `WHOLE` or `SPLIT`.
    """
    steps = side.steps
    if steps.is_empty():
        return StepTime(None, None, {}, {})
    total = _median(steps["step_time_ns"])
    spread = _spread(steps["step_time_ns"])
    if not names or not knows(side, names):
        return StepTime(total, spread, {}, {})
    means = {name: steps[f"{name}_ns"] // steps["rank_count"] for name in names}
    parts = {name: _median(values) for name, values in means.items()}
    spreads = {name: _spread(values) for name, values in means.items()}
    rest = steps["step_time_ns"] - sum(means.values())
    parts["rest"] = total - sum(parts.values())
    return StepTime(total, spread, parts, spreads | {"rest": _spread(rest)})


def knows(side: Side, names: tuple[str, ...]) -> bool:
    """Returns: whether a run knows parts of its steps."""
    return not any(side.steps[f"{name}_ns"].null_count() for name in names)


def _median(values: pl.Series) -> int:
    return lower_median(values) or 0


def _spread(values: pl.Series) -> int:
    """Returns: how far apart the middle half of some values lies, or all where they are few."""
    ordered, last = values.sort(), len(values) - 1
    cut = 0 if len(values) < _QUARTILE_STEPS else last // 4
    return int(ordered[last - cut]) - int(ordered[cut])


def waterfall(base: Side, other: Side) -> Row:
    """Returns: the difference of two step times and the parts that add up to it exactly.

    `parts` is empty where a run does not know its parts; exposed communication is split into
    transfer and waiting where both runs know it.
    """
    names: tuple[str, ...] = SPLIT if all(knows(side, SPLIT) for side in (base, other)) else WHOLE
    if not all(knows(side, names) for side in (base, other)):
        names = ()
    before, after = step_time(base, names), step_time(other, names)
    return {
        "base": base.name,
        "run": other.name,
        **_difference(
            before.step_time_ns, after.step_time_ns, before.spread_ns, after.spread_ns
        ),
        "reason": None if None not in {before.step_time_ns, after.step_time_ns} else "few_steps",
        "parts": [
            {
                "part": name,
                **_difference(
                    before.parts[name], after.parts[name], before.spreads[name],
                    after.spreads[name],
                ),
            }
            for name in before.parts
            if name in after.parts
        ],
    }  # fmt: skip


def _difference(
    base: int | None, other: int | None, base_spread: int | None, other_spread: int | None
) -> Row:
    known = base is not None and other is not None
    noise = max(base_spread, other_spread) if known else None  # type: ignore[type-var]
    return {
        "base_ns": base,
        "run_ns": other,
        "difference_ns": other - base if known else None,  # type: ignore[operator]
        "noise_ns": noise,
        "verdict": judge(base, other, noise).value,
    }
