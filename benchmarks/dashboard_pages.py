"""How fast the dashboard answers on a run of 8 ranks with 1 million kernels each, in Chromium.

Usage: python benchmarks/dashboard_pages.py [RANKS KERNELS]

Cold is the first look of a fresh server at a page, warm the second; a move of the timeline is over
when the finer detail is drawn. Needs chromium and `pip install playwright`.
"""

import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, sync_playwright
from stored_report import KERNELS, NAME, RANKS, store_large

VIEWS = ("runs", "overview", "ranks", "collectives", "timeline", "compare", "sql")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
MOVES = ("Zoom in (W or +)", "Zoom in (W or +)", "Later (D or right)", "Zoom in (W or +)",
         "Earlier (A or left)", "Zoom out (S or -)")  # fmt: skip
DRAWN = """() => {
    const app = document.querySelector('[data-testid=stApp]')
    const all = (what, drawn) => [...app.querySelectorAll(what)].every(drawn)
    return app.dataset.testScriptState === 'notRunning'
        && !app.querySelector('[data-testid=stSkeleton]')
        && all('[data-testid=stVegaLiteChart]', chart => chart.querySelector('canvas, svg'))
}"""


@contextmanager
def served(store: Path) -> Iterator[str]:
    """Yields: the address of a fresh dashboard on a store."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["dashboard", "--store", str(store), "--port", str(port)]
    process = subprocess.Popen([sys.executable, "-m", "traceq", *words], stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        while process.poll() is None:
            try:
                urllib.request.urlopen(f"{url}/_stcore/health", timeout=1).close()
                break
            except OSError:
                time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait(20)


def opened_s(page: Page, url: str) -> float:
    """Returns: how long a page takes until it is drawn whole [s]."""
    begin = time.perf_counter()
    page.goto(url)
    page.locator("h2").first.wait_for()
    page.wait_for_function(DRAWN)
    if "/timeline" in url:
        page.locator(".timeline[data-drawn]").wait_for()
    return time.perf_counter() - begin


def moves_ms(page: Page) -> list[int]:
    """Returns: how long each move of the timeline took to be answered [ms]."""
    timeline = page.locator(".timeline")
    page.wait_for_function("document.querySelector('[data-testid=stApp]') !== null")
    timeline.wait_for()
    page.wait_for_timeout(1000)
    answers = []
    for label in MOVES:
        timeline.evaluate("root => delete root.dataset.answerMs")
        page.get_by_title(label).click()
        while (told := timeline.get_attribute("data-answer-ms")) is None:
            page.wait_for_timeout(5)
        answers.append(int(told))
    return answers


def main() -> None:
    """Makes the run, then opens every page on a server of its own."""
    ranks, kernels = (int(n) for n in sys.argv[1:] or (RANKS, KERNELS))
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        store_large(Path(name), ranks, kernels)
        chromium = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=list(FLAGS)
        )
        print(f"{ranks} ranks with {kernels:,} kernels each")
        print(f"{'page':<12} {'cold s':>7} {'warm s':>7}")
        for view in VIEWS:
            with served(Path(name) / "store") as url:
                page = chromium.new_page(viewport={"width": 1280, "height": 900})
                cold, warm = (opened_s(page, f"{url}/{view}?run={NAME}") for _ in range(2))
                print(f"{view:<12} {cold:>7.2f} {warm:>7.2f}")
                if view == "timeline":
                    print(f"{'':<12} answers of the timeline: {moves_ms(page)} ms")
                page.close()
        chromium.close()


if __name__ == "__main__":
    main()
