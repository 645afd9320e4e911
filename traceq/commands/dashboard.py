"""`traceq dashboard`: the pages for a browser."""

import ipaddress
import os
import socket
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

import click

from traceq.errors import TraceqError

EPILOG = """\
\b
Examples:
  traceq dashboard
  traceq dashboard --store runs/ --port 8502
  traceq dashboard --host 0.0.0.0 --login login.toml
"""

_LOGIN_KEYS = (
    "redirect_uri", "cookie_secret", "client_id", "client_secret", "server_metadata_url"
)  # fmt: skip
_LEAST_SECRET = 32

_THEME = {
    "light": {
        "primaryColor": "#0072B2",
        "backgroundColor": "#FFFFFF",
        "secondaryBackgroundColor": "#F3F5F7",
        "textColor": "#1B2733",
        "linkColor": "#005A8C",
    },
    "dark": {
        "primaryColor": "#56B4E9",
        "backgroundColor": "#14191F",
        "secondaryBackgroundColor": "#1F262E",
        "textColor": "#E3E8ED",
        "linkColor": "#8CCBF0",
    },
}


@click.command(epilog=EPILOG)
@click.option(
    "--store",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Folder of the store. [default: $TRACEQ_STORE]",
)
@click.option("--port", type=click.IntRange(1, 65535), default=8501, show_default=True)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on. At any but the default others can come in; without --login they "
    "need none, and nothing can be uploaded.",
)
@click.option(
    "--login",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Show pages only after a login at the OpenID Connect provider whose client this file "
    "describes: see docs/dashboard.md.",
)
@click.option(
    "--allow-host",
    multiple=True,
    metavar="NAME",
    help="A name that browsers may call the dashboard by. Repeatable.",
)
@click.option(
    "--max-upload-mb",
    type=click.IntRange(1, 1_000_000),
    default=4096,
    show_default=True,
    help="Largest file that can be uploaded.",
)
def dashboard(
    *,
    store: Path | None,
    port: int,
    host: str,
    login: Path | None,
    allow_host: tuple[str, ...],
    max_upload_mb: int,
) -> None:
    """Serves the dashboard: upload the files of a run, and see where its time goes.

    It listens on this machine only, sends nothing anywhere, and ends with Ctrl+C.
    """
    if find_spec("streamlit") is None:
        message = "the dashboard needs streamlit: pip install 'traceq[dashboard]'"
        raise TraceqError(message)
    import traceq.dashboards
    from traceq.dashboards.login import REQUIRED

    called = [] if login is None else [_login_host(login)]
    _refuse_busy(host, port)
    if login is None and not is_loopback(host):
        click.echo(
            f"traceq: {host} is not this machine alone: whoever reaches port {port} can read every "
            "run: see --login",
            err=True,
        )
    if store is not None:
        os.environ["TRACEQ_STORE"] = str(store.resolve())
    script = Path(traceq.dashboards.__file__).with_name("asgi.py")
    words = [sys.executable, "-m", "streamlit", "run", str(script)]
    words += [f"--{key}={value}" for key, value in _options(host, port, max_upload_mb).items()]
    os.environ[REQUIRED] = "0" if login is None else "1"
    if login is not None:
        words.append(f"--secrets.files={login.resolve()}")
    names = ("localhost", "127.0.0.1", host, *called, *allow_host)
    for name in dict.fromkeys(map(str.lower, names)):
        words.append(f"--server.allowedHosts={name}")
    click.echo(f"traceq: the dashboard is at http://{_shown(host)}:{port}", err=True)
    sys.stderr.flush()
    os.execv(sys.executable, words)  # noqa: S606 - our own interpreter, and no shell


def is_loopback(host: str) -> bool:
    """Returns: whether an address can be reached from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _options(host: str, port: int, max_upload_mb: int) -> dict[str, object]:
    return {
        "server.address": host,
        "server.port": port,
        "server.headless": "true",
        "server.maxUploadSize": max_upload_mb,
        "server.fileWatcherType": "none",
        "server.runOnSave": "false",
        "browser.gatherUsageStats": "false",
        "client.toolbarMode": "viewer",
        "client.showErrorDetails": "none",
        "logger.hideWelcomeMessage": "true",
        **{f"theme.{mode}.{key}": value for mode in _THEME for key, value in _THEME[mode].items()},
    }


def _login_host(file: Path) -> str:
    """Returns: the host name by which browsers come back from the provider.

    Raises:
        TraceqError: the file does not describe a client, or Authlib is not there.
    """
    try:
        client = tomllib.loads(file.read_text(encoding="utf-8")).get("auth")
    except OSError as error:
        message = f"{file.name}: cannot be read: {error.strerror}"
        raise TraceqError(message) from error
    except ValueError as error:
        message = f"{file.name}: is not TOML: {error}"
        raise TraceqError(message) from error
    client = client if isinstance(client, dict) else {}
    if file.suffix != ".toml":
        message = f"{file.name}: its name must end in .toml"
        raise TraceqError(message)
    missing = [key for key in _LOGIN_KEYS if not isinstance(client.get(key), str)]
    if missing:
        told = ", ".join(missing)
        message = f"{file.name}: its table [auth] has no {told}: see docs/dashboard.md"
        raise TraceqError(message)
    if len(client["cookie_secret"]) < _LEAST_SECRET:
        message = (
            f"{file.name}: cookie_secret is shorter than {_LEAST_SECRET} characters: make one with "
            "python -c 'import secrets; print(secrets.token_hex(32))'"
        )
        raise TraceqError(message)
    try:
        back = urlsplit(client["redirect_uri"])
    except ValueError:
        back = urlsplit("")
    name: str | None = back.hostname
    web = back.scheme in {"http", "https"} and back.path.endswith("/oauth2callback")
    if name is None or "*" in name or not web:
        message = f"{file.name}: redirect_uri is not https://HOST/oauth2callback"
        raise TraceqError(message)
    if find_spec("authlib") is None:
        message = "a login needs Authlib: pip install 'traceq[login]'"
        raise TraceqError(message)
    return name


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _refuse_busy(host: str, port: int) -> None:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        with socket.socket(family) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind((host, port))
    except socket.gaierror as error:
        message = f"--host {host}: no address of this machine: try 127.0.0.1"
        raise TraceqError(message) from error
    except OSError as error:
        message = f"port {port} of {host}: {error.strerror}: choose another with --port"
        raise TraceqError(message) from error
