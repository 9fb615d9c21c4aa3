"""An ASGI wrapper whose streaming responses can be ended, so that open pages do not delay exit."""

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class ClosableApp:
    """Wraps an application; ``end`` ends its responses in progress."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._closed = asyncio.Event()

    def end(self) -> None:
        """End all responses in progress."""
        self._closed.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def send_and_note(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        response = asyncio.ensure_future(self._run_app(scope, receive, send_and_note))
        closed = asyncio.ensure_future(self._closed.wait())
        try:
            await asyncio.wait({response, closed}, return_when=asyncio.FIRST_COMPLETED)
            if response.done():
                response.result()
                return
            response.cancel()
            await asyncio.wait({response})
            if started:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            closed.cancel()
            response.cancel()

    async def _run_app(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)
