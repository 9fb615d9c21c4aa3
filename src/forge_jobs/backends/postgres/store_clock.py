"""The source of store time: the server's clock, unless a test has set another one."""

from forge_jobs.core.instant import Instant
from forge_jobs.kit.clock import Clock, is_machine_time


class StoreClock:
    """Store time as an argument of statements."""

    __slots__ = ("_clock",)

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def bind(self) -> Instant | None:
        """The instant to bind into a statement; None: the server uses ``clock_timestamp()``.

        Decided at each call, because a test may replace the clock of an open store.
        """
        return None if is_machine_time(self._clock) else self._clock.now()
