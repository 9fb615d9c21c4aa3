"""Whose time it is: the server's, unless a test has put a clock in place."""

from forge_jobs.core.instant import Instant
from forge_jobs.kit.clock import Clock, is_machine_time


class StoreClock:
    """The source of store time."""

    __slots__ = ("_clock",)

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def bind(self) -> Instant | None:
        """The instant to bind into a statement; None leaves it to ``clock_timestamp()``.

        Decided at each call: a test may swap the clock of a Forge whose store is open.
        """
        return None if is_machine_time(self._clock) else self._clock.now()
