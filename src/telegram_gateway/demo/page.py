"""The chat page of the demo: three static files and the JSON endpoints their script calls."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit

import msgspec
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forge_jobs.web import mission_control
from telegram_gateway.calls import MAX_TEXT

if TYPE_CHECKING:
    from .environment import DemoEnvironment

_FILES: Final = Path(__file__).with_name("static")
_KINDS: Final = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
_HOSTS: Final = ("127.0.0.1", "localhost")
_WAIT_S: Final = 1.0
_HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


def chat_page(demo: "DemoEnvironment") -> ASGIApp:
    """The page, with Mission Control under /jobs."""
    page = _ChatApi(demo)
    assert demo.gateway.forge is not None
    pages = Starlette(
        routes=[
            Route("/", _static_file("chat.html")),
            Route("/chat.css", _static_file("chat.css")),
            Route("/chat.js", _static_file("chat.js")),
            Route("/api/live", _json_endpoint(page.live)),
            Route("/api/messages", _json_endpoint(page.say), methods=["POST"]),
            Route("/api/service", _json_endpoint(page.service), methods=["POST"]),
            Route("/api/skip", _json_endpoint(page.skip), methods=["POST"]),
        ]
    )
    jobs = mission_control(demo.gateway.forge, hosts=_HOSTS, title="Jobs of the demo")
    return Starlette(routes=[Mount("/jobs", app=jobs), Mount("/", app=_SameOriginGuard(pages))])


class _ChatApi:
    def __init__(self, demo: "DemoEnvironment") -> None:
        self._demo = demo

    async def live(self, request: Request) -> Any:
        """The entries of a chat after ``after``, and the job of its last message. Waits at most a
        second for a new entry."""
        slug = request.query_params.get("bot", "")
        after = int(request.query_params.get("after", "0"))
        chat = self._demo.chat(slug)
        if len(chat.entries) <= after:
            try:
                async with asyncio.timeout(_WAIT_S):
                    await chat.changed.wait()
            except TimeoutError:
                pass
        last_message = await self._demo.last_message(slug)
        return {
            "entries": [one.shown() for one in chat.entries[after:]],
            "job": None if last_message is None else msgspec.to_builtins(last_message),
            "service": self._demo.shop.running,
        }

    async def say(self, request: Request) -> Any:
        """Send a message as the user."""
        body = await _json_body(request)
        text = str(body.get("text", "")).strip()[:MAX_TEXT]
        if not text:
            raise ValueError("text is empty: enter a message")
        return {"update_id": self._demo.say(str(body.get("bot", "")), text)}

    async def service(self, request: Request) -> Any:
        """Stop or start the service behind the shop bot."""
        body = await _json_body(request)
        if body.get("running") is True:
            await self._demo.shop.start()
        else:
            await self._demo.shop.stop()
        return {"service": self._demo.shop.running}

    async def skip(self, request: Request) -> Any:
        """Advance the clock to the next attempt."""
        body = await _json_body(request)
        return {"leapt_s": await self._demo.skip(str(body.get("bot", "")))}


def _static_file(name: str) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        path = _FILES / name
        return Response(path.read_bytes(), media_type=_KINDS[path.suffix])

    return answer


def _json_endpoint(
    action: Callable[[Request], Awaitable[Any]],
) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        try:
            return JSONResponse(await action(request))
        except KeyError as error:
            return JSONResponse({"error": f"there is no bot {error.args[0]!r}"}, 404)
        except (ValueError, msgspec.MsgspecError) as error:
            return JSONResponse({"error": str(error)}, 400)
        except OSError:
            return JSONResponse({"error": "the port of the service is in use by now"}, 409)

    return answer


async def _json_body(request: Request) -> dict[str, Any]:
    found: Any = msgspec.json.decode(await request.body())
    if not isinstance(found, dict):
        raise ValueError("the body must be a JSON object")
    return cast("dict[str, Any]", found)


class _SameOriginGuard:
    """Refuses requests for another host name and posts from another origin; adds headers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
            await send(message)

        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if host.rpartition(":")[0] not in _HOSTS and host not in _HOSTS:
            refusal = PlainTextResponse("this name is not served here\n", 421)
            await refusal(scope, receive, send_with_headers)
        elif scope["method"] == "POST" and not _is_same_origin(headers, host):
            refusal = PlainTextResponse("this request came from another site\n", 403)
            await refusal(scope, receive, send_with_headers)
        else:
            await self._app(scope, receive, send_with_headers)


def _is_same_origin(headers: Headers, host: str) -> bool:
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    origin = headers.get("origin")
    return origin is None or urlsplit(origin).netloc == host
