"""What every request and answer goes through: size, origin, headers.

Plain ASGI, so that streams pass through untouched.
"""

from collections.abc import Callable
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from . import error_responses

ByToken: TypeAlias = Callable[[Headers], bool]

MAX_BODY: Final = 2 << 20
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_KINDS: Final = {403: "forbidden", 413: "too_large", 421: "misdirected", 500: "internal"}
_HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


class TooLarge(Exception):
    """The body is larger than any route takes."""


class Guard:
    """Refuses what comes from other sites or is too large, and puts the headers on every answer.

    ``by_token`` tells whether a bearer token alone says who a request comes from: only then is it
    not asked which site sent it.
    """

    def __init__(self, app: ASGIApp, *, by_token: ByToken, hosts: tuple[str, ...] = ()) -> None:
        self._app = app
        self._by_token = by_token
        self._hosts = frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        if refusal is not None:
            await _refused(scope, *refusal)(scope, receive, _dressed(send))
            return
        await self._app(scope, _limited(receive), _dressed(send))

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if self._hosts and host_name(host) not in self._hosts:
            return 421, "this name is not served here: add it with --allow-host"
        length = headers.get("content-length", "0")
        if length.isdigit() and int(length) > MAX_BODY:
            return 413, f"the body is larger than {MAX_BODY:,} bytes"
        if scope["method"] in _SAFE or self._by_token(headers):
            return None
        if not same_origin(headers, host):
            return 403, "this request came from another site"
        return None


def _refused(scope: Scope, status: int, text: str) -> Response:
    """For programs as JSON, for people as text."""
    path = str(scope["path"]).removeprefix(scope.get("root_path", ""))
    if path.startswith("/api/"):
        return error_responses.plain(status, _KINDS[status], text)
    return PlainTextResponse(text + "\n", status)


async def too_large(request: Request, error: Exception) -> Response:
    """For a body whose size shows only while it is read."""
    return _refused(request.scope, 413, f"the body is larger than {MAX_BODY:,} bytes")


async def broken(request: Request, error: Exception) -> Response:
    """For a mistake of ours; what it was goes to the log alone."""
    return _refused(request.scope, 500, "an error inside Forge Jobs: see the log")


def same_origin(headers: Headers, host: str) -> bool:
    """Browsers say where a request comes from; programs without a browser say nothing."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site in ("same-origin", "none")
    origin = headers.get("origin")
    return origin is None or urlsplit(origin).netloc.lower() == host.lower()


def host_name(host: str) -> str:
    """The name without its port."""
    if host.startswith("["):
        return host.partition("]")[0].strip("[").lower()
    return host.partition(":")[0].lower()


def _dressed(send: Send) -> Send:
    async def dress(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers[name] = value
            headers.setdefault("cache-control", "no-store")
        await send(message)

    return dress


def _limited(receive: Receive) -> Receive:
    seen = 0

    async def limited() -> Message:
        nonlocal seen
        message = await receive()
        if message["type"] == "http.request":
            seen += len(message.get("body", b""))
            if seen > MAX_BODY:
                raise TooLarge
        return message

    return limited
