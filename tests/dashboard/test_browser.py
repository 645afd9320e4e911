"""The dashboard as a person uses it: a real server, a real Chromium."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.dashboard.conftest import Server, eight_sources

SHOTS = Path(__file__).parents[2] / "build" / "screenshots"
VIEWS = ("runs", "overview", "ranks", "collectives", "timeline", "compare", "sql")


def reported(*sources: object) -> dict:
    """What the command line says of the same sources."""
    done = subprocess.run(
        [sys.executable, "-m", "traceq", "report", *map(str, sources), "--format", "json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return json.loads(done.stdout)


def settled(page: Page) -> None:
    """Waits until the page is drawn whole."""
    page.get_by_test_id("stApp").wait_for()
    page.locator("h2").first.wait_for()
    page.wait_for_function(
        "document.querySelector('[data-testid=stApp]')?.dataset.testScriptState === 'notRunning'"
    )


def cells(page: Page, table: int) -> list[dict[str, str]]:
    """The rows of a table of the page, by column."""
    found = page.get_by_test_id("stTable").nth(table)
    found.wait_for()
    names = found.locator("thead th").all_inner_texts()
    rows = found.locator("tbody tr").all()
    return [dict(zip(names, row.locator("td, th").all_inner_texts(), strict=True)) for row in rows]


def upload(page: Page, server: Server, files: list[Path], name: str) -> None:
    """Uploads files and asks for their reading."""
    page.goto(f"{server.url}/runs")
    settled(page)
    page.locator("input[type=file]").set_input_files(files)
    page.get_by_role("button", name=f"Read {len(files)} files").wait_for()
    page.get_by_label("Name of the run").fill(name)
    page.get_by_role("button", name=f"Read {len(files)} files").click()


def left_in(store: Path) -> list[str]:
    """The files that uploads left in a store."""
    return [path.name for path in (store / ".inbox").rglob("*") if path.is_file()]


def test_eight_files_are_uploaded_read_and_told_as_the_command_line_does(
    page: Page, fresh: Server, tmp_path: Path
) -> None:
    files = eight_sources(tmp_path / "eight")
    upload(page, fresh, files, "slow run")
    page.get_by_text("Read: slow run").wait_for(timeout=60_000)
    page.get_by_role("link", name="Open its overview").click()
    expect(page.get_by_text("of the time is communication").first).to_be_visible()
    assert "run=slow+run" in page.url or "run=slow%20run" in page.url
    told = reported(*files)

    page.get_by_role("link", name="Ranks").click()
    expect(page.get_by_text("Rank 5 is a straggler")).to_be_visible()
    (late,) = [row for row in told["stragglers"] if row["straggler"]]
    shown = cells(page, 0)[0]
    assert (shown["rank"], shown["verdict"]) == (str(late["rank"]), "straggler")
    assert shown["late"] == f"{late['lateness_ns'] / 1e6:.1f} ms"
    assert shown["of window"] == f"{100 * late['straggler_fraction']:.1f} %"
    assert shown["cause"] == late["cause"]

    page.get_by_role("link", name="Collectives").click()
    page.get_by_text("Kinds of communication").wait_for()
    rates = {row["operation"]: row["busbw [GB/s]"] for row in cells(page, 0)}
    assert rates == {row["op"]: f"{row['busbw_gbps']:.4g}" for row in told["collectives"]}
    assert [name for name in left_in(fresh.store) if name != "lock"] == []

    upload(page, fresh, files, "again")
    page.get_by_text("These files are in the store already: slow run").wait_for(timeout=60_000)


def test_a_wrong_file_is_one_clear_line(page: Page, fresh: Server, tmp_path: Path) -> None:
    wrong = tmp_path / "notes <b>x<b>.txt"
    wrong.write_text("nothing of a trace")
    upload(page, fresh, [wrong], "wrong")
    error = page.get_by_test_id("stAlertContentError")
    error.wait_for(timeout=60_000)
    done = subprocess.run(
        [sys.executable, "-m", "traceq", "report", str(wrong)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert error.inner_text().strip() == done.stderr.strip().removeprefix("traceq: ")
    assert [name for name in left_in(fresh.store) if name != "lock"] == []


def test_a_page_that_was_left_goes_on_with_its_upload(
    page: Page, fresh: Server, tmp_path: Path
) -> None:
    files = eight_sources(tmp_path / "eight")[:2]
    page.goto(f"{fresh.url}/runs")
    settled(page)
    for count, file in enumerate(files, 1):
        page.locator("input[type=file]").set_input_files([file])
        page.get_by_role("button", name=f"Read {count} files").wait_for()
        page.get_by_role("link", name="Overview").click()
        page.get_by_text("The store is empty").first.wait_for()
        page.get_by_role("link", name="Runs").click()
        page.get_by_role("button", name=f"Read {count} files").wait_for()
    shown = page.locator(".files li").all_inner_texts()
    assert [line.split()[0] for line in shown] == [file.name for file in files]
    assert set(left_in(fresh.store)) == {"lock", *(file.name for file in files)}


def test_the_timeline_zooms_to_one_kernel_and_names_it(
    page: Page, server: Server, record_property: Callable[[str, object], None]
) -> None:
    page.goto(f"{server.url}/timeline?run=eight")
    settled(page)
    canvas = page.locator(".timeline canvas")
    timeline = page.locator(".timeline")
    expect(timeline).to_have_attribute("data-drawn", re.compile(r"[1-9]\d*"))
    answers = []
    for label in ("Zoom in (W or +)", "Later (D or right)", "Zoom in (W or +)"):
        timeline.evaluate("root => delete root.dataset.answerMs")
        page.get_by_title(label).click()
        expect(timeline).to_have_attribute("data-answer-ms", re.compile(r"\d+"))
        answers.append(int(timeline.get_attribute("data-answer-ms")))
    record_property("timeline_answers_ms", answers)  # read in the report of the run, not judged
    page.get_by_title("Whole run (0)").click()
    page.wait_for_timeout(600)
    box = canvas.bounding_box()
    assert box is not None
    # Rank 0 computes first: 20 of its 561 ms, on the topmost stream.
    canvas.dblclick(position={"x": 118 + (box["width"] - 118) * 0.015, "y": 30})
    expect(page.locator(".timeline .detail")).to_contain_text("gemm")
    expect(page.locator(".timeline .detail")).to_contain_text("20 ms from 0 ns (compute)")
    low, high = map(int, timeline.get_attribute("data-view").split(","))
    assert high - low == pytest.approx(30_000_000, rel=0.01)


def test_an_operation_is_chosen_and_filled_without_a_mouse(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/timeline?run=eight")
    settled(page)
    canvas, timeline = page.locator(".timeline canvas"), page.locator(".timeline")
    detail = page.locator(".timeline .detail")
    expect(timeline).to_have_attribute("data-drawn", re.compile(r"[1-9]\d*"))
    canvas.focus()
    page.keyboard.press("n")
    expect(detail).to_contain_text("20 ms from 0 ns (compute)")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(detail).to_contain_text("all_reduce, 256.00 MiB")
    expect(timeline).to_have_attribute("data-linked", "8")
    page.keyboard.press("n")
    expect(detail).to_contain_text("all_gather")
    page.keyboard.press("p")
    page.keyboard.press("Enter")
    page.wait_for_timeout(600)
    low, high = map(int, timeline.get_attribute("data-view").split(","))
    assert high - low == pytest.approx(1.5 * 18_000_000, rel=0.01)


def test_a_collective_is_linked_across_all_ranks_with_its_waiting(
    page: Page, server: Server
) -> None:
    page.goto(f"{server.url}/timeline?run=eight")
    settled(page)
    canvas, timeline = page.locator(".timeline canvas"), page.locator(".timeline")
    expect(timeline).to_have_attribute("data-drawn", re.compile(r"[1-9]\d*"))
    box = canvas.bounding_box()
    assert box is not None
    # The first all_reduce of rank 0 runs from 20.02 to 38.02 ms, on its third stream.
    canvas.click(position={"x": 118 + (box["width"] - 118) * 30 / 561.2, "y": 22 + 2 * 20 + 8})
    expect(page.locator(".timeline .detail")).to_contain_text("waited 8 ms")
    expect(page.locator(".timeline .detail")).to_contain_text("all_reduce, 256.00 MiB")
    expect(timeline).to_have_attribute("data-linked", "8")


def test_two_runs_are_compared_and_the_link_says_which(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/compare?run=four&with=eight")
    settled(page)
    expect(page.get_by_text("eight against four")).to_be_visible()
    assert [row["run"] for row in cells(page, 0)] == ["four", "eight"]


def test_a_deep_link_opens_page_and_run(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/collectives?run=four")
    settled(page)
    expect(page.get_by_role("heading", name="Collectives").first).to_be_visible()
    expect(page.get_by_text("4 of 4 ranks")).to_be_visible()
    page.get_by_role("link", name="Overview").click()
    page.get_by_text("Where each rank's time goes").wait_for()
    assert "run=four" in page.url


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_is_drawn_and_no_request_leaves_the_machine(
    browser: Browser, server: Server, theme: str
) -> None:
    SHOTS.mkdir(parents=True, exist_ok=True)
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme=theme)
    page = context.new_page()
    asked: list[str] = []
    failed: list[str] = []
    context.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: failed.append(str(error)))
    for view in VIEWS:
        page.goto(f"{server.url}/{view}?run=eight" + ("&with=four" if view == "compare" else ""))
        settled(page)
        page.wait_for_timeout(1200)
        assert page.get_by_test_id("stException").all_inner_texts() == [], view
        charts = page.get_by_test_id("stVegaLiteChart").count()
        assert charts == {"overview": 2, "ranks": 2, "collectives": 1, "compare": 2}.get(view, 0)
        height = page.evaluate("document.querySelector('[data-testid=stMain]').scrollHeight")
        page.set_viewport_size({"width": 1280, "height": min(4000, max(900, height + 20))})
        page.wait_for_timeout(500)
        page.screenshot(path=SHOTS / f"{view}_{theme}.png")
        page.set_viewport_size({"width": 1280, "height": 900})
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= 1280, view
    hosts = {url.split("/")[2] for url in asked if not url.startswith(("data:", "blob:"))}
    assert hosts == {server.url.removeprefix("http://")}
    assert failed == []
    context.close()


def test_hostile_names_are_text_on_every_page(page: Page, server: Server) -> None:
    asked: list[str] = []
    dialogs: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    run = "%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E%20!%5Bx%5D(http%3A__evil.example_x.png)"
    for view in VIEWS:
        page.goto(f"{server.url}/{view}?run={run}" + ("&with=four" if view == "compare" else ""))
        settled(page)
        expect(page.get_by_text("<img src=x onerror=alert(1)>").first).to_be_visible()
        page.wait_for_timeout(700)
        assert page.get_by_test_id("stException").all_inner_texts() == []
        assert page.locator("img[src='x']").count() == 0
    assert dialogs == []
    hosts = {url.split("/")[2] for url in asked if not url.startswith(("data:", "blob:"))}
    assert hosts == {server.url.removeprefix("http://")}
