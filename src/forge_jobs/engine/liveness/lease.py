"""The heartbeat of a process: how long it may trust that its jobs are its own.

Runs on the I/O port, so that a handler that blocks the job loop does not look dead. Trust counts
from the moment a beat was *sent*: an answer that took long must not stretch it.
"""

import asyncio
import logging
from collections.abc import Callable

from forge_jobs.engine.running.run import NEVER
from forge_jobs.kit.clock import Clock
from forge_jobs.kit.entropy import Entropy
from forge_jobs.kit.wake import WakeFlag
from forge_jobs.store.processes import ProcessStats, ProcessStore

from .lease_state import LeaseState

_LOG = logging.getLogger("forge_jobs.lease")
_BEATS_PER_LEASE = 5
_MIN_BEATS = 3
_MAX_RETRY_S = 1.0


class ProcessLease:
    """Keeps ``standing`` true. ``news`` is called, on the I/O side, when trust comes or goes."""

    def __init__(
        self,
        processes: ProcessStore,
        standing: LeaseState,
        *,
        lease_s: float,
        beat_s: float | None = None,
        clock: Clock,
        entropy: Entropy,
        stats: Callable[[], ProcessStats],
        news: Callable[[], None],
    ) -> None:
        self._processes = processes
        self._standing = standing
        self._lease_s = lease_s
        self._beat_s = min(beat_s or lease_s / _BEATS_PER_LEASE, lease_s / _MIN_BEATS)
        self._mono = clock.mono
        self._entropy = entropy
        self._stats = stats
        self._news = news
        self._flag: WakeFlag | None = None
        self._key: int | None = None
        self.unbroken_since = -NEVER

    def begin(self, key: int, sent_at: float) -> None:
        """The process was registered under ``key`` by a call sent at that moment."""
        self._key = key
        self.unbroken_since = -NEVER
        self._standing.trust_until = sent_at + self._lease_s
        self._standing.dead = False
        self.hurry()

    def hurry(self) -> None:
        """Beat now: there is something to tell. From any thread."""
        if self._flag is not None:
            self._flag.notify()

    def doubt(self) -> None:
        """The store does not hold us for alive: either the lease ran out, which a beat mends, or
        somebody declared us dead, which a beat tells. Nothing starts before that."""
        self._standing.trust_until = -NEVER
        self.hurry()

    async def keep(self) -> None:
        """Beat until cancelled."""
        self._flag = WakeFlag()
        while True:
            await self._flag.wait(await self._heartbeat())

    async def _heartbeat(self) -> float:
        """One beat; how long to wait until the next."""
        standing, key = self._standing, self._key
        if key is None or standing.dead:
            return self._beat_s
        sent_at = self._mono()
        try:
            async with asyncio.timeout(self._lease_s):
                answer = await self._processes.heartbeat(key, self._stats())
        except Exception as error:
            self.unbroken_since = NEVER
            wait_s = min(self._beat_s / 4, _MAX_RETRY_S) * (0.5 + self._entropy.roll() / 2)
            _LOG.warning(
                "a heartbeat failed",
                extra={"error": f"{type(error).__name__}: {error}", "retry_in": round(wait_s, 3)},
            )
            return wait_s
        if key != self._key:
            return 0.0
        if not answer.alive:
            standing.trust_until = -NEVER
            standing.dead = True
            self._news()
            return self._beat_s
        if self.unbroken_since == NEVER:
            self.unbroken_since = sent_at
        regained = standing.trust_until <= self._mono()
        standing.trust_until = sent_at + self._lease_s
        if regained:
            self._news()
        return self._beat_s
