"""The HTTP server of the fake Telegram: the real paths, and the control API.

For loopback only: the control API has no authentication.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from typing import Any, Final

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from forge_jobs import SYSTEM_CLOCK

from .call_parameters import read_call_parameters
from .control import control_routes
from .faults import Fault, Trouble
from .refusal import Refusal, bad_request, too_many_requests
from .telegram import FakeTelegram
from .world import FakeBot

_MAX_BODY: Final = 64 << 20
_GRACE_S: Final = 2


class _TruncatedResponse(Response):
    """A response that is cut off, so that the client does not learn the result."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"application/json"), (b"content-length", b"1000")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"{", "more_body": True})


def asgi_app(fake: FakeTelegram) -> Starlette:
    """The ASGI application."""

    async def method(request: Request) -> Response:
        try:
            bot = fake.authenticate(request.path_params["token"])
            return await _call_method(fake, bot, request)
        except Refusal as refusal:
            return JSONResponse(refusal.answer(), refusal.code)

    async def file(request: Request) -> Response:
        return JSONResponse(Refusal(404, "Not Found").answer(), 404)

    async def unknown(request: Request, error: Exception) -> Response:
        return JSONResponse(Refusal(404, "Not Found").answer(), 404)

    return Starlette(
        routes=[
            *control_routes(fake),
            Route("/bot{token}/{method}", method, methods=["GET", "POST"]),
            Route("/file/bot{token}/{path:path}", file),
        ],
        exception_handlers={404: unknown},
    )


async def _call_method(fake: FakeTelegram, bot: FakeBot, request: Request) -> Response:
    method = request.path_params["method"]
    kind = request.headers.get("content-type", "")
    body = await request.body()
    if len(body) > _MAX_BODY:
        raise Refusal(413, "Request Entity Too Large")
    given = read_call_parameters(request.url.query, kind, body)
    fault = fake.fault_for(bot, method)
    if fault is not None:
        cut = await _faulty_response(fake, fault)
        if cut is not None:
            return cut
    result = await fake.perform(bot, method, given)
    if fault is not None:
        return _TruncatedResponse()
    return JSONResponse({"ok": True, "result": result})


async def _faulty_response(fake: FakeTelegram, fault: Fault) -> Response | None:
    """Raise or return the faulty response; None if the call takes effect first."""
    match fault.trouble:
        case Trouble.FLOOD:
            raise too_many_requests(max(round(fault.seconds), 1))
        case Trouble.BROKEN:
            raise Refusal(fault.code or 502, "Bad Gateway")
        case Trouble.REFUSED:
            raise Refusal(fault.code or 403, "Forbidden: injected fault")
        case Trouble.MOVED:
            raise Refusal(
                400,
                bad_request("group chat was upgraded to a supergroup chat").description,
                migrate_to_chat_id=fault.chat,
            )
        case Trouble.HANG:
            await fake.clock.sleep(fault.seconds)
            return _TruncatedResponse()
        case Trouble.LOST:
            return None


# ---------------------------------------------------------------------- on a socket


class _FakeServer(uvicorn.Server):
    """Does not handle signals; the surrounding process does."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


def listen(host: str = "127.0.0.1", port: int = 0) -> socket.socket:
    """A listening socket; port 0 means any free port."""
    return socket.create_server((host, port))


@asynccontextmanager
async def serve_app(app: ASGIApp, listener: socket.socket) -> AsyncGenerator[str, None]:
    """Serve an application on a listening socket until the block ends; yields its URL."""
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=_GRACE_S,
    )
    server = _FakeServer(config)
    running = asyncio.create_task(server.serve(sockets=[listener]), name="fake telegram")
    try:
        while not server.started and not running.done():
            await SYSTEM_CLOCK.sleep(0.01)
        host, port = listener.getsockname()[:2]
        yield f"http://{host}:{port}"
    finally:
        server.should_exit = True
        await running
        listener.close()


@asynccontextmanager
async def fake_telegram(
    *, host: str = "127.0.0.1", port: int = 0, **options: Any
) -> AsyncGenerator[FakeTelegram, None]:
    """Run a fake Telegram at ``fake.base`` until the block ends.

    ``options`` are those of FakeTelegram.
    """
    fake = FakeTelegram(**options)
    listener = listen(host, port)
    async with serve_app(asgi_app(fake), listener) as base:
        fake.base = base
        try:
            yield fake
        finally:
            await fake.close()
