"""The report: its numbers, its window, its coverage, and every renderer."""

import json
from importlib import resources
from pathlib import Path

import jsonschema
import pytest

from tests.conftest import RunMaker
from tests.traces.nsys import NsysExport
from traceq.render import json as as_json
from traceq.render import table as as_table
from traceq.report import Report, build_report
from traceq.runfile import Run

RENDERERS = {"json": as_json.render, "table": as_table.render}
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def one_rank(tmp_path: Path) -> Path:
    export = NsysExport().capture(gpu=None, host=None)
    return export.kernel("gemm<float>", 1000, 1100).write(tmp_path / "one.sqlite")


@pytest.fixture(params=["empty", "one rank", "two ranks", "hidden", "incomplete"])
def report(
    request: pytest.FixtureRequest, tmp_path: Path, make_run: RunMaker, sample_run: Run
) -> Report:
    """A report of every kind that a renderer must survive."""
    if request.param == "two ranks":
        return build_report(sample_run)
    path = tmp_path / "a.sqlite"
    export = NsysExport().capture()
    match request.param:
        case "empty":
            export.kernel("gemm<float>", 1000, 1000)
        case "one rank":
            return build_report(make_run(one_rank(tmp_path)))
        case "hidden":
            export.graph(1000, 2000)
        case "incomplete":
            export.kernel(ALL_REDUCE, 1000, 1100)
            export.row("DIAGNOSTIC_EVENT", severity=3, text="7 events lost")
    return build_report(make_run(export.write(path)))


@pytest.mark.parametrize("form", RENDERERS)
def test_every_renderer_renders_every_report(form: str, report: Report) -> None:
    text = RENDERERS[form](report)
    assert report.name in text


def test_json_follows_its_published_schema(report: Report) -> None:
    schema = json.loads(resources.files("traceq.render").joinpath("report.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(json.loads(as_json.render(report)), schema)


def test_every_unknown_metric_has_a_reason(report: Report) -> None:
    unknown = {name for name, value in report.metrics.items() if value is None}
    assert unknown == set(report.reasons)


def test_a_table_fits_100_columns(report: Report) -> None:
    assert max(map(len, as_table.render(report).splitlines())) <= 100


def test_a_table_is_plain_text_unless_colour_is_asked_for(sample_run: Run) -> None:
    report = build_report(sample_run)
    assert "\x1b" not in as_table.render(report)
    assert "\x1b[" in as_table.render(report, color=True)


def test_control_characters_never_reach_a_table(tmp_path: Path, make_run: RunMaker) -> None:
    path = NsysExport().capture().kernel("a\x1b[31m\nb<T>", 1000, 1100).write(tmp_path / "a.sqlite")
    assert "a\ufffd[31m\ufffdb" in as_table.render(build_report(make_run(path)))


def test_markup_in_names_is_text(tmp_path: Path, make_run: RunMaker) -> None:
    export = NsysExport().capture().kernel("[red]evil[/red]<T>", 1000, 1100)
    run = make_run(export.write(tmp_path / "[bold]x.sqlite"), name="[link=x]run")
    text = as_table.render(build_report(run))
    for shown in ("[red]evil[/red]", "[bold]x.sqlite", "[link=x]run"):
        assert shown in text


def test_the_sample_has_its_known_headline(sample_run: Run) -> None:
    report = build_report(sample_run)
    assert report.run == {
        "world_size": 2,
        "ranks_present": [0, 1],
        "ranks_missing": [],
        "ranks_missing_count": 0,
        "nodes": 1,
        "gpus": ["NVIDIA H100 80GB HBM3"],
        "window": "steps",
        "steps": 4,
    }
    assert report.metrics["comm_fraction"] == 4000 / 8200
    assert report.metrics["overlap_ratio"] == 0.5
    assert report.metrics["step_time_ms"] == 1.1  # the slower rank's 1100 us in every step
    assert report.spread["overlap_ratio"] == {"min": 0.4, "min_rank": 0, "max": 0.6, "max_rank": 1}
    text = as_table.render(report)
    assert "48.8 % of the time is communication: 50.0 % of it hidden behind compute" in text
    assert "2 of 2 ranks, 1 host" in text


def test_fewer_than_three_steps_make_the_capture_the_window(
    tmp_path: Path, make_run: RunMaker
) -> None:
    export = NsysExport().capture()
    for step in range(2):
        zero = 1000 * step
        export.range(f"step {step}", zero, zero + 200)
        export.kernel("gemm<float>", zero + 300, zero + 400, launch=zero + 100)
    report = build_report(make_run(export.write(tmp_path / "a.sqlite")))
    assert (report.run["window"], report.run["steps"]) == ("capture", 2)
    assert report.metrics["window_ns"] == 1100
    assert "(fewer than 3 steps on some rank)" in " ".join(as_table.render(report).split())


def test_missing_ranks_are_listed(tmp_path: Path, make_run: RunMaker) -> None:
    export = NsysExport().capture(environment="RANK=2;WORLD_SIZE=4").kernel("g<f>", 1000, 1100)
    report = build_report(make_run(export.write(tmp_path / "a.sqlite")))
    assert report.run["ranks_missing"] == [0, 1, 3]
    assert "1 of 4 ranks (0, 1, 3 missing)" in as_table.render(report)


def test_a_long_list_of_missing_ranks_is_cut(tmp_path: Path, make_run: RunMaker) -> None:
    export = NsysExport().capture(environment="RANK=0;WORLD_SIZE=900000").kernel("g<f>", 1, 2)
    run = build_report(make_run(export.write(tmp_path / "a.sqlite"))).run
    assert run["ranks_missing"] == list(range(1, 1001))
    assert run["ranks_missing_count"] == 899_999


@pytest.mark.parametrize("world", ["1", "100000000"])
def test_an_impossible_world_size_is_unknown(
    tmp_path: Path, make_run: RunMaker, world: str
) -> None:
    export = NsysExport().capture(environment=f"RANK=1;WORLD_SIZE={world}").kernel("g<f>", 1, 2)
    run = build_report(make_run(export.write(tmp_path / "a.sqlite"))).run
    assert (run["world_size"], run["ranks_missing"]) == (None, None)


def test_the_step_time_is_the_lower_median_of_the_slowest_rank(
    tmp_path: Path, make_run: RunMaker
) -> None:
    paths = []
    for rank, lengths in enumerate(((100, 900, 300, 100), (200, 200, 200, 700))):
        export = NsysExport().capture(environment=f"RANK={rank}")
        for k, length in enumerate(lengths):
            zero = 10_000 * k + 1000
            export.range(f"step {k}", zero - 500, zero)
            export.kernel("gemm<f>", zero, zero + length, launch=zero - 100)
        paths.append(export.write(tmp_path / f"{rank}.sqlite"))
    report = build_report(make_run(*paths))
    assert report.metrics["step_time_ms"] == 300 / 1e6  # slowest: 200, 900, 300, 700


def test_ranks_that_the_user_counts_are_missing_too(tmp_path: Path, make_run: RunMaker) -> None:
    report = build_report(make_run(one_rank(tmp_path), nranks=2))
    assert (report.run["world_size"], report.run["ranks_missing"]) == (2, [1])


def test_a_run_without_communication_says_so_and_has_no_overlap(
    tmp_path: Path, make_run: RunMaker
) -> None:
    report = build_report(make_run(one_rank(tmp_path)))
    assert (report.metrics["comm_fraction"], report.metrics["overlap_ratio"]) == (0.0, None)
    assert report.reasons["overlap_ratio"] == "no_comm"
    assert "No communication" in as_table.render(report)


def test_hidden_communication_is_unknown_in_words(tmp_path: Path, make_run: RunMaker) -> None:
    path = NsysExport().capture().graph(1000, 2000).write(tmp_path / "a.sqlite")
    text = as_table.render(build_report(make_run(path)))
    assert "is communication is unknown: CUDA graphs were traced as a whole" in text
    assert "--cuda-graph-trace=node" in text


def test_a_stream_with_both_kinds_is_pointed_out(tmp_path: Path, make_run: RunMaker) -> None:
    export = NsysExport().capture().kernel("gemm<f>", 1000, 1100).kernel(ALL_REDUCE, 1100, 1200)
    text = as_table.render(build_report(make_run(export.write(tmp_path / "a.sqlite"))))
    assert "so they cannot overlap there" in text


def test_long_lists_are_cut_and_say_so(tmp_path: Path, make_run: RunMaker) -> None:
    export = NsysExport().capture()
    for device in range(14):
        export.kernel("gemm<f>", 1000, 1100, device=device, context=device)
    text = as_table.render(build_report(make_run(export.write(tmp_path / "a.sqlite"))))
    assert "... and 2 more ranks: see --format json" in text
