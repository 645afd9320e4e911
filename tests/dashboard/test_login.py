"""A dashboard with a login shows no run before it, by a real provider in a real browser."""

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.commands import traceq
from tests.dashboard.conftest import Server, free_port, serve, stop
from tests.dashboard.oidc import CLIENT_ID, CLIENT_SECRET, EMAIL, provider

CLIENT = {
    "redirect_uri": "http://localhost:8501/oauth2callback",
    "cookie_secret": secrets.token_hex(32),
    "client_id": CLIENT_ID,
    "client_secret": CLIENT_SECRET,
    "server_metadata_url": "http://localhost/.well-known/openid-configuration",
}


def login_file(path: Path, **changed: str | None) -> Path:
    """A client's description, of which some keys are others or, where None, left out."""
    lines = [f'{key} = "{value}"' for key, value in (CLIENT | changed).items() if value is not None]
    path.write_text("\n".join(["[auth]", *lines]), encoding="utf-8")
    return path


@pytest.fixture
def guarded(full_store: Path, tmp_path: Path) -> Iterator[Server]:
    """A dashboard that asks for a login."""
    port = free_port()
    with provider() as metadata:
        back = f"http://127.0.0.1:{port}/oauth2callback"
        file = login_file(tmp_path / "l.toml", redirect_uri=back, server_metadata_url=metadata)
        log = tmp_path / "server.log"
        started = serve(full_store, log, "--login", str(file), port=port)
        yield started
        stop(started)


def test_no_run_is_shown_before_a_login_nor_after_its_end(page: Page, guarded: Server) -> None:
    page.goto(f"{guarded.url}/ranks?run=eight")
    page.get_by_role("button", name="Log in").wait_for()
    assert "eight" not in page.locator("body").inner_text()
    assert page.get_by_role("link", name="Runs").count() == 0

    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_text(EMAIL)).to_be_visible()
    expect(page.get_by_role("link", name="Runs")).to_be_visible()
    page.goto(f"{guarded.url}/ranks?run=eight")
    expect(page.get_by_text("Rank 5 is a straggler")).to_be_visible()

    page.get_by_role("button", name="Log out").click()
    page.get_by_role("button", name="Log in").wait_for()
    page.goto(f"{guarded.url}/ranks?run=eight")
    page.get_by_role("button", name="Log in").wait_for()
    assert "straggler" not in page.locator("body").inner_text()
    assert CLIENT_SECRET not in guarded.log.read_text()


def test_a_client_that_is_not_there_is_one_clear_line(tmp_path: Path) -> None:
    done = traceq("dashboard", "--login", tmp_path / "gone.toml")
    assert done.returncode == 2
    assert done.stderr == "traceq: gone.toml: cannot be read: No such file or directory\n"


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"client_id": None, "client_secret": None}, "has no client_id, client_secret"),
        ({"cookie_secret": "short"}, "cookie_secret is shorter than 32 characters"),
        ({"redirect_uri": "http://localhost/back"}, "is not https://HOST/oauth2callback"),
        ({"redirect_uri": "http://[::1/oauth2callback"}, "is not https://HOST/oauth2callback"),
        ({"redirect_uri": "https://*/oauth2callback"}, "is not https://HOST/oauth2callback"),
        ({"redirect_uri": "ftp://host/oauth2callback"}, "is not https://HOST/oauth2callback"),
        ({"client_id": '"'}, "is not TOML"),
    ],
)
def test_a_client_that_cannot_work_is_one_clear_line(
    tmp_path: Path, changed: dict[str, str | None], told: str
) -> None:
    done = traceq("dashboard", "--login", login_file(tmp_path / "login.toml", **changed))
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("traceq: login.toml: ")
    assert told in line
    assert CLIENT["cookie_secret"] not in line
