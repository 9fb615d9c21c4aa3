"""The webhook's HTTP endpoint: checks slug, then secret, then the body, in this order.

Plain ASGI, because this is the hot path: it needs one header, a body and one of a dozen constant
responses. Every other route is in ``pages``.
"""

import asyncio
import hmac
from collections.abc import Mapping
from typing import Final, NamedTuple

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forge_jobs import Clock

from .failed_secrets import FailedSecrets
from .metrics import GatewayMetrics
from .update_receiver import BotRuntime, UpdateReceiver

PREFIX: Final = "/bot/"
SECRET_HEADER: Final = b"x-telegram-bot-api-secret-token"
_BODY_TIMEOUT_S: Final = 10.0


class HttpResponse(NamedTuple):
    """A complete response, built once at import."""

    head: Message
    body: Message


def _response(status: int, text: str = "", **headers: str) -> HttpResponse:
    body = f"{text}\n".encode() if text else b""
    named = {"content-type": "text/plain; charset=utf-8"} if text else {}
    named |= {name.replace("_", "-"): value for name, value in headers.items()}
    named["content-length"] = str(len(body))
    pairs = [(name.encode(), value.encode()) for name, value in named.items()]
    head = {"type": "http.response.start", "status": status, "headers": pairs}
    return HttpResponse(head, {"type": "http.response.body", "body": body})


_ACCEPTED: Final = _response(200)
_DISCONNECTED: Final = _response(400, "the connection was closed before the body was complete")
_WRONG_SECRET: Final = _response(401, "wrong secret")
_UNKNOWN_BOT: Final = _response(404, "unknown bot")
_WRONG_METHOD: Final = _response(405, "use POST", allow="POST")
_BODY_TIMED_OUT: Final = _response(408, "the body was sent too slowly", connection="close")
_BODY_TOO_LARGE: Final = _response(413, "the body is too large", connection="close")
_WRONG_CONTENT_TYPE: Final = _response(415, "application/json is expected")
_TOO_MANY_FAILURES: Final = _response(
    429, "too many wrong secrets", retry_after="60", connection="close"
)
_STOPPING: Final = _response(503, "stopping", retry_after="5")
_RETRY_LATER: Final = _response(503, "try again later", retry_after="5")


class Webhook:
    """Serves /bot/SLUG and passes every other path to ``fallback``."""

    def __init__(
        self,
        runtimes: Mapping[str, BotRuntime],
        receiver: UpdateReceiver,
        counters: GatewayMetrics,
        clock: Clock,
        *,
        max_body: int,
        fallback: ASGIApp,
    ) -> None:
        self._runtimes = runtimes
        self._receiver = receiver
        self._counters = counters
        self._clock = clock
        self._max_body = max_body
        self._fallback = fallback
        self._failed_secrets = FailedSecrets(clock)
        self.draining = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(PREFIX):
            await self._fallback(scope, receive, send)
            return
        started = self._clock.mono()
        response = await self._respond(scope, receive)
        await send(response.head)
        await send(response.body)
        self._counters.observe_request(self._clock.mono() - started)

    async def _respond(self, scope: Scope, receive: Receive) -> HttpResponse:
        runtime = self._runtimes.get(scope["path"][len(PREFIX) :])
        if runtime is None:
            return _UNKNOWN_BOT
        if scope["method"] != "POST":
            return _WRONG_METHOD
        secrets: list[bytes] = []
        kind = length = b""
        for name, value in scope["headers"]:
            if name == SECRET_HEADER:
                secrets.append(value)
            elif name == b"content-type":
                kind = value
            elif name == b"content-length":
                length = value
        if not _secret_matches(secrets, runtime.bot.secrets):
            return self._reject_secret(scope, runtime)
        return await self._receive_update(runtime, receive, kind, length)

    def _reject_secret(self, scope: Scope, runtime: BotRuntime) -> HttpResponse:
        self._counters.count("gateway_updates_total", bot=runtime.bot.slug, outcome="unauthorised")
        source = scope.get("client")
        return (
            _TOO_MANY_FAILURES
            if self._failed_secrets.record_failure(source[0] if source else "")
            else _WRONG_SECRET
        )

    async def _receive_update(
        self, runtime: BotRuntime, receive: Receive, kind: bytes, length: bytes
    ) -> HttpResponse:
        if self.draining:
            return _STOPPING
        if kind.partition(b";")[0].strip().lower() != b"application/json":
            return _WRONG_CONTENT_TYPE
        if length.isdigit() and int(length) > self._max_body:
            return _BODY_TOO_LARGE
        try:
            async with asyncio.timeout(_BODY_TIMEOUT_S):
                body = await self._read_body(receive)
        except TimeoutError:
            return _BODY_TIMED_OUT
        if isinstance(body, HttpResponse):
            return body
        return (
            _ACCEPTED
            if (await self._receiver.receive(runtime, body)).acknowledged
            else _RETRY_LATER
        )

    async def _read_body(self, receive: Receive) -> bytes | HttpResponse:
        """The body, or a refusal as soon as it is too large: a chunked one has no length header."""
        body = b""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return _DISCONNECTED
            part: bytes = message.get("body", b"")
            body = body + part if body else part
            if len(body) > self._max_body:
                return _BODY_TOO_LARGE
            if not message.get("more_body", False):
                return body


def _secret_matches(given: list[bytes], secrets: tuple[bytes, ...]) -> bool:
    if len(given) != 1:
        return False
    # Every secret is compared, so that the time does not reveal which of them matched.
    matches = [hmac.compare_digest(given[0], secret) for secret in secrets]
    return any(matches)
