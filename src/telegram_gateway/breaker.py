"""A circuit breaker per bot: an outage of its service must not spend the attempts of its updates.

Each process counts failures by itself. An open breaker throttles the bot's queue for all processes.
"""

from typing import Final

from forge_jobs import Clock

MAX_FAILURES: Final = 10
OPEN_S: Final = 30.0
_PROBE_WAIT_S: Final = 1.0


class Breaker:
    """Opens after ten consecutive failures. After 30 s it lets one update probe the service while
    the others wait for the result."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures = 0
        self._open_until = 0.0
        self._probe_until = 0.0

    @property
    def is_open(self) -> bool:
        """Whether updates are delayed."""
        return self._failures >= MAX_FAILURES

    def acquire_wait_s(self) -> float:
        """0 if the service may be called now, else for how many seconds to delay the update."""
        now = self._clock.mono()
        if not self.is_open:
            return 0.0
        if now < self._open_until:
            return self._open_until - now
        if now < self._probe_until:
            return _PROBE_WAIT_S
        self._probe_until = now + OPEN_S
        return 0.0

    def record_success(self) -> None:
        """The service responded, with success or a final refusal."""
        self._failures = 0
        self._probe_until = 0.0

    def record_failure(self) -> None:
        """The service failed or did not respond."""
        self._failures += 1
        if self._failures >= MAX_FAILURES:
            self._open_until = self._clock.mono() + OPEN_S
            self._probe_until = 0.0
