"""Stores that the pages are shown on, a real server, and a real browser."""

import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.traces.nsys import NsysExport
from tests.traces.torch import TorchTrace
from tests.traces.workload import MS, Phase, Workload, late
from traceq.store import Store

HOSTILE = "<img src=x onerror=alert(1)> ![x](http://evil.example/x.png)"
KINDS = ("empty", "one", "eight", "cpu", "incomplete")


def eight_sources(folder: Path, *, slow_ns: int = 8 * MS) -> list[Path]:
    """Eight ranks on two hosts, of which rank 5 is late."""
    folder.mkdir(parents=True)
    return Workload(steps=10, delay=late([5], ns=slow_ns)).write_torch(folder)


def one_source(folder: Path) -> list[Path]:
    """One rank whose collectives have no size."""
    export = NsysExport().capture(environment="RANK=0")
    for k in range(4):
        export.kernel("gemm<float>", 1000 * k + 1000, 1000 * k + 1600)
        export.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 1000 * k + 1500, 1000 * k + 1900,
                      stream=8)  # fmt: skip
    return [export.write(folder / "one.sqlite")]


def cpu_source(folder: Path) -> list[Path]:
    """A rank of gloo on CPUs."""
    trace = TorchTrace(gpu=None, world_size=2)
    for step in range(4):
        at = 3000 * step
        trace.annotation(f"ProfilerStep#{step}", at, at + 2900)
        trace.operator("aten::mm", at + 100, at + 600)
        trace.annotation("gloo:all_reduce", at + 500, at + 1000, thread=2)
        trace.operator("aten::mul", at + 1200, at + 1300)
    return [trace.write(folder / "cpu.json")]


def incomplete_source(folder: Path) -> list[Path]:
    """A capture that lost events, whose kernels have hostile names."""
    export = NsysExport().capture(environment="RANK=0")
    export.kernel(HOSTILE, 1000, 1900)
    export.row("DIAGNOSTIC_EVENT", severity=3, text="7 events lost")
    return [export.write(folder / "lost.sqlite")]


@pytest.fixture(scope="session")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A store of each kind, by name; the run of each is called like it."""
    folder = tmp_path_factory.mktemp("stores")
    sources = {
        "one": one_source(folder), "eight": eight_sources(folder / "eight-sources"),
        "cpu": cpu_source(folder), "incomplete": incomplete_source(folder),
    }  # fmt: skip
    for kind in KINDS:
        store = Store(folder / kind)
        if kind != "empty":
            store.ingest(sources[kind], name=kind)
    return {kind: folder / kind for kind in KINDS}


@pytest.fixture(scope="session")
def full_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a run of each kind, four ranks to compare with eight, and a hostile name."""
    folder = tmp_path_factory.mktemp("full")
    store = Store(folder / "store")
    store.ingest(cpu_source(folder), name="cpu")
    store.ingest(one_source(folder), name="one")
    store.ingest(incomplete_source(folder), name=HOSTILE.replace("/", "_"))
    (folder / "four").mkdir()
    phases = [Phase("all_reduce", 4**k << 22, (10 + 4**k) * MS // 4) for k in range(3)]
    four = Workload(ranks=4, per_node=4, steps=10, phases=phases)
    store.ingest(four.write_torch(folder / "four"), name="four")
    store.ingest(eight_sources(folder / "eight"), name="eight")
    return folder / "store"


@dataclass(frozen=True)
class Server:
    """A dashboard that runs, on a store."""

    url: str
    process: subprocess.Popen[bytes]
    store: Path
    log: Path


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def serve(store: Path, log: Path, *options: str, port: int | None = None) -> Server:
    """Starts a dashboard and waits until it answers."""
    port = port or free_port()
    words = [sys.executable, "-m", "traceq", "dashboard"]
    words += ["--store", str(store), "--port", str(port)]
    with log.open("wb") as out:
        process = subprocess.Popen([*words, *options], stdout=out, stderr=subprocess.STDOUT)
    url = f"http://127.0.0.1:{port}"
    for _ in range(200):
        assert process.poll() is None, log.read_text()
        try:
            urllib.request.urlopen(f"{url}/_stcore/health", timeout=1).close()
        except OSError:
            time.sleep(0.1)
            continue
        return Server(url, process, store, log)
    raise AssertionError(log.read_text())


def stop(server: Server) -> None:
    """Ends a dashboard as Ctrl+C or a service manager does."""
    server.process.terminate()
    server.process.wait(20)


@pytest.fixture(scope="session")
def server(full_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A dashboard on the full store."""
    started = serve(full_store, tmp_path_factory.mktemp("log") / "server.log")
    yield started
    stop(started)


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Server]:
    """A dashboard on an empty store of the test's own."""
    started = serve(tmp_path / "store", tmp_path / "server.log", "--max-upload-mb", "2048")
    yield started
    stop(started)


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page of 1280 by 900 px."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(30_000)
    yield context.new_page()
    context.close()
