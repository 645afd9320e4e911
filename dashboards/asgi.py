"""What `streamlit run` serves: the pages, and the route that takes uploads.

A file goes straight from the connection to disk. Streamlit checks nothing on a route of ours, so
this one does: the host that was asked for, the page that asks, a token that only the pages of
this process know, the name, and the size.
"""

import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

import anyio.to_thread
import streamlit as st
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send
from streamlit.runtime import Runtime

from traceq.dashboards import charts, comparing, notes  # noqa: F401 - not by the first visitor
from traceq.dashboards.data import store_folder, uploads_allowed
from traceq.dashboards.inbox import Batch, Inbox, Upload, UploadError, inbox_of

_CHUNK_BYTES = 1 << 20


class TooLargeError(UploadError):
    """A file over the limit."""

    status = 413


class OurUploadsOnly:
    """Refuses Streamlit's own route for uploads, which no page uses: it holds files in memory."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request, or passes it on."""
        if scope["type"] == "http" and "/_stcore/upload_file" in scope["path"]:
            await PlainTextResponse("no such route", 404)(scope, receive, send)
        else:
            await self._app(scope, receive, send)


async def put_upload(request: Request) -> Response:
    """Returns: an empty answer once the file lies in its batch, else one line that says why not."""
    inbox = inbox_of(store_folder())
    refusal = _refusal(request, inbox)
    if refusal is not None:
        return refusal
    batch = inbox.batch(request.path_params["batch"])
    if batch is None:
        return PlainTextResponse("this upload has ended: open the page again", 410)
    number = request.path_params["number"]
    name = unquote(request.headers.get("x-traceq-name", ""))
    try:
        await _receive(request, batch, number, name)
    except ClientDisconnect:
        return PlainTextResponse("cut short", 400)
    except UploadError as error:
        return PlainTextResponse(str(error), error.status)
    except OSError as error:
        return PlainTextResponse(f"cannot be kept: {error.strerror}", 507)
    return Response(status_code=204)


def _refusal(request: Request, inbox: Inbox) -> Response | None:
    """Returns: why a request is not one of our own pages', None where it is."""
    host = request.headers.get("host", "")
    origin = request.headers.get("origin")
    allowed = st.get_option("server.allowedHosts") or []
    if _place(f"//{host}").hostname not in allowed:
        return PlainTextResponse("unknown host", 403)
    if origin is not None and _place(origin).netloc != host:
        return PlainTextResponse("foreign origin", 403)
    if not secrets.compare_digest(
        request.headers.get("x-traceq-token", "").encode(), inbox.token.encode()
    ):
        return PlainTextResponse("wrong token: open the page again", 403)
    if not uploads_allowed():
        return PlainTextResponse("uploads are off: the dashboard has no login", 403)
    return None


def _place(url: str) -> SplitResult:
    """Returns: the parts of an address, all empty where it is none."""
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("")


async def _receive(request: Request, batch: Batch, number: int, name: str) -> None:
    limit_bytes = int(st.get_option("server.maxUploadSize")) << 20
    stated = request.headers.get("content-length", "0")
    if not stated.isdecimal() or int(stated) > limit_bytes:
        raise _too_large(limit_bytes)
    target = batch.place(number, name)
    part = target.parent / ".part"
    try:
        with part.open("wb") as file:
            written = await _copy(request, batch, file, limit_bytes)
        part.replace(target)
        batch.files[number] = Upload(name, target, written)
    finally:
        part.unlink(missing_ok=True)
        if batch.closed:
            batch.close()


async def _copy(request: Request, batch: Batch, file: Any, limit_bytes: int) -> int:  # noqa: ANN401
    """Returns: bytes written [bytes]."""
    held = bytearray()
    written = 0
    async for chunk in request.stream():
        held += chunk
        written += len(chunk)
        if written > limit_bytes:
            raise _too_large(limit_bytes)
        if batch.closed:
            message = "cancelled"
            raise UploadError(message)
        if len(held) >= _CHUNK_BYTES:
            await anyio.to_thread.run_sync(file.write, bytes(held))
            held.clear()
    await anyio.to_thread.run_sync(file.write, bytes(held))
    return written


def _too_large(limit_bytes: int) -> TooLargeError:
    return TooLargeError(
        f"larger than {limit_bytes >> 20} MiB: use traceq ingest, or --max-upload-mb"
    )


def _is_there(session: str) -> bool:
    return Runtime.exists() and Runtime.instance().is_active_session(session)


@asynccontextmanager
async def _lifespan(_: st.App) -> AsyncIterator[dict[str, Any] | None]:
    inbox = inbox_of(store_folder())
    inbox.watch(_is_there)
    try:
        yield None
    finally:
        inbox.close()


os.environ.setdefault("TRACEQ_STORE", str(store_folder()))
app = st.App(
    Path(__file__).with_name("app.py"),
    lifespan=_lifespan,
    middleware=[Middleware(OurUploadsOnly)],
    routes=[Route("/traceq/upload/{batch}/{number:int}", put_upload, methods=["PUT"])],
)
