"""The upload route: who may use it, what it takes, and what it leaves behind."""

import http.client
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.dashboard.conftest import Server, serve, stop
from tests.processes import below
from tests.traces.nsys import NsysExport
from traceq.dashboards.inbox import Inbox, UploadError, refuse_name
from traceq.dashboards.job import Job
from traceq.store import Store

MIB = 1 << 20


class Pass:
    """What a page of the dashboard knows: its batch and its token."""

    def __init__(self, page: Page, server: Server) -> None:
        seen: list[dict[str, str]] = []
        page.on("request", lambda r: seen.append(r.headers | {"url": r.url, "way": r.method}))
        page.goto(f"{server.url}/runs")
        field = page.locator("input[type=file]")
        first = {"name": "a.json", "mimeType": "text/plain", "buffer": b"{}"}
        field.set_input_files([first])
        page.get_by_text("1 files uploaded").wait_for()
        (sent,) = [each for each in seen if each["way"] == "PUT"]
        self.token = sent["x-traceq-token"]
        self.batch = sent["url"].split("/")[-2]


def put(server: Server, path: str, body: bytes = b"x", **headers: str) -> tuple[int, str]:
    """Status and text of a request to put something."""
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=60)
    said = {name.replace("_", "-"): value for name, value in headers.items()}
    with closing(connection):
        connection.request("PUT", path, body, said)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def files_in(server: Server) -> list[str]:
    found = os.walk(server.store / ".inbox")  # which folders may leave meanwhile
    return sorted(name for _, _, names in found for name in names if name != "lock")


def test_only_pages_of_this_process_can_upload(page: Page, fresh: Server) -> None:
    known = Pass(page, fresh)
    path = f"/traceq/upload/{known.batch}/7"
    right = {"X_Traceq_Token": known.token, "X_Traceq_Name": "b.json"}
    assert put(fresh, path, X_Traceq_Name="b.json")[0] == 403
    wrong = right | {"X_Traceq_Token": known.token[:-1]}
    assert put(fresh, path, **wrong) == (403, "wrong token: open the page again")
    assert put(fresh, path, **right, Origin="http://evil.example") == (403, "foreign origin")
    assert put(fresh, path, **right, Origin="http://[") == (403, "foreign origin")
    assert put(fresh, path, **right, Host="evil.example")[0] in {400, 403}
    assert put(fresh, path, **right, Host="[abc")[0] in {400, 403}
    assert put(fresh, "/traceq/upload/unknown/7", **right)[0] == 410
    assert put(fresh, f"/traceq/upload/{known.batch}/5000", **right)[0] == 400
    for name in ("../up", "..%2Fup", "%2Fetc%2Fpasswd", "a%5Cb", ".hidden", "a%00b", "", "n" * 300):
        status, text = put(fresh, path, **(right | {"X_Traceq_Name": name}))
        assert (status, text) == (400, "not the name of a file: rename it and upload it again")
    assert put(fresh, f"/traceq/upload/{known.batch}/..%2f..%2fx", **right)[0] in {400, 404, 405}
    assert put(fresh, "/_stcore/upload_file/a/b", **right) == (404, "no such route")
    large = right | {"Content_Length": str(3 << 30)}
    assert put(fresh, path, b"", **large)[0] == 413
    assert files_in(fresh) == ["a.json"]
    assert put(fresh, path, **right)[0] == 204
    assert files_in(fresh) == ["a.json", "b.json"]
    status, text = put(fresh, path, **right)
    assert (status, text[:22]) == (400, "another file of this u")
    modes = {p.stat().st_mode & 0o777 for p in (fresh.store / ".inbox").rglob("*") if p.is_dir()}
    assert modes == {0o700}


def test_a_broken_upload_and_a_closed_browser_leave_nothing(page: Page, fresh: Server) -> None:
    known = Pass(page, fresh)
    host, port = fresh.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        head = (
            f"PUT /traceq/upload/{known.batch}/1 HTTP/1.1\r\nHost: {host}:{port}\r\n"
            f"X-Traceq-Token: {known.token}\r\nX-Traceq-Name: cut.json\r\n"
            f"Content-Length: {64 * MIB}\r\n\r\n"
        )
        connection.sendall(head.encode() + bytes(8 * MIB))
        wait_for(lambda: ".part" in files_in(fresh))
    wait_for(lambda: files_in(fresh) == ["a.json"])
    page.context.close()
    wait_for(lambda: files_in(fresh) == [], patience_s=30)


def wait_for(holds: object, patience_s: float = 10) -> None:
    deadline = time.monotonic() + patience_s
    while not holds():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.1)


def memory_mib(pid: int) -> float:
    """Peak resident memory of a process [MiB]."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) / 1024


def test_a_gigabyte_is_not_held_in_memory_and_others_browse_meanwhile(
    page: Page, fresh: Server, record_property: Callable[[str, object], None]
) -> None:
    known = Pass(page, fresh)
    second = page.context.new_page()
    second.goto(f"{fresh.url}/sql")
    second.get_by_text("The store is empty").wait_for()
    before = memory_mib(fresh.process.pid)
    half, sent = threading.Event(), threading.Event()
    answers: list[int] = []

    def blocks() -> Iterator[bytes]:
        block = bytes(4 * MIB)
        for number in range(256):
            if number == 128:
                half.set()
                assert sent.wait(60)
            yield block

    def upload() -> None:
        connection = http.client.HTTPConnection(fresh.url.removeprefix("http://"), timeout=120)
        with closing(connection):
            connection.request(
                "PUT", f"/traceq/upload/{known.batch}/1", blocks(),
                {"X-Traceq-Token": known.token, "X-Traceq-Name": "large.sqlite",
                 "Content-Length": str(1 << 30)},
            )  # fmt: skip
            answers.append(connection.getresponse().status)

    uploading = threading.Thread(target=upload)
    uploading.start()
    assert half.wait(60)
    second.goto(f"{fresh.url}/overview")
    second.get_by_text("The store is empty").wait_for()
    sent.set()
    uploading.join(120)
    assert answers == [204]
    grown = memory_mib(fresh.process.pid) - before
    record_property("upload_grown_mib", round(grown))
    assert grown < 150, f"the server grew by {grown:.0f} MiB"


def many_kernels(folder: Path) -> list[Path]:
    """Two exports that take a moment to read."""
    paths = []
    for rank in range(2):
        export = NsysExport().capture(environment=f"RANK={rank}")
        for k in range(30_000):
            export.kernel("gemm<f>", 1000 * k + 1000, 1000 * k + 1500)
        paths.append(export.write(folder / f"{rank}.sqlite"))
    return paths


def workers(server: Server) -> list[int]:
    """The processes under a dashboard."""
    return below(server.process.pid)


def begin_reading(page: Page, server: Server, files: list[Path]) -> None:
    page.goto(f"{server.url}/runs")
    page.locator("input[type=file]").set_input_files(files)
    page.get_by_role("button", name="Read 2 files").click()
    page.get_by_role("button", name="Cancel").wait_for()
    wait_for(lambda: workers(server) != [])


def test_cancelling_in_the_browser_keeps_nothing(page: Page, fresh: Server, tmp_path: Path) -> None:
    begin_reading(page, fresh, many_kernels(tmp_path))
    page.get_by_role("button", name="Cancel").click()
    page.get_by_text("cancelled: nothing was kept").wait_for()
    wait_for(lambda: workers(fresh) == [])
    assert files_in(fresh) == []
    assert Store(fresh.store).runs() == []
    assert list((fresh.store / "building").iterdir()) == []


def test_a_browser_that_is_closed_while_reading_leaves_no_files_and_no_process(
    page: Page, fresh: Server, tmp_path: Path
) -> None:
    begin_reading(page, fresh, many_kernels(tmp_path))
    page.context.close()
    wait_for(lambda: workers(fresh) == [] and files_in(fresh) == [], patience_s=40)
    assert list((fresh.store / "building").iterdir()) == []


def test_cancel_ends_the_reading_and_keeps_nothing(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path)
    batch = inbox.open_batch("session")
    source = batch.place(0, "a.json")
    source.write_text("{}")
    batch.job = Job(tmp_path, [source], name=None, options={})
    process = batch.job._process
    inbox.drop(batch)
    assert process.poll() is not None
    assert batch.job.outcome is not None
    assert not batch.folder.exists()
    with pytest.raises(UploadError, match="this upload has ended"):
        batch.place(1, "b.json")
    inbox.close()
    assert list((tmp_path / ".inbox").iterdir()) == []


def test_a_name_that_is_taken_is_told_before_the_files_are_lost(tmp_path: Path) -> None:
    outcomes = []
    for number, name in enumerate(("a/b", "night", "night")):
        export = NsysExport().capture().kernel("gemm<f>", 1000, 1100 + number)
        job = Job(tmp_path / "store", [export.write(tmp_path / f"{number}.sqlite")], name=name,
                  options={})  # fmt: skip
        job._reader.join(60)
        assert job.outcome is not None
        outcomes.append(job.outcome)
    assert [(outcome.run, outcome.again) for outcome in outcomes] == [
        (None, True),
        ("night", False),
        (None, True),
    ]
    assert "another run has that name" in outcomes[2].errors[0]


def test_what_else_a_reading_prints_is_not_taken_for_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('noise'); print('3'); print('{}')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    job = Job(tmp_path / "store", [tmp_path / "gone.json"], name="a", options={})
    wait_for(lambda: job.outcome is not None, patience_s=60)
    assert job.outcome is not None
    assert "gone.json" in job.outcome.errors[0]


def test_what_a_killed_server_left_is_removed_by_the_next(tmp_path: Path) -> None:
    left = tmp_path / ".inbox" / "1-abc"
    left.mkdir(parents=True)
    (left / "a.json").write_text("{}")
    living = Inbox(tmp_path)
    assert not left.exists()
    Inbox(tmp_path).close()
    assert living.folder.exists()
    living.close()


def test_a_plain_name_is_taken() -> None:
    refuse_name("rank 0 (copy) <b>ü</b>.json.gz".replace("/", "_"))


def test_a_busy_port_is_one_line(fresh: Server) -> None:
    port = fresh.url.rsplit(":", 1)[1]
    done = subprocess.run(
        [sys.executable, "-m", "traceq", "dashboard", "--port", port],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == (
        f"traceq: port {port} of 127.0.0.1: Address already in use: choose another with --port\n"
    )


def test_another_address_is_warned_about_and_takes_no_uploads(tmp_path: Path) -> None:
    server = serve(tmp_path / "store", tmp_path / "log", "--host", "0.0.0.0")
    try:
        assert "0.0.0.0 is not this machine alone" in server.log.read_text()
        assert put(server, "/traceq/upload/x/1", X_Traceq_Token="x")[0] == 403
        assert os.listdir(tmp_path / "store")  # noqa: PTH208
    finally:
        stop(server)


def test_it_listens_on_this_machine_only(fresh: Server) -> None:
    port = int(fresh.url.rsplit(":", 1)[1])
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    at = {line.split()[1] for line in lines if line.split()[3] == "0A"}
    assert [address for address in at if address.endswith(f":{port:04X}")] == [
        f"0100007F:{port:04X}"
    ]
