"""Cron schedules of a row-wise store: each tick fires once; the history is bounded."""

from collections.abc import Sequence

from msgspec import structs

from forge_jobs.core.instant import Instant
from forge_jobs.core.job import NewJob
from forge_jobs.store.schedules import (
    FIRES_KEPT,
    DueSchedules,
    Fire,
    FireOutcome,
    NewFire,
    Schedule,
)

from .storage import Storage
from .tables import Tables
from .transaction import Transaction


class RowwiseCronSchedules:
    """The cron methods of ``ScheduleStore``; see ``forge_jobs.store.schedules``."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    @property
    def _tables(self) -> Tables:
        return self._storage.tables

    async def put(self, schedule: Schedule, *, expect: int | None = None) -> bool:
        with self._storage.write() as tx:
            now = tx.now
            known = self._tables.schedules.get(schedule.name)
            version = 0 if known is None else known.version
            if expect not in (None, version):
                return False
            self._tables.schedules[schedule.name] = structs.replace(
                schedule, version=version + 1, updated_at=now
            )
            tx.raise_control_version()
            return True

    async def delete(self, name: str) -> bool:
        with self._storage.write() as tx:
            self._tables.fires.pop(name, None)
            if self._tables.schedules.pop(name, None) is None:
                return False
            tx.raise_control_version()
            return True

    async def get(self, name: str) -> Schedule | None:
        with self._storage.read():
            return self._tables.schedules.get(name)

    async def all(self) -> list[Schedule]:
        with self._storage.read():
            return [schedule for _, schedule in sorted(self._tables.schedules.items())]

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
            now = tx.now
            known = self._tables.schedules.get(name)
            if known is None or not known.enabled or known.next_at != tick:
                return None
            fires = [self._fire(tx, new_fire) for new_fire in new_fires]
            fired = [fire.tick for fire in fires if fire.outcome is not FireOutcome.MISSED]
            self._tables.schedules[name] = structs.replace(
                known,
                next_at=next_at,
                last_at=fired[-1] if fired else known.last_at,
                error=None,
                version=known.version + 1,
                updated_at=now,
            )
            self._append_history(name, fires)
            return fires

    async def trigger(self, name: str, job: NewJob) -> Fire | None:
        with self._storage.write() as tx:
            now = tx.now
            if name not in self._tables.schedules:
                return None
            [stored] = tx.insert([job])
            outcome = FireOutcome.SKIPPED if stored.duplicate else FireOutcome.TRIGGERED
            fire = Fire(now, now, outcome, stored.id)
            self._append_history(name, [fire])
            return fire

    async def history(self, name: str, *, limit: int = FIRES_KEPT) -> list[Fire]:
        with self._storage.read():
            return list(reversed(self._tables.fires.get(name, ())))[:limit]

    def _fire(self, tx: Transaction, new_fire: NewFire) -> Fire:
        now = tx.now
        if new_fire.job is None:
            return Fire(new_fire.tick, now, FireOutcome.MISSED, None, new_fire.missed)
        [stored] = tx.insert([new_fire.job])
        outcome = FireOutcome.SKIPPED if stored.duplicate else FireOutcome.FIRED
        return Fire(new_fire.tick, now, outcome, stored.id, new_fire.missed)

    def _append_history(self, name: str, fires: Sequence[Fire]) -> None:
        known = self._tables.fires.get(name, ())
        self._tables.fires[name] = (*known, *fires)[-FIRES_KEPT:]
