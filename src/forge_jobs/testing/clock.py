"""MovableClock: a clock that stands still until a test moves it."""

import asyncio
import heapq
import itertools
import threading
from collections.abc import Callable

SECOND = 1_000_000
DEFAULT_START = 1_767_258_000 * SECOND


class MovableClock:
    """A clock under a test's control; safe for many threads.

    ``now`` and ``mono`` change only by ``advance`` and ``jump``. A sleep ends when the clock was
    moved past its end, and at the latest after its length in real time: code that polls goes on
    polling while the clock stands still, and no sleep can hang.
    """

    def __init__(self, now: int = DEFAULT_START) -> None:
        self._lock = threading.Lock()
        self._now = now
        self._mono = 1_000 * SECOND
        self._sleepers: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def now(self) -> int:
        return self._now

    def mono(self) -> float:
        return self._mono / SECOND

    def advance(self, seconds: float) -> None:
        """Let that much time pass; sleeps that have ended by then return."""
        if seconds < 0:
            raise ValueError("time does not run backwards: use jump to set the wall clock back")
        step = round(seconds * SECOND)
        with self._lock:
            self._now += step
            self._mono += step
            wakers: list[Callable[[], None]] = []
            while self._sleepers and self._sleepers[0][0] <= self._mono:
                wakers.append(heapq.heappop(self._sleepers)[2])
        for wake in wakers:
            wake()

    def jump(self, seconds: float) -> None:
        """Set the wall clock forward or back; the monotonic clock does not change."""
        with self._lock:
            self._now += round(seconds * SECOND)

    async def sleep(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        moved = asyncio.Event()

        def wake() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(moved.set)

        entry = self._add_sleeper(seconds, wake)
        try:
            async with asyncio.timeout(max(seconds, 0.0)):
                await moved.wait()
        except TimeoutError:
            pass
        finally:
            self._remove_sleeper(entry)

    def pause(self, seconds: float) -> None:
        moved = threading.Event()
        entry = self._add_sleeper(seconds, moved.set)
        moved.wait(max(seconds, 0.0))
        self._remove_sleeper(entry)

    def _add_sleeper(
        self, seconds: float, wake: Callable[[], None]
    ) -> tuple[int, int, Callable[[], None]]:
        with self._lock:
            entry = (self._mono + round(seconds * SECOND), next(self._order), wake)
            heapq.heappush(self._sleepers, entry)
        return entry

    def _remove_sleeper(self, entry: tuple[int, int, Callable[[], None]]) -> None:
        with self._lock:
            if entry in self._sleepers:
                self._sleepers.remove(entry)
                heapq.heapify(self._sleepers)
