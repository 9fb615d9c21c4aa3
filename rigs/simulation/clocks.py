"""Clocks of the simulation: one virtual time, and a skewed wall clock per machine.

The store has its own clock. The wall clock of every node is wrong by some amount and is sometimes
set to another value. Elapsed time is the same for all.
"""

import asyncio

from forge_jobs.core.instant import SECOND

START_TIME = 1_767_258_000 * SECOND


async def pass_time(seconds: float) -> None:
    """Sleep in virtual time; zero only yields to other tasks."""
    await asyncio.sleep(seconds)


class SimClock:
    """A Clock on the loop's virtual time; ``skew_s`` is how far the wall clock is off."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, skew_s: float = 0.0) -> None:
        self._loop = loop
        self.skew_s = skew_s

    def now(self) -> int:
        return START_TIME + round((self._loop.time() + self.skew_s) * SECOND)

    def mono(self) -> float:
        return 1_000.0 + self._loop.time()

    async def sleep(self, seconds: float) -> None:
        await pass_time(seconds)

    def pause(self, seconds: float) -> None:
        raise RuntimeError(f"a pause of {seconds} s would block every node of the simulation")
