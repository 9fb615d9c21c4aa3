"""A circuit breaker per bot: a dead service must not eat the attempts of all its updates."""

from typing import Final

from forge_jobs import Clock

FAILURES_MOST: Final = 10
OPEN_S: Final = 30.0


class Breaker:
    """Opens after ten failures in a row; after 30 s one update tries again."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures = 0
        self._open_until = 0.0

    @property
    def is_open(self) -> bool:
        """Whether updates are held back."""
        return self.wait_s() > 0

    def wait_s(self) -> float:
        """How long to hold updates back; 0 while the service may be asked."""
        return max(self._open_until - self._clock.mono(), 0.0)

    def worked(self) -> None:
        """The service answered, with whatever."""
        self._failures = 0

    def failed(self) -> None:
        """The service did not do its part."""
        self._failures += 1
        if self._failures >= FAILURES_MOST:
            self._open_until = self._clock.mono() + OPEN_S
