"""Whose time it is: the server's, unless somebody brings a clock of their own."""

from typing import Protocol

from forge_jobs.core.instant import Instant
from forge_jobs.kit.clock import SYSTEM_CLOCK, Clock


class Present(Protocol):
    """The source of store time."""

    def bind(self) -> Instant | None:
        """The instant to bind into a statement; None leaves it to ``clock_timestamp()``."""
        ...


class ServerTime:
    """One clock for the whole cluster."""

    __slots__ = ()

    def bind(self) -> Instant | None:
        return None


class ClockTime:
    """Time from a given clock: tests and simulations move it."""

    __slots__ = ("_clock",)

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def bind(self) -> Instant | None:
        return self._clock.now()


def present_of(clock: Clock) -> Present:
    """The server's time, unless the clock is not the machine's own."""
    return ServerTime() if clock is SYSTEM_CLOCK else ClockTime(clock)
