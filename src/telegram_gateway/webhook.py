"""The HTTP side of the door: slug, secret, then the body, in this order, and health."""

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp

from forge_jobs import Clock

from .door import Desk, Door
from .meters import Meters
from .strangers import Strangers

SECRET_HEADER: Final = b"x-telegram-bot-api-secret-token"
_BODY_WITHIN_S: Final = 10.0
_LATER: Final = {"retry-after": "5"}
_MUCH_LATER: Final = {"retry-after": "60", "connection": "close"}
Check = Callable[[], Awaitable[list[tuple[str, bool]]]]


class Webhook:
    """Answers Telegram."""

    def __init__(
        self,
        desks: Mapping[str, Desk],
        door: Door,
        meters: Meters,
        clock: Clock,
        *,
        body_most: int,
    ) -> None:
        self._desks = desks
        self._door = door
        self._meters = meters
        self._clock = clock
        self._body_most = body_most
        self._strangers = Strangers(clock)
        self.draining = False

    async def receive(self, request: Request) -> Response:
        """POST /bot/{slug}."""
        started = self._clock.mono()
        try:
            return await self._received(request)
        finally:
            self._meters.door(self._clock.mono() - started)

    async def _received(self, request: Request) -> Response:
        desk = self._desks.get(request.path_params["slug"])
        if desk is None:
            return PlainTextResponse("unknown bot\n", 404)
        if not _is_known(request, desk.bot.secrets):
            return self._turned_away(request, desk)
        return await self._from_telegram(request, desk)

    def _turned_away(self, request: Request, desk: Desk) -> Response:
        self._meters.count("gateway_updates_total", bot=desk.bot.slug, outcome="unauthorised")
        if self._strangers.failed(request.client.host if request.client else ""):
            return PlainTextResponse("too many wrong secrets\n", 429, _MUCH_LATER)
        return PlainTextResponse("wrong secret\n", 401)

    async def _from_telegram(self, request: Request, desk: Desk) -> Response:
        if self.draining:
            return PlainTextResponse("stopping\n", 503, _LATER)
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            return PlainTextResponse("application/json is expected\n", 415)
        try:
            async with asyncio.timeout(_BODY_WITHIN_S):
                body = await self._body(request)
        except TimeoutError:
            return PlainTextResponse("the body came too slowly\n", 408)
        except ClientDisconnect:
            return PlainTextResponse("the body did not come\n", 400)
        if body is None:
            return PlainTextResponse("the body is too large\n", 413, {"connection": "close"})
        if not (await self._door.take(desk, body)).taken:
            return PlainTextResponse("try again later\n", 503, _LATER)
        return Response(status_code=200)

    async def _body(self, request: Request) -> bytes | None:
        """The body, or None as soon as it is too large: a chunked one tells no length."""
        length = request.headers.get("content-length", "0")
        if length.isdigit() and int(length) > self._body_most:
            return None
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > self._body_most:
                return None
        return bytes(body)


def _is_known(request: Request, secrets: tuple[bytes, ...]) -> bool:
    given = [value for name, value in request.headers.raw if name == SECRET_HEADER]
    if len(given) != 1:
        return False
    # Every secret is compared, so that the time tells nothing about which of them is near.
    matches = [hmac.compare_digest(given[0], secret) for secret in secrets]
    return any(matches)


def asgi(
    webhook: Webhook,
    checks: Check,
    metrics: Callable[[], Awaitable[str]],
    admin: ASGIApp | None = None,
) -> Starlette:
    """The whole application."""

    async def healthz(request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(request: Request) -> Response:
        found = [("not draining", not webhook.draining), *await checks()]
        lines = "".join(f"{'ok' if good else 'FAILED'} {name}\n" for name, good in found)
        return PlainTextResponse(lines, 200 if all(good for _, good in found) else 503)

    async def page(request: Request) -> Response:
        return PlainTextResponse(await metrics(), media_type="text/plain; version=0.0.4")

    return Starlette(
        routes=[
            Route("/bot/{slug}", webhook.receive, methods=["POST"]),
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            Route("/metrics", page),
            *([] if admin is None else [Mount("/admin", admin)]),
        ]
    )
