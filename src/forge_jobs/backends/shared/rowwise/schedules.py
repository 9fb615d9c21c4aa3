"""Cron schedules and token buckets of a row-wise store: ticks that fire once, and permits."""

from collections.abc import Sequence

from msgspec import structs

from forge_jobs.core.errors import NotFound
from forge_jobs.core.instant import Instant
from forge_jobs.core.job import NewJob
from forge_jobs.core.token_bucket import Grant, TokenBucket, filled, taken
from forge_jobs.store.schedules import FIRES_KEPT, DueSchedules, Fire, FireOutcome, NewFire

from .storage import Storage
from .tables import Tables
from .transaction import Transaction


class RowwiseSchedules:
    """``ScheduleStore`` row by row; see ``forge_jobs.store.schedules``."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    @property
    def _tables(self) -> Tables:
        return self._storage.tables

    async def due(self, *, limit: int) -> DueSchedules:
        with self._storage.read() as now:
            enabled = [schedule for schedule in self._tables.schedules.values() if schedule.enabled]
            due = [
                schedule
                for schedule in enabled
                if schedule.next_at is None or schedule.next_at <= now
            ]
            due.sort(key=lambda schedule: (schedule.next_at or 0, schedule.name))
            later = (schedule.next_at for schedule in enabled if schedule.next_at is not None)
            next_at = min((tick for tick in later if tick > now), default=None)
            return DueSchedules(now, due[:limit], next_at)

    async def fire(
        self, name: str, *, tick: Instant, next_at: Instant | None, new_fires: Sequence[NewFire]
    ) -> list[Fire] | None:
        with self._storage.write() as tx:
            known = self._tables.schedules.get(name)
            if known is None or not known.enabled or known.next_at != tick:
                return None
            fires = [_fire(tx, new_fire) for new_fire in new_fires]
            fired = [fire.tick for fire in fires if fire.outcome is not FireOutcome.MISSED]
            self._tables.schedules[name] = structs.replace(
                known,
                next_at=next_at,
                last_at=fired[-1] if fired else known.last_at,
                error=None,
                version=known.version + 1,
                updated_at=tx.now,
            )
            self._append_history(name, fires)
            return fires

    async def trigger(self, name: str, job: NewJob) -> Fire | None:
        with self._storage.write() as tx:
            if name not in self._tables.schedules:
                return None
            [stored] = tx.insert([job])
            outcome = FireOutcome.SKIPPED if stored.duplicate else FireOutcome.TRIGGERED
            fire = Fire(tx.now, tx.now, outcome, stored.id)
            self._append_history(name, [fire])
            return fire

    async def history(self, name: str, *, limit: int = FIRES_KEPT) -> list[Fire]:
        with self._storage.read():
            return list(reversed(self._tables.fires.get(name, ())))[:limit]

    def _append_history(self, name: str, fires: Sequence[Fire]) -> None:
        known = self._tables.fires.get(name, ())
        self._tables.fires[name] = (*known, *fires)[-FIRES_KEPT:]


def _fire(tx: Transaction, new_fire: NewFire) -> Fire:
    if new_fire.job is None:
        return Fire(new_fire.tick, tx.now, FireOutcome.MISSED, None, new_fire.missed)
    [stored] = tx.insert([new_fire.job])
    outcome = FireOutcome.SKIPPED if stored.duplicate else FireOutcome.FIRED
    return Fire(new_fire.tick, tx.now, outcome, stored.id, new_fire.missed)


class RowwiseTokenBuckets:
    """``TokenBucketStore`` row by row; see ``forge_jobs.store.token_buckets``."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    @property
    def _tables(self) -> Tables:
        return self._storage.tables

    async def take(self, scope: str, permits: int) -> Grant:
        with self._storage.write() as tx:
            left, grant = taken(self._known(scope), permits, tx.now)
            self._tables.token_buckets[scope] = left
            return grant

    async def drain(self, scope: str) -> None:
        with self._storage.write() as tx:
            bucket = filled(self._known(scope), tx.now)
            self._tables.token_buckets[scope] = structs.replace(bucket, tokens=0.0)

    def _known(self, scope: str) -> TokenBucket:
        bucket = self._tables.token_buckets.get(scope)
        if bucket is None:
            raise NotFound(f"rate limit scope {scope!r} is not declared")
        return bucket
