"""A clock that stands still until a test moves it."""

import asyncio
import heapq
import itertools
import threading
from collections.abc import Callable

SECOND = 1_000_000
SOME_MORNING = 1_767_258_000 * SECOND


class MovableClock:
    """Time under a test's control, for one or many threads.

    ``now`` and ``mono`` change only by ``advance`` and ``jump``. A wait ends as soon as the clock
    has been moved past its end, and at the latest after that much real time: a part that polls
    keeps polling although the clock stands still, and nothing can hang on it.
    """

    def __init__(self, now: int = SOME_MORNING) -> None:
        self._guard = threading.Lock()
        self._now = now
        self._mono = 1_000 * SECOND
        self._waiting: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def now(self) -> int:
        return self._now

    def mono(self) -> float:
        return self._mono / SECOND

    def advance(self, seconds: float) -> None:
        """Let that much time pass; whoever waits for less is woken."""
        if seconds < 0:
            raise ValueError("time does not run backwards: use jump to set the wall clock back")
        step = round(seconds * SECOND)
        with self._guard:
            self._now += step
            self._mono += step
            woken: list[Callable[[], None]] = []
            while self._waiting and self._waiting[0][0] <= self._mono:
                woken.append(heapq.heappop(self._waiting)[2])
        for wake in woken:
            wake()

    def jump(self, seconds: float) -> None:
        """Set the wall clock forward or back, as an administrator would; no time passes."""
        with self._guard:
            self._now += round(seconds * SECOND)

    async def sleep(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        moved = asyncio.Event()

        def wake() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(moved.set)

        entry = self._enter(seconds, wake)
        try:
            async with asyncio.timeout(max(seconds, 0.0)):
                await moved.wait()
        except TimeoutError:
            pass
        finally:
            self._forget(entry)

    def pause(self, seconds: float) -> None:
        moved = threading.Event()
        entry = self._enter(seconds, moved.set)
        moved.wait(max(seconds, 0.0))
        self._forget(entry)

    def _enter(
        self, seconds: float, wake: Callable[[], None]
    ) -> tuple[int, int, Callable[[], None]]:
        with self._guard:
            entry = (self._mono + round(seconds * SECOND), next(self._order), wake)
            heapq.heappush(self._waiting, entry)
        return entry

    def _forget(self, entry: tuple[int, int, Callable[[], None]]) -> None:
        with self._guard:
            if entry in self._waiting:
                self._waiting.remove(entry)
                heapq.heapify(self._waiting)
