"""A minimal Bot API for the gateway's tests: records calls and returns prepared responses."""

import asyncio
import socket
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route


@dataclass
class FakeApi:
    """``calls`` are (token, method, parameters); ``faults`` are answered first, in order.

    ``refusal``: the error code of every method, as for an invalid token. ``rate_limited``: how many
    calls of setWebhook get a 429.
    """

    base: str = ""
    calls: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    faults: deque[tuple[int, dict[str, Any]]] = field(default_factory=deque)
    updates: list[dict[str, Any]] = field(default_factory=list)
    webhook: dict[str, Any] = field(default_factory=dict)
    refusal: int = 0
    rate_limited: int = 0

    def texts(self, method: str = "sendMessage") -> list[str]:
        return [said["text"] for _, name, said in self.calls if name == method and "text" in said]

    def methods(self) -> list[str]:
        return [name for _, name, _ in self.calls]

    async def answer(self, request: Request) -> Response:
        token, method = request.path_params["token"], request.path_params["method"]
        body = await request.body()
        parameters = await request.json() if body else {}
        if self.refusal:
            answer = {"ok": False, "error_code": self.refusal, "description": "no such bot"}
            return JSONResponse(answer, self.refusal)
        if method.startswith("send") and self.faults:
            status, answer = self.faults.popleft()
            return JSONResponse({"ok": False, "error_code": status, **answer}, status)
        if method == "setWebhook" and self.rate_limited:
            self.rate_limited -= 1
            wait = {"error_code": 429, "parameters": {"retry_after": 1}}
            return JSONResponse({"ok": False, **wait}, 429)
        self.calls.append((token, method, parameters))
        return JSONResponse({"ok": True, "result": self._result(method, parameters)})

    def _result(self, method: str, parameters: dict[str, Any]) -> Any:
        match method:
            case "setWebhook":
                self.webhook = parameters
                return True
            case "getWebhookInfo":
                return {**self.webhook, "pending_update_count": len(self.updates)}
            case "getUpdates":
                offset = parameters.get("offset", 0)
                return [update for update in self.updates if update["update_id"] >= offset]
            case _:
                return {"message_id": len(self.calls)}


@asynccontextmanager
async def serve_app(app: Any) -> AsyncGenerator[str, None]:
    """An application on a free port of this machine."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off", access_log=False))
    server.capture_signals = _no_signals  # type: ignore[method-assign]
    running = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        async with asyncio.timeout(60):
            while not server.started:
                await asyncio.sleep(0.01)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await running
        listener.close()


@asynccontextmanager
async def fake_api() -> AsyncGenerator[FakeApi, None]:
    fake = FakeApi()
    routes = [Route("/bot{token}/{method}", fake.answer, methods=["GET", "POST"])]
    async with serve_app(Starlette(routes=routes)) as base:
        fake.base = base
        yield fake


class _NoSignals:
    def __enter__(self) -> None:
        return

    def __exit__(self, *_: object) -> None:
        return


def _no_signals() -> _NoSignals:
    return _NoSignals()


async def until(found: Callable[[], bool], within_s: float = 60) -> None:
    async with asyncio.timeout(within_s):
        while not found():
            await asyncio.sleep(0.01)
