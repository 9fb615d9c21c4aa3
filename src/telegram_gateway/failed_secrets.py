"""Who comes with wrong secrets too often.

Only failures are counted and turned away sooner: whoever knows the secret never meets this limit,
even behind the same address as somebody who guesses.
"""

from typing import Final

from forge_jobs import Clock

_WITHIN_S: Final = 60.0
_MAX_FAILURES: Final = 20
_MAX_KEPT: Final = 10_000


class FailedSecrets:
    """Failures per source address, within a minute."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures: dict[str, tuple[float, int]] = {}

    def failed(self, source: str) -> bool:
        """Count one failure; True when that was one too many."""
        now = self._clock.mono()
        since, count = self._failures.get(source, (now, 0))
        if now - since >= _WITHIN_S:
            since, count = now, 0
        if source not in self._failures and len(self._failures) >= _MAX_KEPT:
            self._forget(now)
        self._failures[source] = (since, count + 1)
        return count >= _MAX_FAILURES

    def _forget(self, now: float) -> None:
        recent = {
            source: found for source, found in self._failures.items() if now - found[0] < _WITHIN_S
        }
        # Under an attack from everywhere nothing is old: then all begin anew.
        self._failures = recent if len(recent) < _MAX_KEPT else {}
