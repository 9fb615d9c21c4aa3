"""The service behind the demo's http bot: a shop that records orders.

It can be stopped, so that its port refuses connections, and started again.
"""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from telegram_gateway.fake.server import listen, serve_app

_HELLO = "Welcome to the shop. Write what you want, and it is noted."


class Shop:
    """An HTTP service that starts and stops on one port."""

    def __init__(self) -> None:
        self.port = 0
        self._orders = 0
        self._stack: AsyncExitStack | None = None
        self._lock = asyncio.Lock()
        self._app = Starlette(routes=[Route("/telegram", self._receive_order, methods=["POST"])])

    @property
    def running(self) -> bool:
        """Whether the service is listening."""
        return self._stack is not None

    @property
    def url(self) -> str:
        """Where updates are posted to."""
        return f"http://127.0.0.1:{self.port}/telegram"

    async def start(self) -> None:
        """Listen, on the same port as before; OSError if the port is in use."""
        async with self._lock:
            if self._stack is None:
                listener = listen(port=self.port)
                self.port = int(listener.getsockname()[1])
                stack = AsyncExitStack()
                await stack.enter_async_context(serve_app(self._app, listener))
                self._stack = stack

    async def stop(self) -> None:
        """Stop listening."""
        async with self._lock:
            stack, self._stack = self._stack, None
            if stack is not None:
                await stack.aclose()

    async def _receive_order(self, request: Request) -> Response:
        update: Any = msgspec.json.decode(await request.body())
        text = str(update.get("message", {}).get("text", "")).strip()
        if text.startswith("/start"):
            return JSONResponse({"text": _HELLO})
        self._orders += 1
        return JSONResponse({"text": f"Order {self._orders} is noted: {text}"})
