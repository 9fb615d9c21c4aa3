"""A webhook receiver: records updates and returns prepared responses."""

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.gateway.fake_api import serve_app


@dataclass
class Receiver:
    """``answers`` are used in order, then every response is 200. ``hold`` delays responses."""

    url: str = ""
    got: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    answers: deque[tuple[int, dict[str, str], Any]] = field(default_factory=deque)
    hold: asyncio.Event | None = None
    now: int = 0
    max_parallel: int = 0

    def say(self, status: int, body: Any = None, **headers: str) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.answers.append((status, named, body))

    def texts(self) -> list[str]:
        return [update["message"]["text"] for update in self.got if "message" in update]

    async def receive(self, request: Request) -> Response:
        self.got.append(await request.json())
        self.headers.append(dict(request.headers))
        answer = self.answers.popleft() if self.answers else (200, {}, None)
        self.now += 1
        self.max_parallel = max(self.max_parallel, self.now)
        if self.hold is not None:
            await self.hold.wait()
        self.now -= 1
        status, headers, body = answer
        if body is None:
            return Response(status_code=status, headers=headers)
        return Response(json.dumps(body), status, {"content-type": "application/json", **headers})


@asynccontextmanager
async def receiver() -> AsyncGenerator[Receiver, None]:
    made = Receiver()
    app = Starlette(routes=[Route("/hook", made.receive, methods=["POST"])])
    async with serve_app(app) as base:
        made.url = f"{base}/hook"
        yield made
