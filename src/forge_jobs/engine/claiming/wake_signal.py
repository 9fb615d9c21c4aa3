"""Wakes the exchange loop, from the job loop only; other threads go through ``JobLoop.post``."""

import asyncio


class WakeSignal:
    """An event for one waiter: many notifications wake it once, an early one is remembered.

    Unlike ``kit.wake.WakeFlag``, notifying again costs one attribute access, which the hot path
    needs.
    """

    __slots__ = ("_loop", "_notified", "_waiter")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._notified = False
        self._waiter: asyncio.Future[None] | None = None

    def notify(self) -> None:
        """Wake the waiter. Call it on the loop's own thread."""
        if self._notified:
            return
        self._notified = True
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def wait(self, timeout_s: float | None) -> None:
        """Wait for a notification, at most ``timeout_s`` seconds."""
        if self._notified:
            self._notified = False
            return
        self._waiter = waiter = self._loop.create_future()
        timer = None if timeout_s is None else self._loop.call_later(timeout_s, self.notify)
        try:
            await waiter
        finally:
            if timer is not None:
                timer.cancel()
            self._waiter = None
            self._notified = False
