"""The service behind the demo's http bot: a shop that notes orders. It can be stopped for good, so
that its port refuses connections, and started again."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from telegram_gateway.fake.server import listen, served

_HELLO = "Welcome to the shop. Write what you want, and it is noted."


class Shop:
    """Runs and stops on one port."""

    def __init__(self) -> None:
        self.port = 0
        self._orders = 0
        self._stack: AsyncExitStack | None = None
        self._turn = asyncio.Lock()
        self._app = Starlette(routes=[Route("/telegram", self._take, methods=["POST"])])

    @property
    def running(self) -> bool:
        """Whether somebody listens."""
        return self._stack is not None

    @property
    def url(self) -> str:
        """Where updates are posted to."""
        return f"http://127.0.0.1:{self.port}/telegram"

    async def start(self) -> None:
        """Listen, on the same port as before; OSError if somebody else took it."""
        async with self._turn:
            if self._stack is None:
                place = listen(port=self.port)
                self.port = int(place.getsockname()[1])
                stack = AsyncExitStack()
                await stack.enter_async_context(served(self._app, place))
                self._stack = stack

    async def stop(self) -> None:
        """Listen no more."""
        async with self._turn:
            stack, self._stack = self._stack, None
            if stack is not None:
                await stack.aclose()

    async def _take(self, request: Request) -> Response:
        update: Any = msgspec.json.decode(await request.body())
        text = str(update.get("message", {}).get("text", "")).strip()
        if text.startswith("/start"):
            return JSONResponse({"text": _HELLO})
        self._orders += 1
        return JSONResponse({"text": f"Order {self._orders} is noted: {text}"})
