"""Limits webhook requests with a wrong secret, per source address.

Only failures are counted and limited. A request with the right secret is never limited, even from
an address that also guesses secrets.
"""

from typing import Final

from forge_jobs import Clock

_WINDOW_S: Final = 60.0
_MAX_FAILURES: Final = 20
_MAX_SOURCES: Final = 10_000


class FailedSecrets:
    """Counts failures per source address within one minute."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures: dict[str, tuple[float, int]] = {}

    def record_failure(self, source: str) -> bool:
        """Count one failure. True when the source is over the limit."""
        now = self._clock.mono()
        since, count = self._failures.get(source, (now, 0))
        if now - since >= _WINDOW_S:
            since, count = now, 0
        if source not in self._failures and len(self._failures) >= _MAX_SOURCES:
            self._drop_old(now)
        self._failures[source] = (since, count + 1)
        return count >= _MAX_FAILURES

    def _drop_old(self, now: float) -> None:
        recent = {
            source: found for source, found in self._failures.items() if now - found[0] < _WINDOW_S
        }
        # In a distributed attack no entry is old enough to drop: then all counts are reset.
        self._failures = recent if len(recent) < _MAX_SOURCES else {}
