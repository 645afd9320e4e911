"""Training steps: which marked ranges are steps, and where they lie on device time."""

import re

import polars as pl

# Tried in order, whole name, without case; the first group is the number of the step.
DEFAULT_PATTERNS = (
    r"ProfilerStep#(\d+)",
    (
        r"[#\s]*(?:epoch[ _#:=-]*\d+[ ,/_-]*)?(?:global[ _-]?|train(?:ing)?[ _-]?)?"
        r"(?:step|iter(?:ation)?|batch)[ _#:=-]*(\d+)(?:\s*/\s*\d+)?[#\s]*"
    ),
    r"\[pl\]\[profile\]run_training_batch|(?:train(?:ing)?[ _-]?)(?:step|iter(?:ation)?|batch)",
    r"iteration",
)

STEP_SCHEMA = pl.Schema(
    {
        "process": pl.Int64,
        "step": pl.Int64,
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
        "name": pl.String,
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
    """Returns: one row per (process, step), in order of time (`STEP_SCHEMA`) [ns].

    Of each process, the first pattern that names any range wins. Where several kinds of range fit
    it (`iteration 0` around `step 0`, `step 1`), the outermost kind that repeats is the step, on
    the thread that has most of it. A step without a number in its name is counted from 0.

    Args:
        ranges: finished host ranges: process, thread [id], start_ns, end_ns [ns], name.
        step_pattern: the user's pattern, or None.
    """
    found = []
    for _, mine in ranges.drop_nulls(["process", "thread"]).group_by("process"):
        for pattern in patterns(step_pattern):
            steps = mine.filter(pl.col("name").str.contains(_whole(pattern)))
            if not steps.is_empty():
                found.append(_numbered(_outermost(steps), pattern))
                break
    return pl.concat(found) if found else pl.DataFrame(schema=STEP_SCHEMA)


def _outermost(ranges: pl.DataFrame) -> pl.DataFrame:
    """Returns: the ranges of one process that are its steps, in order, none inside another."""
    kinds = ranges.with_columns(kind=pl.col("name").str.replace_all(r"\d+", "#"))
    chosen = (
        kinds.group_by("thread", "kind")
        .agg(pl.len(), covered_ns=(pl.col("end_ns") - pl.col("start_ns")).sum())
        .with_columns(repeats=pl.col("len") > 1)
        .sort("repeats", "covered_ns", "len", "thread", "kind", descending=[True] * 3 + [False] * 2)
        .head(1)
    )
    ordered = kinds.join(chosen, on=["thread", "kind"], how="semi").sort(
        "start_ns", pl.col("end_ns").neg()
    )
    before = pl.col("end_ns").cum_max().shift(1)
    return ordered.filter(before.is_null() | (pl.col("start_ns") >= before)).drop("kind")


def _numbered(ranges: pl.DataFrame, pattern: str) -> pl.DataFrame:
    counted = pl.int_range(pl.len())
    has_group = re.compile(pattern).groups > 0
    number = (
        pl.col("name").str.extract(_whole(pattern), 1).cast(pl.Int64, strict=False)
        if has_group
        else pl.lit(None, pl.Int64)
    )
    steps = ranges.with_columns(step=number)
    numbered = pl.col("step").is_not_null().all() & (pl.col("step").n_unique() == pl.len())
    return steps.with_columns(step=pl.when(numbered).then("step").otherwise(counted)).select(
        STEP_SCHEMA.keys()
    )


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
