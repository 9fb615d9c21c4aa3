"""A circuit breaker per bot: limits how often a failing service is called.

It delays updates and spends none of their attempts, and it holds none of them back for good: during
an outage every update gets all of its attempts. Each process counts failures by itself. An open
breaker throttles the bot's queue for all processes.
"""

import logging
from typing import Final

from forge_jobs import Clock

MAX_FAILURES: Final = 10
OPEN_S: Final = 10.0
_LOG: Final = logging.getLogger("telegram_gateway.breaker")


class Breaker:
    """Opens for ten seconds after every ten consecutive failures."""

    def __init__(self, clock: Clock, slug: str) -> None:
        self._clock = clock
        self._slug = slug
        self._failures = 0
        self._open_until = 0.0

    @property
    def is_open(self) -> bool:
        """Whether updates are delayed."""
        return self.wait_s() > 0

    def wait_s(self) -> float:
        """0 if the service may be called now, else for how many seconds to delay the update."""
        return max(self._open_until - self._clock.mono(), 0.0)

    def record_success(self) -> None:
        """The service responded, with success or a final refusal."""
        if self._failures >= MAX_FAILURES:
            _LOG.info("bot %s: its service responds again", self._slug)
        self._failures = 0
        self._open_until = 0.0

    def record_failure(self) -> None:
        """The service failed or did not respond."""
        self._failures += 1
        if self._failures % MAX_FAILURES:
            return
        self._open_until = self._clock.mono() + OPEN_S
        if self._failures == MAX_FAILURES:
            _LOG.warning(
                "bot %s: its service failed %d times in a row: from now on at most %d of its "
                "updates are tried every %g s, until one succeeds",
                self._slug,
                MAX_FAILURES,
                MAX_FAILURES,
                OPEN_S,
            )
