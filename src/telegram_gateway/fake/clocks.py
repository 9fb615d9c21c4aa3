"""Clocks that shorten waits, for tests and demos with retries after an hour."""

import asyncio
import threading
from collections.abc import Callable

from forge_jobs import SYSTEM_CLOCK, Clock

_SECOND = 1_000_000


class FastClock:
    """Makes sleeps ``speed`` times as short; the wall clock is unchanged, and so are dates."""

    def __init__(self, speed: float, clock: Clock = SYSTEM_CLOCK) -> None:
        if speed <= 0:
            raise ValueError("speed must be above zero")
        self._speed = speed
        self._clock = clock

    def now(self) -> int:
        return self._clock.now()

    def mono(self) -> float:
        return self._clock.mono() * self._speed

    async def sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds / self._speed)

    def pause(self, seconds: float) -> None:
        self._clock.pause(seconds / self._speed)


class LeapClock:
    """The system's time plus the leaps so far. A leap wakes sleepers whose time has come.

    Wall clock and monotonic clock leap together.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._ahead_s = 0.0
        self._wakers: dict[object, Callable[[], None]] = {}

    def now(self) -> int:
        return SYSTEM_CLOCK.now() + round(self._ahead_s * _SECOND)

    def mono(self) -> float:
        return SYSTEM_CLOCK.mono() + self._ahead_s

    def leap(self, seconds: float) -> None:
        """Advance both clocks by that many seconds."""
        if seconds < 0:
            raise ValueError("seconds must not be negative")
        with self._guard:
            self._ahead_s += seconds
            wakers = list(self._wakers.values())
        for wake in wakers:
            wake()

    async def sleep(self, seconds: float) -> None:
        loop, leapt = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(leapt.set)

        key, end = object(), self.mono() + seconds
        with self._guard:
            self._wakers[key] = wake
        try:
            while (left_s := end - self.mono()) > 0:
                leapt.clear()
                try:
                    async with asyncio.timeout(left_s):
                        await leapt.wait()
                except TimeoutError:
                    continue
            if seconds <= 0:
                await SYSTEM_CLOCK.sleep(0)
        finally:
            with self._guard:
                del self._wakers[key]

    def pause(self, seconds: float) -> None:
        leapt, key, end = threading.Event(), object(), self.mono() + seconds
        with self._guard:
            self._wakers[key] = leapt.set
        try:
            while (left_s := end - self.mono()) > 0:
                leapt.clear()
                leapt.wait(left_s)
        finally:
            with self._guard:
                del self._wakers[key]
