"""Training steps: which marked ranges are steps, and where they lie on device time."""

import re

import polars as pl

# Tried in order, whole name, without case; the first group is the number of the step.
DEFAULT_PATTERNS = (
    r"ProfilerStep#(\d+)",
    r"(?:train(?:ing)?[ _-]?)?(?:step|iter(?:ation)?|batch)[ _#:=-]*(\d+)(?:\s*/\s*\d+)?",
    r"\[pl\]\[profile\]run_training_batch|(?:train(?:ing)?[ _-]?)(?:step|iter(?:ation)?|batch)",
    r"iteration",
)

STEP_SCHEMA = pl.Schema(
    {
        "process": pl.Int64,
        "step": pl.Int64,
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
    }
)


def patterns(step_pattern: str | None) -> tuple[str, ...]:
    """Returns: the patterns to try, in order: the user's alone, or those of common frameworks."""
    return (step_pattern,) if step_pattern else DEFAULT_PATTERNS


def any_step(step_pattern: str | None) -> str:
    """Returns: one pattern that finds every name that may be a step."""
    return "|".join(_whole(p) for p in patterns(step_pattern))


def _whole(pattern: str) -> str:
    return rf"(?i:^(?:{pattern})$)"


def find_steps(ranges: pl.DataFrame, step_pattern: str | None) -> pl.DataFrame:
    """Returns: one row per (process, step): step [id], start_ns, end_ns [ns], in order of time.

    The first pattern that names any range of the source wins. Of a process, the thread with most
    such ranges marks its steps; a range inside an earlier one is not a step of its own. A step
    without a number in its name is counted from 0.

    Args:
        ranges: finished host ranges: process, thread [id], start_ns, end_ns [ns], name.
        step_pattern: the user's pattern, or None.
    """
    for pattern in patterns(step_pattern):
        steps = ranges.filter(pl.col("name").str.contains(_whole(pattern)))
        if not steps.is_empty():
            return _numbered(_of_busiest_thread(steps), pattern)
    return pl.DataFrame(schema=STEP_SCHEMA)


def _of_busiest_thread(ranges: pl.DataFrame) -> pl.DataFrame:
    busiest = (
        ranges.group_by("process", "thread")
        .len()
        .sort("process", "len", "thread", descending=[False, True, False])
        .unique("process", keep="first", maintain_order=True)
    )
    return (
        ranges.join(busiest, on=["process", "thread"], how="semi")
        .sort("process", "start_ns", pl.col("end_ns").neg())
        .filter(
            pl.col("start_ns")
            >= pl.col("end_ns").cum_max().shift(1).over("process").fill_null(pl.col("start_ns"))
        )
    )


def _numbered(ranges: pl.DataFrame, pattern: str) -> pl.DataFrame:
    counted = pl.int_range(pl.len()).over("process")
    has_group = re.compile(pattern).groups > 0
    number = (
        pl.col("name").str.extract(_whole(pattern), 1).cast(pl.Int64, strict=False)
        if has_group
        else pl.lit(None, pl.Int64)
    )
    steps = ranges.with_columns(step=number)
    numbered = pl.col("step").is_not_null().all() & (pl.col("step").n_unique() == pl.len())
    return steps.with_columns(
        step=pl.when(numbered.over("process")).then("step").otherwise(counted)
    ).select(STEP_SCHEMA.keys())


def step_of_launch(launch_ns: pl.Series, steps: pl.DataFrame) -> pl.Series:
    """Returns: the step inside which each launch lies, NULL outside of steps; shape (launches,).

    Args:
        launch_ns: start of the launching calls of one process [ns].
        steps: steps of that process as `find_steps` returns them.
    """
    if steps.is_empty():
        return pl.Series("step", [None], pl.Int64).new_from_index(0, len(launch_ns))
    index = (
        steps["start_ns"]
        .search_sorted(launch_ns.fill_null(_BEFORE_ALL), side="right")
        .cast(pl.Int64)
        - 1
    )
    candidate = steps.select("step", "end_ns")[index.clip(0)]
    inside = (index >= 0) & (launch_ns <= candidate["end_ns"])
    return candidate["step"].zip_with(
        inside.fill_null(value=False), _NO_STEP.new_from_index(0, len(index))
    )


_BEFORE_ALL = -(2**63)
_NO_STEP = pl.Series("step", [None], pl.Int64)
