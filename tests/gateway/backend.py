"""A service for the http handler: records requests and returns prepared responses."""

from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.gateway.fake_api import serve_app


@dataclass
class Backend:
    """``answers`` are (status, body, headers), used in order; the last one is repeated."""

    url: str = ""
    answers: deque[tuple[int, bytes, dict[str, str]]] = field(default_factory=deque)
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)

    def say(self, status: int, body: bytes = b"", **headers: str) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.answers.append((status, body, named))

    async def answer(self, request: Request) -> Response:
        self.got.append((dict(request.headers), await request.body()))
        status, body, headers = self.answers.popleft() if len(self.answers) > 1 else self.answers[0]
        return Response(body, status, headers)


@asynccontextmanager
async def backend() -> AsyncGenerator[Backend, None]:
    made = Backend()
    app = Starlette(routes=[Route("/update", made.answer, methods=["POST"])])
    async with serve_app(app) as base:
        made.url = f"{base}/update"
        yield made
