"""Wakes the pump, from the job loop only; others go through ``JobLoop.post``."""

import asyncio


class WakeSignal:
    """Rung many times, heard once; a ring that nobody waits for is kept.

    Unlike ``kit.wake.WakeFlag`` it costs nothing but an attribute while it is already rung, which
    is what the hot path needs.
    """

    __slots__ = ("_loop", "_notified", "_waiter")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._notified = False
        self._waiter: asyncio.Future[None] | None = None

    def notify(self) -> None:
        """Wake the waiter; on the loop's own thread only."""
        if self._notified:
            return
        self._notified = True
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def wait(self, timeout_s: float | None) -> None:
        """Until rung, or for ``timeout_s`` seconds."""
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
