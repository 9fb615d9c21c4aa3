"""The only place that reads a clock or sleeps."""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Time as the rest of the package sees it."""

    def now(self) -> int:
        """Wall time: microseconds since 1970, UTC."""
        ...

    def mono(self) -> float:
        """Seconds that never jump and that go on while the machine is suspended."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Let other tasks run for that long."""
        ...

    def pause(self, seconds: float) -> None:
        """Block this thread for that long."""
        ...


# A lease is judged by elapsed time; CLOCK_MONOTONIC stands still while a laptop is suspended,
# and a resumed worker would believe that its lease still holds.
_MONO = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """The machine's own clocks."""

    __slots__ = ()

    def now(self) -> int:
        return time.time_ns() // 1000

    def mono(self) -> float:
        return time.clock_gettime(_MONO)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)


SYSTEM_CLOCK: Clock = SystemClock()
