"""ASGI middleware for every request: host name, body size and time, origin check, security headers.

Plain ASGI, so that streamed responses are not buffered.
"""

import asyncio
from collections.abc import Callable
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from . import error_responses

IdentifiedByToken: TypeAlias = Callable[[Headers], bool]

MAX_BODY: Final = 2 << 20
# 2 MiB in 30 s are 70 KB/s: slower than any line that can show the pages.
BODY_S: Final = 30.0
# Probes name the address of a pod as their host; the answers say one word to anybody.
_PROBES: Final = frozenset({"/healthz", "/readyz"})
_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_KINDS: Final = {
    403: "forbidden", 408: "timeout", 413: "too_large", 421: "misdirected", 500: "internal"
}  # fmt: skip
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
    """The body exceeds ``MAX_BODY``."""


class TooSlow(Exception):
    """The body did not arrive within ``BODY_S``."""


class Guard:
    """Refuses cross-site writes, large and slow bodies, and sets the headers of every response.

    ``identified_by_token``: whether a bearer token alone identifies the request. Only then the
    origin check is skipped.
    """

    def __init__(
        self, app: ASGIApp, *, identified_by_token: IdentifiedByToken, hosts: tuple[str, ...] = ()
    ) -> None:
        self._app = app
        self._identified_by_token = identified_by_token
        self._hosts = frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        if refusal is not None:
            await _refusal_response(scope, *refusal)(scope, receive, _with_headers(send))
            return
        await self._app(scope, _with_limits(receive), _with_headers(send))

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if self._hosts and host_name(host) not in self._hosts and _path(scope) not in _PROBES:
            return 421, "this name is not served here: add it with --allow-host"
        length = headers.get("content-length", "0")
        if length.isdigit() and int(length) > MAX_BODY:
            return 413, f"the body is larger than {MAX_BODY:,} bytes"
        if scope["method"] in _SAFE_METHODS or self._identified_by_token(headers):
            return None
        if not same_origin(headers, host):
            return 403, "this request came from another site"
        return None


def _path(scope: Scope) -> str:
    return str(scope["path"]).removeprefix(scope.get("root_path", ""))


def _refusal_response(scope: Scope, status: int, text: str) -> Response:
    """JSON below /api, plain text elsewhere."""
    if _path(scope).startswith("/api/"):
        return error_responses.problem_response(status, _KINDS[status], text)
    return PlainTextResponse(text + "\n", status)


async def too_large(request: Request, error: Exception) -> Response:
    """The response to a body without ``Content-Length`` that grew too large."""
    return _refusal_response(request.scope, 413, f"the body is larger than {MAX_BODY:,} bytes")


async def too_slow(request: Request, error: Exception) -> Response:
    """The response to a body that did not arrive in time. The connection ends with it."""
    response = _refusal_response(
        request.scope, 408, f"the body did not arrive within {BODY_S:g} s: send it again"
    )
    response.headers["connection"] = "close"
    return response


async def client_gone(request: Request, error: Exception) -> Response:
    """Nobody receives this response: the client closed the connection inside its body."""
    return Response(status_code=400)


async def internal_error(request: Request, error: Exception) -> Response:
    """The response to an unexpected exception; details are only in the log."""
    return _refusal_response(request.scope, 500, "an error inside Forge Jobs: see the log")


def same_origin(headers: Headers, host: str) -> bool:
    """Whether the request comes from this site. Browsers send ``Sec-Fetch-Site`` or ``Origin``;
    programs send neither and pass."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site in ("same-origin", "none")
    origin = headers.get("origin")
    return origin is None or urlsplit(origin).netloc.lower() == host.lower()


def host_name(host: str) -> str:
    """The host name without its port."""
    if host.startswith("["):
        return host.partition("]")[0].strip("[").lower()
    return host.partition(":")[0].lower()


def _with_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers[name] = value
            headers.setdefault("cache-control", "no-store")
        await send(message)

    return send_with_headers


def _with_limits(receive: Receive) -> Receive:
    """Limits size and time of the body. After the body, ``receive`` waits for the end of the
    connection, without a limit."""
    received = 0
    complete = False
    deadline: float | None = None

    async def receive_limited() -> Message:
        nonlocal received, complete, deadline
        if complete:
            return await receive()
        if deadline is None:
            deadline = asyncio.get_running_loop().time() + BODY_S
        try:
            async with asyncio.timeout_at(deadline):
                message = await receive()
        except TimeoutError:
            raise TooSlow from None
        if message["type"] == "http.request":
            complete = not message.get("more_body", False)
            received += len(message.get("body", b""))
            if received > MAX_BODY:
                raise TooLarge
        return message

    return receive_limited
