"""The clock port: the only module that reads the system's clocks or sleeps."""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """The time source of the package.

    A clock that delegates to another one names it in ``source``: see ``is_machine_time``.

    >>> SYSTEM_CLOCK.now() > 1_700_000_000_000_000  # microseconds since 1970
    True
    """

    def now(self) -> int:
        """Wall time: microseconds since 1970, UTC."""
        ...

    def mono(self) -> float:
        """Monotonic time in seconds, which also advances while the machine is suspended."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Suspend this task; other tasks run meanwhile."""
        ...

    def pause(self, seconds: float) -> None:
        """Block this thread."""
        ...


# A lease is checked by elapsed time. CLOCK_MONOTONIC stops while a laptop is suspended, and a
# resumed worker would trust a lease that has expired.
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
    """Whether ``clock`` is the machine's clock at this moment, directly or through ``source``.

    If so, a store with a clock of its own (Postgres) uses the store clock instead, because a
    machine's clock may be wrong. Any other clock was set by a test and takes precedence over the
    store clock. Evaluate this at each call: a test may replace the clock of a running Forge and
    restore it later.
    """
    return clock is SYSTEM_CLOCK or getattr(clock, "source", None) is SYSTEM_CLOCK
