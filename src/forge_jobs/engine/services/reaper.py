"""Takes jobs from processes that are no longer alive."""

from collections.abc import Callable

from forge_jobs.core.errors import StoreError
from forge_jobs.core.instant import SECOND, Instant
from forge_jobs.kit.clock import Clock
from forge_jobs.kit.service import Next, RunsOn
from forge_jobs.store.job_upkeep import Reaped
from forge_jobs.store.store import Store

CRASH_NOTE = "the worker process died while running this job"
_LIMIT = 500
_TICKS_PER_LEASE = 3
_LATE_S = 0.05


class Reaper:
    """Every process reaps; the next tick is due when the earliest lease expires.

    After an outage of the store all leases have expired. A process that could not write itself
    therefore waits one lease after its own first good heartbeat, so that the others can renew
    theirs.
    """

    name = "reaper"
    runs_on = RunsOn.EVERY_PROCESS

    def __init__(
        self,
        store: Store,
        *,
        lease_s: float,
        clock: Clock,
        store_now: Callable[[], Instant],
        unbroken_since: Callable[[], float],
    ) -> None:
        self._store = store
        self._lease_s = lease_s
        self._mono = clock.mono
        self._store_now = store_now
        self._unbroken_since = unbroken_since
        self._failed_at: float | None = None

    async def tick(self) -> Next:
        """Reap one batch, unless it is too early to tell who is dead."""
        wait_s = self._too_early_s()
        if wait_s > 0:
            return Next.after(min(wait_s, self._lease_s))
        try:
            reaped = await self._store.jobs.reap(crash_note=CRASH_NOTE, limit=_LIMIT)
            expiry = await self._store.processes.next_expiry()
        except StoreError:
            self._failed_at = self._mono()
            raise
        self._failed_at = None
        if reaped.more:
            return Next.again()
        # A backend may know of a death long before the lease expires.
        return Next.after(self._until_s(expiry, at_most_s=self._lease_s / _TICKS_PER_LEASE))

    def _until_s(self, expiry: Instant | None, *, at_most_s: float) -> float:
        if expiry is None:
            return at_most_s
        return max(_LATE_S, min((expiry - self._store_now()) / SECOND + _LATE_S, at_most_s))

    def _too_early_s(self) -> float:
        since = self._unbroken_since()
        if self._failed_at is not None:
            since = max(since, self._failed_at)
        return since + self._lease_s - self._mono()


async def reap_stale_jobs(storage: Store) -> Reaped:
    """Reap everything there is to reap, once.

    >>> reaped = asyncio.run(reap_stale_jobs(open_storage("memory://")))
    """
    pending = dead = cancelled = 0
    while True:
        step = await storage.jobs.reap(crash_note=CRASH_NOTE, limit=_LIMIT)
        pending, dead = pending + step.pending, dead + step.dead
        cancelled += step.cancelled
        if not step.more:
            return Reaped(pending, dead, cancelled)
