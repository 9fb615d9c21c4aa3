"""Writes large batches of endings in calls of their own, while the pump's call claims.

Only where the store works apart from this process, and only endings that say "done": such a job is
not claimed again, so that the two calls never meet in a row. Everything else stays with the pump,
in one call with the claims.
"""

import asyncio
from collections.abc import Awaitable, Callable

from .finish_buffer import Batch, FinishBuffer


class BackgroundFinisher:
    """At most one call under way. ``write`` never raises; ``may_go_on`` is asked between calls."""

    def __init__(
        self,
        finish_buffer: FinishBuffer,
        write: Callable[[Batch], Awaitable[None]],
        may_go_on: Callable[[], bool],
        *,
        least: int,
    ) -> None:
        """``least``: endings below which the price of a second call is more than it saves."""
        self._finish_buffer = finish_buffer
        self._write = write
        self._may_go_on = may_go_on
        self._least = least
        self._task: asyncio.Task[None] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a call is under way."""
        return self._task is not None

    def takes(self, batch: Batch, asked: int) -> bool:
        """Write this, and after it what gathers meanwhile; False if the pump had better do it."""
        if asked < self._least or not batch.is_plain(self._least) or not self._may_go_on():
            return False
        self._task = asyncio.create_task(self._go(batch), name="forge-beside")
        return True

    async def settled(self) -> None:
        """Until no call is under way."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def end(self) -> None:
        """Give up what is under way; nothing is when this returns."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _go(self, batch: Batch) -> None:
        try:
            await self._write(batch)
            while self._may_go_on() and self._finish_buffer.has_plain(self._least):
                await self._write(self._finish_buffer.take())
        finally:
            self._task = None
            self._finish_buffer.notify()
