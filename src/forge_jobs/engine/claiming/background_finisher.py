"""Writes large batches of successes in calls of their own, beside the exchange that claims.

Only where the store is another process, so that both calls make progress at once, and only
finishes with the event "done": such a job is not claimed again, so the two calls never touch the
same row. All other finishes go with the claims, in the exchange loop's own call.
"""

import asyncio
from collections.abc import Awaitable, Callable

from .finish_buffer import Batch, FinishBuffer


class BackgroundFinisher:
    """At most one call at a time. ``write`` must not raise; ``may_continue`` is checked before each
    call."""

    def __init__(
        self,
        finish_buffer: FinishBuffer,
        write: Callable[[Batch], Awaitable[None]],
        may_continue: Callable[[], bool],
        mono: Callable[[], float],
        *,
        min_finishes: int,
    ) -> None:
        """``min_finishes``: below this size a second call costs more than it saves."""
        self._finish_buffer = finish_buffer
        self._write = write
        self._may_continue = may_continue
        self._mono = mono
        self._min_finishes = min_finishes
        self._task: asyncio.Task[None] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a call is in flight."""
        return self._task is not None

    def start(self, batch: Batch, wanted: int) -> bool:
        """Write this batch, and then what gathers meanwhile.

        False, and nothing is done, if the exchange loop should write it.
        """
        if (
            wanted < self._min_finishes
            or not batch.is_all_done(self._min_finishes)
            or not self._may_continue()
        ):
            return False
        self._task = asyncio.create_task(self._run(batch), name="forge-background-finisher")
        return True

    async def wait(self) -> None:
        """Wait until no call is in flight."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def cancel(self) -> None:
        """Cancel the call in flight; none is when this returns."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self, batch: Batch) -> None:
        try:
            await self._write(batch)
            while self._may_continue() and self._finish_buffer.has_all_done(self._min_finishes):
                await self._write(self._finish_buffer.take(now=self._mono()))
        finally:
            self._task = None
            self._finish_buffer.notify()
