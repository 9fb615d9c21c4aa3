"""A circuit breaker per bot: a dead service must not eat the attempts of all its updates.

Failures are counted in each process; an open breaker closes the bot's queue for all of them.
"""

from typing import Final

from forge_jobs import Clock

MAX_FAILURES: Final = 10
OPEN_S: Final = 30.0
_PROBING_S: Final = 1.0


class Breaker:
    """Opens after ten failures in a row; after 30 s one update tries, the others wait for it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures = 0
        self._open_until = 0.0
        self._probe_until = 0.0

    @property
    def is_open(self) -> bool:
        """Whether updates are held back."""
        return self._failures >= MAX_FAILURES

    def admit(self) -> float:
        """0 if the service may be asked now; else how long to hold the update back."""
        now = self._clock.mono()
        if not self.is_open:
            return 0.0
        if now < self._open_until:
            return self._open_until - now
        if now < self._probe_until:
            return _PROBING_S
        self._probe_until = now + OPEN_S
        return 0.0

    def worked(self) -> None:
        """The service answered, with whatever."""
        self._failures = 0
        self._probe_until = 0.0

    def failed(self) -> None:
        """The service did not do its part."""
        self._failures += 1
        if self._failures >= MAX_FAILURES:
            self._open_until = self._clock.mono() + OPEN_S
            self._probe_until = 0.0
