"""Streams that end when the demo ends: a page that is open somewhere must not hold it up."""

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class ClosableApp:
    """An application whose answers under way are brought to an end by ``end``."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._over = asyncio.Event()

    def end(self) -> None:
        """No answer goes on."""
        self._over.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def watched(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        answering = asyncio.ensure_future(self._answered(scope, receive, watched))
        over = asyncio.ensure_future(self._over.wait())
        try:
            await asyncio.wait({answering, over}, return_when=asyncio.FIRST_COMPLETED)
            if answering.done():
                answering.result()
                return
            answering.cancel()
            await asyncio.wait({answering})
            if begun:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            over.cancel()
            answering.cancel()

    async def _answered(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)
