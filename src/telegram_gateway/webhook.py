"""The HTTP side of the door: slug, secret, then the body, in this order.

Plain ASGI: this is the one path that Telegram calls thousands of times, and it needs one header, a
body and one of a dozen answers. Everything else is in ``pages``.
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
_BODY_WITHIN_S: Final = 10.0


class Answer(NamedTuple):
    """A whole answer, made once."""

    head: Message
    body: Message


def _answer(status: int, text: str = "", **headers: str) -> Answer:
    body = f"{text}\n".encode() if text else b""
    named = {"content-type": "text/plain; charset=utf-8"} if text else {}
    named |= {name.replace("_", "-"): value for name, value in headers.items()}
    named["content-length"] = str(len(body))
    pairs = [(name.encode(), value.encode()) for name, value in named.items()]
    head = {"type": "http.response.start", "status": status, "headers": pairs}
    return Answer(head, {"type": "http.response.body", "body": body})


_TAKEN: Final = _answer(200)
_GONE: Final = _answer(400, "the body did not come")
_WRONG: Final = _answer(401, "wrong secret")
_UNKNOWN: Final = _answer(404, "unknown bot")
_METHOD: Final = _answer(405, "use POST", allow="POST")
_SLOW: Final = _answer(408, "the body came too slowly", connection="close")
_LARGE: Final = _answer(413, "the body is too large", connection="close")
_KIND: Final = _answer(415, "application/json is expected")
_WRONG_AGAIN: Final = _answer(429, "too many wrong secrets", retry_after="60", connection="close")
_STOPPING: Final = _answer(503, "stopping", retry_after="5")
_LATER: Final = _answer(503, "try again later", retry_after="5")


class Webhook:
    """Answers Telegram at /bot/SLUG and leaves every other path to ``others``."""

    def __init__(
        self,
        runtimes: Mapping[str, BotRuntime],
        receiver: UpdateReceiver,
        counters: GatewayMetrics,
        clock: Clock,
        *,
        max_body: int,
        others: ASGIApp,
    ) -> None:
        self._runtimes = runtimes
        self._receiver = receiver
        self._counters = counters
        self._clock = clock
        self._max_body = max_body
        self._others = others
        self._strangers = FailedSecrets(clock)
        self.draining = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(PREFIX):
            await self._others(scope, receive, send)
            return
        started = self._clock.mono()
        answer = await self._received(scope, receive)
        await send(answer.head)
        await send(answer.body)
        self._counters.receiver(self._clock.mono() - started)

    async def _received(self, scope: Scope, receive: Receive) -> Answer:
        runtime = self._runtimes.get(scope["path"][len(PREFIX) :])
        if runtime is None:
            return _UNKNOWN
        if scope["method"] != "POST":
            return _METHOD
        secrets: list[bytes] = []
        kind = length = b""
        for name, value in scope["headers"]:
            if name == SECRET_HEADER:
                secrets.append(value)
            elif name == b"content-type":
                kind = value
            elif name == b"content-length":
                length = value
        if not _is_known(secrets, runtime.bot.secrets):
            return self._turned_away(scope, runtime)
        return await self._from_telegram(runtime, receive, kind, length)

    def _turned_away(self, scope: Scope, runtime: BotRuntime) -> Answer:
        self._counters.count("gateway_updates_total", bot=runtime.bot.slug, outcome="unauthorised")
        source = scope.get("client")
        return _WRONG_AGAIN if self._strangers.failed(source[0] if source else "") else _WRONG

    async def _from_telegram(
        self, runtime: BotRuntime, receive: Receive, kind: bytes, length: bytes
    ) -> Answer:
        if self.draining:
            return _STOPPING
        if kind.partition(b";")[0].strip().lower() != b"application/json":
            return _KIND
        if length.isdigit() and int(length) > self._max_body:
            return _LARGE
        try:
            async with asyncio.timeout(_BODY_WITHIN_S):
                body = await self._body(receive)
        except TimeoutError:
            return _SLOW
        if isinstance(body, Answer):
            return body
        return _TAKEN if (await self._receiver.take(runtime, body)).taken else _LATER

    async def _body(self, receive: Receive) -> bytes | Answer:
        """The body, or a refusal as soon as it is too large: a chunked one tells no length."""
        body = b""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return _GONE
            part: bytes = message.get("body", b"")
            body = body + part if body else part
            if len(body) > self._max_body:
                return _LARGE
            if not message.get("more_body", False):
                return body


def _is_known(given: list[bytes], secrets: tuple[bytes, ...]) -> bool:
    if len(given) != 1:
        return False
    # Every secret is compared, so that the time tells nothing about which of them is near.
    matches = [hmac.compare_digest(given[0], secret) for secret in secrets]
    return any(matches)
