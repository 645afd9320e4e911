"""Which ranges are steps, how they are numbered, and which operations they launched."""

import polars as pl
import pytest

from traceq.ingest.steps import find_steps, step_of_launch

Range = tuple[str, int, int]


def ranges(*rows: Range, process: int = 1, thread: int = 1) -> pl.DataFrame:
    return pl.DataFrame(
        [(process, thread, start, end, name) for name, start, end in rows],
        schema={
            "process": pl.Int64,
            "thread": pl.Int64,
            "start_ns": pl.Int64,
            "end_ns": pl.Int64,
            "name": pl.String,
        },
        orient="row",
    )


def numbered(frame: pl.DataFrame) -> list[tuple[int, int]]:
    return list(frame.select("step", "start_ns").iter_rows())


@pytest.mark.parametrize(
    "names",
    [
        ("ProfilerStep#7", "ProfilerStep#8"),
        ("step 7", "step 8"),
        ("Step_7", "Step_8"),
        ("iteration 7", "iteration 8"),
        ("iter7", "iter8"),
        ("train_step 7", "train_step 8"),
        ("batch=7", "batch=8"),
        ("Iteration 7/100", "Iteration 8/100"),
        ("global_step=7", "global_step=8"),
        ("## step 7 ##", "## step 8 ##"),
        ("epoch 0 step 7", "epoch 0 step 8"),
    ],
)
def test_names_of_common_frameworks_number_their_steps(names: tuple[str, str]) -> None:
    steps = find_steps(ranges((names[0], 0, 10), (names[1], 10, 20)), None)
    assert numbered(steps) == [(7, 0), (8, 10)]


@pytest.mark.parametrize("name", ["train_step", "iteration", "[pl][profile]run_training_batch"])
def test_steps_without_a_number_are_counted_from_zero(name: str) -> None:
    steps = find_steps(ranges((name, 20, 30), (name, 0, 10)), None)
    assert numbered(steps) == [(0, 0), (1, 20)]


@pytest.mark.parametrize(
    "name", ["optimizer step", "Step 0 to 10", "stepwise 3", "batch_norm", "final matmul", ""]
)
def test_names_that_only_resemble_a_step_are_none(name: str) -> None:
    assert find_steps(ranges((name, 0, 10)), None).is_empty()


def test_a_numbered_range_inside_a_step_is_not_a_step() -> None:
    steps = find_steps(ranges(("step 1", 0, 100), ("step 2", 10, 20), ("step 3", 100, 200)), None)
    assert numbered(steps) == [(1, 0), (3, 100)]


def test_a_single_outer_range_does_not_swallow_the_steps_inside() -> None:
    inside = [(f"step {k}", 10 * k, 10 * k + 9) for k in range(3)]
    steps = find_steps(ranges(("iteration 0", 0, 100), *inside), None)
    assert numbered(steps) == [(0, 0), (1, 10), (2, 20)]


def test_the_outermost_kind_that_repeats_is_the_step() -> None:
    outer = [(f"step {k}", 100 * k, 100 * k + 100) for k in range(2)]
    micro = [(f"batch {k}", 25 * k, 25 * k + 20) for k in range(8)]
    assert numbered(find_steps(ranges(*outer, *micro), None)) == [(0, 0), (1, 100)]


def test_a_first_step_below_zero_is_a_step() -> None:
    steps = find_steps(ranges(("step 0", -50, -10), ("step 1", -10, 5)), None)
    assert numbered(steps) == [(0, -50), (1, -10)]


def test_each_process_has_its_own_steps() -> None:
    both = pl.concat(
        [
            ranges(("ProfilerStep#1", 0, 10)),
            ranges(("step 4", 0, 10), ("step 5", 10, 20), process=2),
        ]
    )
    found = find_steps(both, None).sort("process", "start_ns").select("process", "step").rows()
    assert found == [(1, 1), (2, 4), (2, 5)]


def test_numbers_that_repeat_are_counted_instead() -> None:
    steps = find_steps(ranges(("step 0", 0, 10), ("step 1", 10, 20), ("step 0", 20, 30)), None)
    assert numbered(steps) == [(0, 0), (1, 10), (2, 20)]


def test_the_thread_with_most_steps_marks_them() -> None:
    both = pl.concat(
        [ranges(("step 1", 0, 10), ("step 2", 10, 20)), ranges(("step 9", 5, 6), thread=2)]
    )
    assert numbered(find_steps(both, None)) == [(1, 0), (2, 10)]


def test_a_pattern_of_the_user_replaces_the_known_ones() -> None:
    marked = ranges(("step 1", 0, 10), ("epoch 0 chunk 41", 0, 10))
    assert numbered(find_steps(marked, r"epoch \d+ chunk (\d+)")) == [(41, 0)]
    assert find_steps(marked, "nothing like it").is_empty()


def test_a_launch_belongs_to_the_step_that_contains_it() -> None:
    steps = find_steps(ranges(("step 4", 10, 20), ("step 5", 30, 40)), None)
    launches = pl.Series([9, 10, 20, 21, 30, 41, None], dtype=pl.Int64)
    assert step_of_launch(launches, steps).to_list() == [None, 4, 4, None, 5, None, None]


def test_without_steps_no_launch_belongs_to_one() -> None:
    none = find_steps(ranges(("other", 0, 1)), None)
    assert step_of_launch(pl.Series([1, 2], dtype=pl.Int64), none).to_list() == [None, None]
