"""Fixtures that every test may use."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.postgres import Postgres, find_binaries, running
from tests.storing import Place
from tests.traces import sample
from tests.traces.workload import MS, Phase, Workload
from traceq.config import ReadOptions
from traceq.ingest.pipeline import ingest_run
from traceq.runfile import Run, open_run

RunMaker = Callable[..., Run]
_QUIETLY = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The folder of real sources with right answers."""
    folder = os.environ.get("TRACEQ_CORPUS")
    if not folder:
        pytest.skip("TRACEQ_CORPUS is not set, so there are no real sources to test on")
    path = Path(folder)
    assert (path / "oracle.json").exists(), f"TRACEQ_CORPUS names no corpus: {path}"
    return path


@pytest.fixture(scope="session", autouse=True)
def _no_store_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing here may look into the store of who runs the tests; there is none unless made."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRACEQ_STORE", str(tmp_path_factory.mktemp("no") / "store"))
        patch.delenv("TRACEQ_CATALOG", raising=False)
        yield


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL server."""
    binaries = find_binaries()
    if binaries is None:
        assert not os.environ.get("CI_REQUIRE_POSTGRES"), "PostgreSQL is not installed"
        pytest.skip("PostgreSQL is not installed, so there is no server to test on")
    with running(binaries) as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Where a store may be that is not there yet, with each kind of catalog."""
    lite = request.param == "sqlite"
    url = None if lite else request.getfixturevalue("postgres").new_database()
    return Place(tmp_path / "store", url)


@pytest.fixture
def make_run(tmp_path: Path) -> Iterator[RunMaker]:
    """Reads sources into a run file of their own, and opens it."""
    with ExitStack() as stack:
        count = 0

        def make(*sources: Path, name: str | None = None, **options: Any) -> Run:
            nonlocal count
            count += 1
            target = tmp_path / f"run{count}.duckdb"
            ingest_run(sources, target, options=ReadOptions(**options), name=name)
            return stack.enter_context(open_run(target))

        yield make


@pytest.fixture(scope="session")
def sample_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The two-rank sample, freshly built."""
    folder = tmp_path_factory.mktemp("two_ranks")
    sample.write(folder)
    return folder


@pytest.fixture(scope="session")
def sized_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Two ranks whose all_reduces are of three sizes, with 5 us a step and 100 GB/s."""
    folder = tmp_path_factory.mktemp("sized")
    phases = [Phase("all_reduce", 4**k << 20, 10_000 + (4**k << 20) // 100) for k in range(3)]
    sources = Workload(ranks=2, per_node=2, steps=3, phases=phases).write_torch(folder)
    ingest_run(sources, folder / "run.duckdb")
    with open_run(folder / "run.duckdb") as run:
        yield run


@pytest.fixture(scope="session")
def grouped_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Six ranks in pairs, one pair of which has a slow link."""
    folder = tmp_path_factory.mktemp("grouped")
    pairs = {"tp": [[0, 1], [2, 3], [4, 5]]}
    work = Workload(
        ranks=6, per_node=2, steps=3, phases=[Phase("all_reduce", 1 << 24, 2 * MS, group="tp")],
        groups=pairs, slow=lambda members: 3 if 2 in members else 1,
    )  # fmt: skip
    ingest_run(work.write_torch(folder), folder / "run.duckdb")
    with open_run(folder / "run.duckdb") as run:
        yield run


@pytest.fixture(scope="session")
def sample_run(sample_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """The two-rank sample as a run file."""
    target = tmp_path_factory.mktemp("run") / "sample.duckdb"
    ingest_run([sample_folder], target)
    with open_run(target) as run:
        yield run


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A real Chromium, which looks nothing up by itself."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed, so no page can be opened: apt-get install chromium")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium, args=list(_QUIETLY))
        yield opened
        opened.close()
