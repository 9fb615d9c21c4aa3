"""The chat page of the demo: three files, and what their script asks for."""

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
from telegram_gateway.calls import TEXT_LONGEST

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


def chat_page(stage: "DemoEnvironment") -> ASGIApp:
    """The page, with Mission Control beside it under /jobs."""
    page = _Page(stage)
    assert stage.gateway.forge is not None
    own = Starlette(
        routes=[
            Route("/", _file("chat.html")),
            Route("/chat.css", _file("chat.css")),
            Route("/chat.js", _file("chat.js")),
            Route("/api/live", _answered(page.live)),
            Route("/api/messages", _answered(page.say), methods=["POST"]),
            Route("/api/service", _answered(page.service), methods=["POST"]),
            Route("/api/skip", _answered(page.skip), methods=["POST"]),
        ]
    )
    jobs = mission_control(stage.gateway.forge, hosts=_HOSTS, title="Jobs of the demo")
    return Starlette(routes=[Mount("/jobs", app=jobs), Mount("/", app=_Guard(own))])


class _Page:
    def __init__(self, stage: "DemoEnvironment") -> None:
        self._stage = stage

    async def live(self, request: Request) -> Any:
        """What happened in a chat after entry ``after``, and how its last message fares; a second
        at most is waited for news."""
        slug = request.query_params.get("bot", "")
        after = int(request.query_params.get("after", "0"))
        chat = self._stage.chat(slug)
        if len(chat.entries) <= after:
            try:
                async with asyncio.timeout(_WAIT_S):
                    await chat.changed.wait()
            except TimeoutError:
                pass
        told = await self._stage.told(slug)
        return {
            "entries": [one.shown() for one in chat.entries[after:]],
            "job": None if told is None else msgspec.to_builtins(told),
            "service": self._stage.shop.running,
        }

    async def say(self, request: Request) -> Any:
        """The person writes."""
        body = await _body(request)
        text = str(body.get("text", "")).strip()[:TEXT_LONGEST]
        if not text:
            raise ValueError("text is empty: write something")
        return {"update_id": self._stage.say(str(body.get("bot", "")), text)}

    async def service(self, request: Request) -> Any:
        """Stop or start the service behind the shop bot."""
        body = await _body(request)
        if body.get("running") is True:
            await self._stage.shop.start()
        else:
            await self._stage.shop.stop()
        return {"service": self._stage.shop.running}

    async def skip(self, request: Request) -> Any:
        """Let the time until the next try pass."""
        body = await _body(request)
        return {"leapt_s": await self._stage.skip(str(body.get("bot", "")))}


def _file(name: str) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        path = _FILES / name
        return Response(path.read_bytes(), media_type=_KINDS[path.suffix])

    return answer


def _answered(do: Callable[[Request], Awaitable[Any]]) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        try:
            return JSONResponse(await do(request))
        except KeyError as error:
            return JSONResponse({"error": f"there is no bot {error.args[0]!r}"}, 404)
        except (ValueError, msgspec.MsgspecError) as error:
            return JSONResponse({"error": str(error)}, 400)
        except OSError:
            return JSONResponse({"error": "the port of the service is taken by now"}, 409)

    return answer


async def _body(request: Request) -> dict[str, Any]:
    found: Any = msgspec.json.decode(await request.body())
    if not isinstance(found, dict):
        raise ValueError("the body must be a JSON object")
    return cast("dict[str, Any]", found)


class _Guard:
    """Only this machine's own page: another name or another site is refused."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def dressed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
            await send(message)

        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if host.rpartition(":")[0] not in _HOSTS and host not in _HOSTS:
            refusal = PlainTextResponse("this name is not served here\n", 421)
            await refusal(scope, receive, dressed)
        elif scope["method"] == "POST" and not _from_here(headers, host):
            refusal = PlainTextResponse("this request came from another site\n", 403)
            await refusal(scope, receive, dressed)
        else:
            await self._app(scope, receive, dressed)


def _from_here(headers: Headers, host: str) -> bool:
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    origin = headers.get("origin")
    return origin is None or urlsplit(origin).netloc == host
