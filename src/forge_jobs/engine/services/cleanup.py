"""Deletes what is old: terminal jobs past their retention, minutes, processes, error groups."""

from msgspec import Struct

from forge_jobs.config import EngineSettings
from forge_jobs.core.instant import SECOND, Instant
from forge_jobs.kit.clock import SYSTEM_CLOCK, Clock, is_machine_time
from forge_jobs.kit.service import Next, RunsOn
from forge_jobs.store.jobs import Retention
from forge_jobs.store.store import Store

AUDIT_KEPT_S = 90 * 86_400
# After its last failure. As long as dead jobs by default.
ERROR_GROUPS_KEPT_S = 30 * 86_400

_BATCH = 500
_EVERY_S = 300.0
_PAUSE_S = 0.05


class CleanupReport(Struct, frozen=True, kw_only=True):
    """What a clean-up deleted.

    >>> asyncio.run(cleanup_once(forge.store)).jobs
    0
    """

    jobs: int = 0
    minutes: int = 0
    processes: int = 0


class Cleanup:
    """One small batch per tick, so that other writers do not wait long."""

    name = "cleanup"
    runs_on = RunsOn.LEADER

    def __init__(self, store: Store, *, settings: EngineSettings) -> None:
        self._store = store
        self._minutes_ttl_s = settings.retention_minutes_s

    async def tick(self) -> Next:
        """Delete one batch of each."""
        step = await _clean(self._store, await self._store.now(), self._minutes_ttl_s)
        if step.jobs >= _BATCH or step.minutes >= _BATCH:
            return Next.after(_PAUSE_S)
        return Next.after(_EVERY_S)


async def cleanup_once(
    storage: Store, *, settings: EngineSettings | None = None, clock: Clock = SYSTEM_CLOCK
) -> CleanupReport:
    """Delete everything that is past its retention, in batches.

    >>> asyncio.run(cleanup_once(open_storage("memory://"))).jobs
    0
    """
    minutes_ttl_s = (settings or EngineSettings()).retention_minutes_s
    total = CleanupReport()
    while True:
        now = await storage.now() if is_machine_time(clock) else clock.now()
        step = await _clean(storage, now, minutes_ttl_s)
        total = CleanupReport(
            jobs=total.jobs + step.jobs,
            minutes=total.minutes + step.minutes,
            processes=total.processes + step.processes,
        )
        if step.jobs < _BATCH and step.minutes < _BATCH:
            return total


async def _clean(store: Store, now: Instant, minutes_ttl_s: float) -> CleanupReport:
    before = now - int(minutes_ttl_s * SECOND)
    await store.metrics.purge_actions(before=now - AUDIT_KEPT_S * SECOND, limit=_BATCH)
    await store.error_groups.purge(before=now - ERROR_GROUPS_KEPT_S * SECOND, limit=_BATCH)
    return CleanupReport(
        jobs=await store.jobs.purge(Retention(), limit=_BATCH),
        minutes=await store.metrics.purge_minutes(before=before, limit=_BATCH),
        processes=await store.processes.remove_dead(),
    )
