"""Lets an ASGI application answer a request of Django: its response becomes one of Django."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, MutableMapping
from importlib import import_module
from typing import Any, Final

_http: Any = import_module("django.http")
_Message = MutableMapping[str, Any]
# The application waits for a reader that is this many pieces behind.
_MAX_PIECES: Final = 16


async def respond(app: Any, scope: dict[str, Any], body: bytes) -> Any:
    """Call the application; a body in one piece becomes a plain response, a longer one a stream
    that ends the application when its reader goes away."""
    call = _Call(body)
    task = asyncio.ensure_future(app(scope, call.receive, call.send))
    call.end_with(task)
    start = await call.next(task)
    first = await call.next(task)
    content = {name.decode("latin-1"): value.decode("latin-1") for name, value in start["headers"]}
    if not first.get("more_body", False):
        await task
        response = _http.HttpResponse(first.get("body", b""), status=start["status"])
    else:
        pieces = call.pieces(first, task)
        response = _http.StreamingHttpResponse(pieces, status=start["status"])
    if "content-type" not in content:
        del response.headers["content-type"]
    for name, value in content.items():
        response.headers[name] = value
    return response


class _Call:
    """The messages of one call."""

    def __init__(self, body: bytes) -> None:
        self._body: bytes | None = body
        self._sent: asyncio.Queue[_Message] = asyncio.Queue(_MAX_PIECES)
        self._gone = asyncio.Event()

    def end_with(self, task: "asyncio.Future[None]") -> None:
        """A call that ends early, or fails, is not waited for any longer."""
        task.add_done_callback(lambda _: self._gone.set())

    async def receive(self) -> _Message:
        """The body, then the end of the connection."""
        body, self._body = self._body, None
        if body is not None:
            return {"type": "http.request", "body": body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: _Message) -> None:
        """Keep a message for the response."""
        await self._sent.put(message)

    async def next(self, task: "asyncio.Future[None]") -> _Message:
        """The next message; raises what the application raised instead of sending one."""
        getting = asyncio.ensure_future(self._sent.get())
        await asyncio.wait({getting, task}, return_when=asyncio.FIRST_COMPLETED)
        if getting.done():
            return getting.result()
        with contextlib.suppress(asyncio.QueueEmpty):
            getting.cancel()
            return self._sent.get_nowait()
        task.result()
        raise RuntimeError("the application ended without a response")

    async def pieces(
        self, first: _Message, task: "asyncio.Future[None]"
    ) -> AsyncGenerator[bytes, None]:
        """The body; the application is ended with the generator."""
        message = first
        try:
            while True:
                if message.get("body"):
                    yield message["body"]
                if not message.get("more_body", False):
                    return
                message = await self.next(task)
        finally:
            self._gone.set()
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
