"""The fake Telegram on a socket: paths as the real one has them, and a control side.

For loopback only: whoever reaches the control side may do everything.
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
from .refusal import Refusal, bad, too_many
from .telegram import FakeTelegram
from .world import FakeBot

_MAX_BODY: Final = 64 << 20
_GRACE_S: Final = 2


class _Cut(Response):
    """An answer that breaks off: the client never learns what came of its call."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"application/json"), (b"content-length", b"1000")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"{", "more_body": True})


def asgi(fake: FakeTelegram) -> Starlette:
    """The application."""

    async def method(request: Request) -> Response:
        try:
            bot = fake.known(request.path_params["token"])
            return await _called(fake, bot, request)
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


async def _called(fake: FakeTelegram, bot: FakeBot, request: Request) -> Response:
    method = request.path_params["method"]
    kind = request.headers.get("content-type", "")
    body = await request.body()
    if len(body) > _MAX_BODY:
        raise Refusal(413, "Request Entity Too Large")
    given = read_call_parameters(request.url.query, kind, body)
    fault = fake.fault_for(bot, method)
    if fault is not None:
        cut = await _troubled(fake, fault)
        if cut is not None:
            return cut
    result = await fake.perform(bot, method, given)
    if fault is not None:
        return _Cut()
    return JSONResponse({"ok": True, "result": result})


async def _troubled(fake: FakeTelegram, fault: Fault) -> Response | None:
    """What happens instead of the call; None if the call takes effect first."""
    match fault.trouble:
        case Trouble.FLOOD:
            raise too_many(max(round(fault.seconds), 1))
        case Trouble.BROKEN:
            raise Refusal(fault.code or 502, "Bad Gateway")
        case Trouble.REFUSED:
            raise Refusal(fault.code or 403, "Forbidden: as ordered")
        case Trouble.MOVED:
            raise Refusal(
                400,
                bad("group chat was upgraded to a supergroup chat").description,
                migrate_to_chat_id=fault.chat,
            )
        case Trouble.HANG:
            await fake.clock.sleep(fault.seconds)
            return _Cut()
        case Trouble.LOST:
            return None


# ---------------------------------------------------------------------- on a socket


class _Server(uvicorn.Server):
    """Signals belong to the process around it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


def listen(host: str = "127.0.0.1", port: int = 0) -> socket.socket:
    """A socket; port 0 means any free one."""
    return socket.create_server((host, port))


@asynccontextmanager
async def served(app: ASGIApp, place: socket.socket) -> AsyncGenerator[str, None]:
    """An application on that socket, until the block ends; its address."""
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=_GRACE_S,
    )
    server = _Server(config)
    running = asyncio.create_task(server.serve(sockets=[place]), name="fake telegram")
    try:
        while not server.started and not running.done():
            await SYSTEM_CLOCK.sleep(0.01)
        host, port = place.getsockname()[:2]
        yield f"http://{host}:{port}"
    finally:
        server.should_exit = True
        await running
        place.close()


@asynccontextmanager
async def fake_telegram(
    *, host: str = "127.0.0.1", port: int = 0, **options: Any
) -> AsyncGenerator[FakeTelegram, None]:
    """A fake Telegram that answers at ``fake.base`` until the block ends.

    ``options`` are those of FakeTelegram.
    """
    fake = FakeTelegram(**options)
    place = listen(host, port)
    async with served(asgi(fake), place) as base:
        fake.base = base
        try:
            yield fake
        finally:
            await fake.close()
