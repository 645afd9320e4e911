"""`traceq dashboard`: the pages for a browser."""

import ipaddress
import os
import socket
import sys
from importlib.util import find_spec
from pathlib import Path

import click

from traceq.errors import TraceqError

EPILOG = """\
\b
Examples:
  traceq dashboard
  traceq dashboard --store runs/ --port 8502
"""

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
    help="Address to listen on. At any but the default others can come in without a login; then "
    "nothing can be uploaded.",
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
    *, store: Path | None, port: int, host: str, allow_host: tuple[str, ...], max_upload_mb: int
) -> None:
    """Serves the dashboard: upload the files of a run, and see where its time goes.

    It listens on this machine only, sends nothing anywhere, and ends with Ctrl+C.
    """
    if find_spec("streamlit") is None:
        message = "the dashboard needs streamlit: pip install 'traceq[dashboard]'"
        raise TraceqError(message)
    import traceq.dashboards

    _refuse_busy(host, port)
    if not is_loopback(host):
        click.echo(
            f"traceq: {host} is not this machine alone: whoever reaches port {port} can read every "
            "run; put a login before it, and see docs/dashboard.md",
            err=True,
        )
    if store is not None:
        os.environ["TRACEQ_STORE"] = str(store.resolve())
    script = Path(traceq.dashboards.__file__).with_name("asgi.py")
    words = [sys.executable, "-m", "streamlit", "run", str(script)]
    words += [f"--{key}={value}" for key, value in _options(host, port, max_upload_mb).items()]
    for name in dict.fromkeys(("localhost", "127.0.0.1", host, *allow_host)):
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
