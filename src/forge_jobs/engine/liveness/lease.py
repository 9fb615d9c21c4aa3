"""Renews the process lease by heartbeats, and keeps the trust window of the process.

Runs on the I/O port, so that a handler that blocks the job loop does not make the process look
dead. Trust counts from the moment a heartbeat was *sent*: a slow reply must not extend it.
"""

import asyncio
import logging
from collections.abc import Callable

from forge_jobs.engine.running.run import NEVER
from forge_jobs.kit.clock import Clock
from forge_jobs.kit.entropy import Entropy
from forge_jobs.kit.log import log_facts
from forge_jobs.kit.wake import WakeFlag
from forge_jobs.store.processes import ProcessStats, ProcessStore

from .lease_state import LeaseState

_LOG = logging.getLogger("forge_jobs.lease")
_HEARTBEATS_PER_LEASE = 5
_MIN_HEARTBEATS = 3
_MAX_RETRY_S = 1.0


class ProcessLease:
    """Updates ``lease_state``. ``on_change`` is called on the I/O side when trust is regained, or
    when the process was declared dead."""

    def __init__(
        self,
        processes: ProcessStore,
        lease_state: LeaseState,
        *,
        lease_s: float,
        interval_s: float | None = None,
        clock: Clock,
        entropy: Entropy,
        stats: Callable[[], ProcessStats],
        on_change: Callable[[], None],
    ) -> None:
        self._processes = processes
        self._lease_state = lease_state
        self._lease_s = lease_s
        self._interval_s = min(
            interval_s or lease_s / _HEARTBEATS_PER_LEASE, lease_s / _MIN_HEARTBEATS
        )
        self._mono = clock.mono
        self._entropy = entropy
        self._stats = stats
        self._on_change = on_change
        self._flag: WakeFlag | None = None
        self._key: int | None = None
        self.unbroken_since = -NEVER
        # Of the last heartbeat; None if it succeeded.
        self.error: Exception | None = None

    def start(self, key: int, sent_at: float) -> None:
        """Begin to renew: a call sent at ``sent_at`` registered the process under ``key``."""
        self._key = key
        self.unbroken_since = -NEVER
        self._lease_state.trust_until = sent_at + self._lease_s
        self._lease_state.dead = False
        self.beat_now()

    def beat_now(self) -> None:
        """Send a heartbeat now, because there is news for others. May be called from any thread."""
        if self._flag is not None:
            self._flag.notify()

    def distrust(self) -> None:
        """The store does not count this process as alive: no job starts until a heartbeat has
        either renewed an expired lease or reported that the process was declared dead."""
        self._lease_state.trust_until = -NEVER
        self.beat_now()

    async def run(self) -> None:
        """Send heartbeats until cancelled."""
        self._flag = WakeFlag()
        while True:
            await self._flag.wait(await self._heartbeat())

    async def _heartbeat(self) -> float:
        """Send one heartbeat; returns how long to wait until the next."""
        lease_state, key = self._lease_state, self._key
        if key is None or lease_state.dead:
            return self._interval_s
        sent_at = self._mono()
        try:
            async with asyncio.timeout(self._lease_s):
                reply = await self._processes.heartbeat(key, self._stats())
        except Exception as error:
            self.unbroken_since = NEVER
            self.error = error
            wait_s = min(self._interval_s / 4, _MAX_RETRY_S) * (0.5 + self._entropy.roll() / 2)
            log_facts(
                _LOG, logging.WARNING, "a heartbeat failed",
                error=f"{type(error).__name__}: {error}", retry_in=round(wait_s, 3),
            )  # fmt: skip
            return wait_s
        self.error = None
        if key != self._key:
            return 0.0
        if not reply.alive:
            lease_state.trust_until = -NEVER
            lease_state.dead = True
            self._on_change()
            return self._interval_s
        if self.unbroken_since == NEVER:
            self.unbroken_since = sent_at
        regained = lease_state.trust_until <= self._mono()
        lease_state.trust_until = sent_at + self._lease_s
        if regained:
            self._on_change()
        return self._interval_s
