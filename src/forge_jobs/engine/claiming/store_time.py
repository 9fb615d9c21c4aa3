"""Store time by the steady clock of this process."""

from forge_jobs.core.instant import SECOND, Instant
from forge_jobs.kit.clock import Clock


class StoreTime:
    """What time it is in the store, from the last reply of an exchange.

    Only the monotonic clock is used after the first reply: neither a wrong wall clock of this host
    nor one that is set back reaches what is computed from store time. ``skew_s`` is store time
    minus ``clock.mono()``, for the hot path.
    """

    __slots__ = ("_clock", "_seen_at", "_seen_now", "skew_s")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen_now: Instant | None = None
        self._seen_at = 0.0
        self.skew_s = 0.0

    def observe(self, now: Instant, mono: float) -> None:
        """The store said ``now`` in a reply that arrived at ``mono``."""
        self._seen_now = now
        self._seen_at = mono
        self.skew_s = now / SECOND - mono

    def now(self) -> Instant:
        """Store time; before the first reply the wall clock of this host."""
        if self._seen_now is None:
            return self._clock.now()
        return self._seen_now + int((self._clock.mono() - self._seen_at) * SECOND)
