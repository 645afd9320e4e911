"""Every format of reports and comparisons: widths, escaping, and pages that need no network."""

import re
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.conftest import RunMaker
from tests.traces.nsys import NsysExport
from tests.traces.workload import Workload, late
from traceq.commands.rendering import FORMATS, rendered
from traceq.compare.comparison import Comparison, compare_runs
from traceq.gates import judge_comparison, judge_report, parse_gate
from traceq.render.compared.words import labels
from traceq.render.markdown import escape
from traceq.report import Report, build_report
from traceq.runfile import Run

GATES = [parse_gate("exposed_comm_fraction > 1%"), parse_gate("busbw_gbps[all_gather] < 300")]
EVIL = '<script>alert("x")</script>|[a](javascript:b)`*_\x1b[31m\x00'


@pytest.fixture(params=["empty", "one rank", "two ranks", "hidden", "late", "named"])
def report(
    request: pytest.FixtureRequest, tmp_path: Path, make_run: RunMaker, sample_run: Run
) -> Report:
    """A judged report of every kind that a format must survive."""
    export = NsysExport().capture()
    match request.param:
        case "two ranks":
            run = sample_run
        case "late":
            run = make_run(*Workload(ranks=8, delay=late([5])).write_torch(tmp_path))
        case "empty":
            run = make_run(export.kernel("gemm<f>", 1000, 1000).write(tmp_path / "a.sqlite"))
        case "one rank":
            run = make_run(export.kernel("gemm<f>", 1000, 1100).write(tmp_path / "a.sqlite"))
        case "hidden":
            run = make_run(export.graph(1000, 2000).write(tmp_path / "a.sqlite"))
        case _:
            path = export.kernel(EVIL, 1000, 1100).write(tmp_path / "<b>|x.sqlite")
            run = make_run(path, name=EVIL)
    return judge_report(build_report(run), GATES)


@pytest.fixture(params=["two ranks and late", "no steps", "named", "many"])
def comparison(
    request: pytest.FixtureRequest, tmp_path: Path, make_run: RunMaker, sample_run: Run,
    sized_run: Run, grouped_run: Run,
) -> Comparison:  # fmt: skip
    """A judged comparison of every kind that a format must survive."""
    match request.param:
        case "two ranks and late":
            paths = Workload(ranks=8, delay=late([5])).write_torch(tmp_path)
            runs = [sample_run, make_run(*paths, name="a run with quite a long name of its own")]
        case "no steps":
            export = NsysExport().capture().kernel("gemm<f>", 1000, 1100)
            runs = [make_run(export.write(tmp_path / "none.sqlite")), sample_run]
        case "named":
            paths = Workload(ranks=2, steps=3).write_torch(tmp_path)
            runs = [make_run(*paths, name=EVIL), sample_run]
        case _:
            runs = [sample_run, sized_run, grouped_run, sample_run, sized_run, grouped_run]
    return judge_comparison(compare_runs(runs), GATES)


def text_of(html: str) -> str:
    """The text that a browser would show of a page."""
    parts: list[str] = []

    class Reader(HTMLParser):
        def handle_data(self, data: str) -> None:
            parts.append(data)

    Reader().feed(html)
    return "".join(parts)


def shown(built: Report | Comparison, form: str) -> str:
    return rendered(built, form, to_file=True)


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_renders_every_report(form: str, report: Report) -> None:
    text = shown(report, form)
    assert text.endswith("\n")
    if report.name != EVIL:
        assert report.name in text


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_renders_every_comparison(form: str, comparison: Comparison) -> None:
    assert shown(comparison, form).endswith("\n")


def too_wide(text: str) -> list[str]:
    """The lines of Markdown that take more than 80 columns once escapes are read."""
    return [line for line in text.splitlines() if len(unescape(line).replace("\\", "")) > 80]


def test_markdown_of_a_report_has_80_columns(report: Report) -> None:
    assert too_wide(shown(report, "markdown")) == []


def test_markdown_of_a_comparison_has_80_columns(comparison: Comparison) -> None:
    assert too_wide(shown(comparison, "markdown")) == []


def test_a_table_has_100_columns(comparison: Comparison) -> None:
    assert max(map(len, shown(comparison, "table").splitlines())) <= 100


def test_a_table_breaks_texts_and_cuts_no_number(tmp_path: Path, make_run: RunMaker) -> None:
    report = build_report(make_run(*Workload(ranks=8, delay=late([5])).write_torch(tmp_path)))
    counts = {"times_last": 1_234_567, "collectives": 1_234_567, "p_value": 1e-30}
    rows = [row | counts for row in report.stragglers]
    text = shown(replace(report, stragglers=rows), "table")
    assert text.count("1,234,567 of 1,234,567") == len(rows)
    assert text.count("<0.001") == len(rows)
    assert "…" not in text


def test_names_are_text_in_every_format(tmp_path: Path, make_run: RunMaker) -> None:
    path = NsysExport().capture().kernel("g<f>", 1000, 1100).write(tmp_path / "a.sqlite")
    run = make_run(path, name=EVIL)
    built = (build_report(run), compare_runs([run, run]))
    for each in built:
        page = shown(each, "html")
        assert "<script" not in page
        assert '<script>alert("x")</script>|[a](javascript:b)`*_\ufffd[31m\ufffd' in text_of(page)
        note = shown(each, "markdown")
        assert "<script" not in note
        assert "[a](" not in note
        assert "\x1b" not in note + shown(each, "table") + page
        assert "\x00" not in shown(each, "junit") + page


def test_markdown_escapes_what_would_be_read_as_markup() -> None:
    assert escape("a|b <i> `c` *d* _e_ all_reduce #1 [x](y)") == (
        r"a\|b &lt;i&gt; \`c\` \*d\* \_e\_ all_reduce \#1 \[x\](y)"
    )


def test_long_names_are_told_apart(comparison: Comparison) -> None:
    names = labels(comparison, 14)
    assert len(set(names)) == len(comparison.runs)
    assert max(map(len, names)) <= 14


ELSEWHERE = re.compile(r"<(script|link|img|iframe)|\bsrc=|\bhref=|https?://|@import|url\(")


def without_namespace(page: str) -> str:
    return page.replace("http://www.w3.org/2000/svg", "")


def test_the_page_of_a_report_names_no_other_place(report: Report) -> None:
    assert not ELSEWHERE.search(without_namespace(shown(report, "html")))


def test_the_page_of_a_comparison_names_no_other_place(comparison: Comparison) -> None:
    assert not ELSEWHERE.search(without_namespace(shown(comparison, "html")))


def test_a_browser_opens_the_pages_and_asks_for_nothing_else(
    browser: Browser, tmp_path: Path, sample_run: Run, sized_run: Run
) -> None:
    pages = {
        "report": shown(build_report(sized_run), "html"),
        "comparison": shown(compare_runs([sample_run, sized_run]), "html"),
    }
    for name, text in pages.items():
        path = tmp_path / f"{name}.html"
        path.write_text(text)
        page = browser.new_page()
        asked: list[str] = []
        told: list[Any] = []
        page.on("request", lambda request, asked=asked: asked.append(request.url))
        page.on("console", lambda said, told=told: told.append(said))
        page.on("pageerror", lambda said, told=told: told.append(said))
        page.goto(path.as_uri())
        assert asked == [path.as_uri()]
        assert told == []
        assert page.locator("h1").inner_text().startswith(f"traceq {name[:6]}")
        assert page.locator("svg").count() >= 2
        widest = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        assert widest <= 0
        page.close()
