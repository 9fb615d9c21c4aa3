"""The only place that reads a clock or sleeps."""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Time as the rest of the package sees it.

    A clock that passes every question on to another one names that one in ``source``: see
    ``is_machine_time``.
    """

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


def is_machine_time(clock: Clock) -> bool:
    """Whether ``clock`` tells the machine's own time at this moment, directly or by its ``source``.

    A store that has a clock of its own follows that one then, since machines may be set wrong. Any
    other clock was put in place by a test, and what it says holds. Ask at each call: a test may
    give a living Forge another clock, and take it away again.
    """
    return clock is SYSTEM_CLOCK or getattr(clock, "source", None) is SYSTEM_CLOCK
