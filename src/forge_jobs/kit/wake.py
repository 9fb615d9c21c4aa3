"""A wake-up flag that any thread may raise and one task waits for."""

import asyncio
import contextlib


class WakeFlag:
    """Raised many times, seen once.

    ``notify`` is safe from any thread and never blocks. One that nobody waits for is kept for the
    next ``wait``, so a hint between a look and a wait is not lost.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._loop = loop or asyncio.get_running_loop()
        self._event = asyncio.Event()
        self._raised = False

    def notify(self) -> None:
        """Wake the waiter, or leave the flag up for it."""
        if self._raised:
            return
        self._raised = True
        # A loop that is already closed has nobody left to wake.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Until rung (True) or for ``timeout_s`` seconds (False)."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._event.wait()
        except TimeoutError:
            return False
        finally:
            self.clear()
        return True

    def clear(self) -> None:
        """Forget rings so far; the caller is about to look for itself."""
        self._raised = False
        self._event.clear()
