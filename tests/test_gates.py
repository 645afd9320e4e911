"""Gates: their language, how they fail closed, and how every format shows their verdicts."""

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import xmlschema

from tests.commands import traceq
from tests.conftest import RunMaker
from tests.traces.nsys import NsysExport
from tests.traces.workload import Workload, late
from traceq.commands.rendering import FORMATS, rendered
from traceq.compare.comparison import Comparison, compare_runs
from traceq.errors import ConfigError
from traceq.gates import METRICS, exit_status, judge_comparison, judge_report, parse_gate
from traceq.ingest.pipeline import ingest_run
from traceq.render.gates import WORDS
from traceq.report import Report, build_report
from traceq.runfile import Run, open_run

OF_REPORT = [name for name, metric in METRICS.items() if not metric.compared]
OF_COMPARISON = [name for name, metric in METRICS.items() if metric.compared]
ACROSS = [name for name, metric in METRICS.items() if metric.across]
OUTCOMES = {True: 0, False: 1, None: 2}
JUNIT = xmlschema.XMLSchema(str(Path(__file__).with_name("junit.xsd")))


def about(metric: str) -> str:
    return f"{metric}[all_reduce]" if METRICS[metric].per_op else metric


@pytest.fixture(scope="module")
def late_report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Four ranks of which rank 3 is late, every metric known."""
    folder = tmp_path_factory.mktemp("late")
    return build_report(kept(Workload(ranks=4, delay=late([3])).write_torch(folder)))


@pytest.fixture(scope="module")
def hidden_report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """One rank whose graphs hide everything but how long it took, of an incomplete source."""
    path = tmp_path_factory.mktemp("hidden") / "hidden.sqlite"
    export = NsysExport().capture().graph(1000, 2000)
    export.row("DIAGNOSTIC_EVENT", severity=3, text="9 events dropped")
    return build_report(kept([export.write(path)]))


@pytest.fixture(scope="module")
def slower(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Run]:
    """Runs by their steps; of 3 steps, and 10 ms slower of 4 and of 2 steps."""
    runs = {}
    for steps in (3, 4, 2):
        more = {} if steps == 3 else {"delay": late([0, 1], 10_000_000)}
        folder = tmp_path_factory.mktemp(f"{steps} steps")
        work = Workload(ranks=2, steps=steps, **more)
        runs[steps] = kept(work.write_torch(folder), name=f"{steps} steps")
    return runs


def kept(paths: list[Path], name: str | None = None) -> Run:
    ingest_run(paths, paths[0].with_suffix(".duckdb"), name=name)
    return open_run(paths[0].with_suffix(".duckdb"))


def value_of(report: Report, metric: str) -> float:
    if METRICS[metric].per_op:
        (row,) = [row for row in report.collectives if row["op"] == "all_reduce"]
        return float(row[metric])
    return float(report.metrics[metric])


def shown(built: Report | Comparison, form: str) -> list[bool | None]:
    """The verdicts that a format shows, read back from its text."""
    text = rendered(built, form, to_file=True)
    if form == "json":
        return [row["passed"] for row in json.loads(text)["gates"]]
    if form == "junit":
        JUNIT.validate(text)
        cases = list(ET.fromstring(text).iter("testcase"))[: len(built.gates)]
        return [
            None if case.find("error") is not None else case.find("failure") is None
            for case in cases
        ]
    if form == "markdown":
        marks = {"✅": True, "❌": False, "⚠️": None}
        return [marks[mark] for mark in re.findall(r"^- (✅|❌|⚠️) ", text, re.MULTILINE)]
    words = {word: passed for passed, word in WORDS.items()}
    begin = r">({})</span>" if form == "html" else r"^({})\b"
    return [words[word] for word in re.findall(begin.format("|".join(words)), text, re.MULTILINE)]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("metric", OF_REPORT)
class TestEveryMetric:
    """One gate that passes, one that fails, and one that cannot be judged, in every format."""

    def judged(self, report: Report, form: str, expr: str) -> tuple[int, list[bool | None]]:
        judged = judge_report(report, [parse_gate(expr)])
        return exit_status(judged.gates), shown(judged, form)

    def test_it_passes_and_fails_around_its_value(
        self, late_report: Report, metric: str, form: str
    ) -> None:
        value = value_of(late_report, metric)
        assert self.judged(late_report, form, f"{about(metric)} > {value!r}") == (0, [True])
        assert self.judged(late_report, form, f"{about(metric)} >= {value!r}") == (1, [False])

    def test_it_is_not_judged_where_it_is_unknown(
        self, hidden_report: Report, metric: str, form: str
    ) -> None:
        assert self.judged(hidden_report, form, f"{about(metric)} > 1e300") == (2, [None])


class TestComparison:
    """Gates on the difference between runs."""

    @pytest.mark.parametrize("form", FORMATS)
    @pytest.mark.parametrize("metric", OF_COMPARISON)
    def test_every_metric_passes_fails_and_is_not_judged(
        self, slower: dict[int, Run], metric: str, form: str
    ) -> None:
        known, unknown = (compare_runs([slower[3], slower[steps]]) for steps in (4, 2))
        value = {
            "step_time_regression": 10 / 48.1,
            "weak_efficiency": 48.1 / 58.1,
            "strong_efficiency": 48.1 / 58.1,
        }[metric]
        for compared, limit, passed in (
            (known, value + 1e-9, True), (known, value - 1e-9, False), (unknown, 1e300, None),
        ):  # fmt: skip
            judged = judge_comparison(compared, [parse_gate(f"{metric} > {limit!r}")])
            assert (exit_status(judged.gates), shown(judged, form)) == (OUTCOMES[passed], [passed])
        assert [row["reason"] for row in judged.gates] == ["few_steps"]

    def test_every_run_but_the_base_is_judged(self, slower: dict[int, Run]) -> None:
        compared = compare_runs([slower[3], slower[4], slower[2]])
        judged = judge_comparison(compared, [parse_gate("comm_fraction > 99%")])
        assert [(row["run"], row["passed"]) for row in judged.gates] == [
            ("4 steps", True), ("2 steps", True),
        ]  # fmt: skip

    def test_noise_above_the_limit_is_not_judged(self, tmp_path: Path, make_run: RunMaker) -> None:
        made = []
        for number in range(2):
            folder = tmp_path / str(number)
            folder.mkdir()
            work = Workload(
                ranks=2, steps=9,
                transfer=lambda s, p, n=number: p.transfer_ns + 2_000_000 * (s % 4) + 100_000 * n,
            )  # fmt: skip
            made.append(make_run(*work.write_torch(folder)))
        compared = compare_runs(made)
        for expr, reason in (
            ("step_time_regression > 5%", "inconclusive"),
            ("step_time_regression > -5%", "inconclusive"),
            ("step_time_regression > 60%", None),  # far beyond the noise
        ):
            (row,) = judge_comparison(compared, [parse_gate(expr)]).gates
            assert (row["reason"], row["passed"]) == (reason, None if reason else True)

    def test_a_report_has_nothing_to_compare_with(self, late_report: Report) -> None:
        (row,) = judge_report(late_report, [parse_gate("step_time_regression > 5%")]).gates
        assert (row["passed"], row["reason"]) == (None, "nothing_to_compare")


@pytest.mark.parametrize("metric", ACROSS)
class TestAcrossRanks:
    """What needs every rank is never judged on less."""

    def reason(self, report: Report, metric: str, *, incomplete_ok: bool = False) -> Any:
        gates = [parse_gate(f"{about(metric)} {sign} 0") for sign in ("<", ">=")]
        rows = judge_report(report, gates, incomplete_ok=incomplete_ok).gates
        assert {row["passed"] for row in rows} == {None}
        (reason,) = {row["reason"] for row in rows}
        return reason

    def test_a_single_rank(self, tmp_path: Path, make_run: RunMaker, metric: str) -> None:
        run = make_run(*Workload(ranks=4).write_torch(tmp_path, only=[0]))
        assert self.reason(build_report(run), metric) == "single_rank"

    def test_ranks_that_are_missing(self, tmp_path: Path, make_run: RunMaker, metric: str) -> None:
        run = make_run(*Workload(ranks=4).write_torch(tmp_path, only=[0, 1, 2]))
        assert self.reason(build_report(run), metric) == "partial_ranks"

    def test_an_incomplete_source_even_when_allowed(
        self, tmp_path: Path, make_run: RunMaker, metric: str
    ) -> None:
        paths = Workload(ranks=2, steps=4).write_torch(tmp_path)
        paths[1].write_text(paths[1].read_text()[:-2000])
        report = build_report(make_run(*paths))
        assert self.reason(report, metric) == "incomplete"
        assert self.reason(report, metric, incomplete_ok=True) == "incomplete"


class TestChosenOperation:
    """Which of several sizes of an operation a gate is about."""

    def test_the_size_that_moves_most_or_the_one_that_is_named(self, sized_run: Run) -> None:
        report = build_report(sized_run)
        rates = {row["bucket_bytes"]: row["busbw_gbps"] for row in report.collectives}
        for expr, size in (
            ("busbw_gbps[all_reduce] < 1", 16 << 20),
            ("busbw_gbps[all_reduce, 1MiB] < 1", 1 << 20),
            ("busbw_gbps[all_reduce, 5 MiB] < 1", 4 << 20),
        ):
            (row,) = judge_report(report, [parse_gate(expr)]).gates
            assert row["value"] == rates[size]

    @pytest.mark.parametrize(
        "expr", ["busbw_gbps[all_gather] < 1", "busbw_gbps[all_reduce, 8GiB] < 1"]
    )
    def test_what_did_not_run_is_not_judged(self, sized_run: Run, expr: str) -> None:
        (row,) = judge_report(build_report(sized_run), [parse_gate(expr)]).gates
        assert (row["passed"], row["reason"]) == (None, "op_absent")


class TestLanguage:
    """What can be written, and what a mistake is told."""

    @pytest.mark.parametrize(
        ("expr", "limit"),
        [
            ("exposed_comm_fraction > 20%", 0.2),
            ("exposed_comm_fraction>0.2", 0.2),
            ("  overlap_ratio   <=   .5 ", 0.5),
            ("step_time_ms > 9.5e2", 950.0),
            ("step_time_regression < -5 %", -0.05),
        ],
    )
    def test_limits(self, expr: str, limit: float) -> None:
        assert parse_gate(expr).limit == pytest.approx(limit)

    @pytest.mark.parametrize(
        ("expr", "message"),
        [
            ("overlap_ratoi < 1", "overlap_ratoi: no such metric; did you mean overlap_ratio?"),
            ("zzz < 1", "zzz: no such metric; there are: window_ns, compute_ns"),
            ("busbw_gbps < 300", "told by operation: write busbw_gbps[all_reduce]"),
            ("busbw_gbps[allreduce] < 1", "no such operation; did you mean all_reduce?"),
            ("comm_fraction[all_reduce] < 1", "is of the whole run: write it without"),
            ("step_time_ms > 5%", "is no fraction, so its limit is not in percent"),
            ("comm_fraction = 5%", "not a gate: write METRIC OP VALUE"),
            ("comm_fraction > five", "not a gate"),
            ("comm_fraction > 1 or 1 > 0", "not a gate"),
            ("", "not a gate"),
            ("busbw_gbps[all_reduce, 64XB] < 1", "not a gate"),
            ("busbw_gbps[all_reduce, 0MiB] < 1", "not a size"),
            ("busbw_gbps[all_reduce, 64MB] < 1", "64MB: not a size: write it in B, KiB, MiB"),
            ("busbw_gbps[all_reduce, 1.2.3MiB] < 1", "not a size"),
        ],
    )
    def test_mistakes(self, expr: str, message: str) -> None:
        with pytest.raises(ConfigError, match=re.escape(message)):
            parse_gate(expr)


class TestCommand:
    """Exit statuses, stderr, and gates from the configuration file."""

    @pytest.mark.parametrize("form", FORMATS)
    @pytest.mark.parametrize(
        ("expr", "status", "told"),
        [
            ("exposed_comm_fraction > 25%", 0, ""),
            (
                "exposed_comm_fraction > 20%", 1,
                "traceq: gate failed: exposed_comm_fraction > 20%: 24.4 %\n",
            ),
            (
                "busbw_gbps[all_gather] < 300", 2,
                (
                    "traceq: gate not judged: busbw_gbps[all_gather] < 300: no such operation, or "
                    "none of that size, ran\n"
                ),
            ),
        ],
    )  # fmt: skip
    def test_exit_status_in_every_format(
        self, sample_folder: Path, form: str, expr: str, status: int, told: str
    ) -> None:
        done = traceq("report", sample_folder, "--format", form, "--fail-on", expr)
        assert (done.returncode, done.stderr) == (status, told)

    def test_a_failed_gate_counts_more_than_one_that_is_not_judged(
        self, sample_folder: Path
    ) -> None:
        gates = ("--fail-on", "step_time_regression > 1", "--fail-on", "comm_fraction > 1%")
        assert traceq("report", sample_folder, *gates).returncode == 1

    def test_gates_of_the_configuration_file_count_too(
        self, sample_folder: Path, tmp_path: Path
    ) -> None:
        config = tmp_path / "traceq.toml"
        config.write_text('[gates]\nfail_on = ["exposed_comm_fraction > 20%"]\n')
        done = traceq("report", sample_folder, "--config", config, "--format", "json")
        assert done.returncode == 1
        assert [row["expr"] for row in json.loads(done.stdout)["gates"]] == [
            "exposed_comm_fraction > 20%"
        ]

    @pytest.mark.parametrize(
        "text", ["[gates]\nfail_on = 3", "[gates]\nfail = []", "gates = 1", "[gates]\nfail_on=[1]"]
    )
    def test_a_wrong_section_is_told(self, sample_folder: Path, tmp_path: Path, text: str) -> None:
        config = tmp_path / "traceq.toml"
        config.write_text(text)
        done = traceq("report", sample_folder, "--config", config)
        assert done.returncode == 2
        assert 'traceq.toml: [gates] must have: fail_on = ["METRIC OP VALUE", ...]' in done.stderr

    def test_a_mistake_is_told_before_anything_is_read(self) -> None:
        done = traceq("report", "/nowhere", "--fail-on", "comm_fractoin > 1")
        assert done.returncode == 2
        assert done.stderr == "traceq: comm_fractoin: no such metric; did you mean comm_fraction?\n"

    def test_an_incomplete_source_passes_no_gate_unless_allowed(self, tmp_path: Path) -> None:
        export = NsysExport().capture().kernel("gemm<f>", 1000, 1100)
        export.row("DIAGNOSTIC_EVENT", severity=3, text="9 events dropped")
        path = export.write(tmp_path / "a.sqlite")
        gate = ("--fail-on", "comm_fraction > 50%")
        done = traceq("report", path, *gate)
        assert done.returncode == 2
        assert "gate not judged: comm_fraction > 50%: a source is incomplete" in done.stderr
        assert traceq("report", path, *gate, "--allow-incomplete").returncode == 0

    def test_compare_judges_runs_read_from_sources(
        self, sample_folder: Path, tmp_path: Path
    ) -> None:
        saved = tmp_path / "base.duckdb"
        assert traceq("report", sample_folder, "--save", saved).returncode == 0
        done = traceq(
            "compare", saved, sample_folder, "--fail-on", "step_time_regression > 5%",
            "--format", "json",
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        (row,) = json.loads(done.stdout)["gates"]
        assert (row["value"], row["passed"]) == (0.0, True)

    def test_compare_needs_two(self, sample_folder: Path) -> None:
        done = traceq("compare", sample_folder)
        assert done.returncode == 2
        assert "name two or more" in done.stderr
