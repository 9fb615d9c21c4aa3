"""The cron half of the schedule contract on memory: ticks that fire once, and their history."""

from collections import deque
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

from . import transitions
from .tables import Tables


class MemoryCronSchedules:
    """What fires by time; see ``forge_jobs.store.schedules``."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def put(self, schedule: Schedule, *, expect: int | None = None) -> bool:
        with self._tables.change() as now:
            known = self._tables.schedules.get(schedule.name)
            version = 0 if known is None else known.version
            if expect not in (None, version):
                return False
            self._tables.schedules[schedule.name] = structs.replace(
                schedule, version=version + 1, updated_at=now
            )
            self._tables.operated()
            return True

    async def delete(self, name: str) -> bool:
        with self._tables.change():
            self._tables.fires.pop(name, None)
            if self._tables.schedules.pop(name, None) is None:
                return False
            self._tables.operated()
            return True

    async def get(self, name: str) -> Schedule | None:
        with self._tables.look():
            return self._tables.schedules.get(name)

    async def all(self) -> list[Schedule]:
        with self._tables.look():
            return [schedule for _, schedule in sorted(self._tables.schedules.items())]

    async def due(self, *, limit: int) -> DueSchedules:
        with self._tables.look() as now:
            enabled = [one for one in self._tables.schedules.values() if one.enabled]
            come = [one for one in enabled if one.next_at is None or one.next_at <= now]
            come.sort(key=lambda one: (one.next_at or 0, one.name))
            later = (one.next_at for one in enabled if one.next_at is not None)
            next_at = min((tick for tick in later if tick > now), default=None)
            return DueSchedules(now, come[:limit], next_at)

    async def fire(
        self, name: str, *, tick: Instant, next_at: Instant | None, new_fires: Sequence[NewFire]
    ) -> list[Fire] | None:
        with self._tables.change() as now:
            known = self._tables.schedules.get(name)
            if known is None or not known.enabled or known.next_at != tick:
                return None
            fires = [self._shoot(shot, now) for shot in new_fires]
            real = [fire.tick for fire in fires if fire.outcome is not FireOutcome.MISSED]
            self._tables.schedules[name] = structs.replace(
                known,
                next_at=next_at,
                last_at=real[-1] if real else known.last_at,
                error=None,
                version=known.version + 1,
                updated_at=now,
            )
            self._remember(name, fires)
            return fires

    async def trigger(self, name: str, job: NewJob) -> Fire | None:
        with self._tables.change() as now:
            if name not in self._tables.schedules:
                return None
            stored = transitions.insert(self._tables, job, now)
            outcome = FireOutcome.SKIPPED if stored.duplicate else FireOutcome.TRIGGERED
            fire = Fire(now, now, outcome, stored.id)
            self._remember(name, [fire])
            return fire

    async def history(self, name: str, *, limit: int = FIRES_KEPT) -> list[Fire]:
        with self._tables.look():
            return list(reversed(self._tables.fires.get(name, ())))[:limit]

    def _shoot(self, shot: NewFire, now: Instant) -> Fire:
        if shot.job is None:
            return Fire(shot.tick, now, FireOutcome.MISSED, None, shot.missed)
        stored = transitions.insert(self._tables, shot.job, now)
        outcome = FireOutcome.SKIPPED if stored.duplicate else FireOutcome.FIRED
        return Fire(shot.tick, now, outcome, stored.id, shot.missed)

    def _remember(self, name: str, fires: Sequence[Fire]) -> None:
        self._tables.fires.setdefault(name, deque(maxlen=FIRES_KEPT)).extend(fires)
