"""``WakeFlag``: a thread-safe wake-up of one waiting task."""

import asyncio
import contextlib


class WakeFlag:
    """An event that coalesces: any number of ``notify`` calls wake the waiter once.

    ``notify`` is thread-safe and never blocks. The flag stays set until the next ``wait``, so a
    notification between the waiter's query and its ``wait`` is not lost.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._loop = loop or asyncio.get_running_loop()
        self._event = asyncio.Event()
        self._is_set = False

    def notify(self) -> None:
        """Wake the waiter, or make its next ``wait`` return at once."""
        if self._is_set:
            return
        self._is_set = True
        # RuntimeError: the loop is closed, so no task waits.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for a notification (True) or until ``timeout_s`` has passed (False)."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._event.wait()
        except TimeoutError:
            return False
        finally:
            self.clear()
        return True

    def clear(self) -> None:
        """Drop earlier notifications. For a caller that queries the store next anyway."""
        self._is_set = False
        self._event.clear()
