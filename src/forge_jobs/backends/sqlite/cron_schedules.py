"""The cron half of the schedule contract on SQLite: ticks that fire once, and their history."""

import sqlite3
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from forge_jobs.backends.shared.sql_text import SqlText
from forge_jobs.core.instant import Instant
from forge_jobs.core.job import NewJob
from forge_jobs.kit.clock import Clock
from forge_jobs.store.schedules import (
    FIRES_KEPT,
    DueSchedules,
    Fire,
    FireOutcome,
    NewFire,
    Schedule,
)

from . import enqueue
from .io.reader import Reader
from .io.transaction import Tx
from .io.writer import Writer

SQL: Final = SqlText.load("forge_jobs.backends.sqlite.sql", "schedules.sql")


class SqliteCronSchedules:
    """What fires by time; see ``forge_jobs.store.schedules``."""

    def __init__(self, writer: Writer, reader: Reader, clock: Clock) -> None:
        self._writer = writer
        self._reader = reader
        self._clock = clock

    async def put(self, schedule: Schedule, *, expect: int | None = None) -> bool:
        return await self._writer.call(partial(_put, schedule, expect))

    async def delete(self, name: str) -> bool:
        return await self._writer.call(partial(_delete, name))

    async def get(self, name: str) -> Schedule | None:
        return await self._reader.call(partial(_get, name))

    async def all(self) -> list[Schedule]:
        return await self._reader.call(_all)

    async def due(self, *, limit: int) -> DueSchedules:
        return await self._reader.call(partial(_due, self._clock.now(), limit))

    async def fire(
        self, name: str, *, tick: Instant, next_at: Instant | None, new_fires: Sequence[NewFire]
    ) -> list[Fire] | None:
        return await self._writer.call(partial(_fire, name, tick, next_at, new_fires), durable=True)

    async def trigger(self, name: str, job: NewJob) -> Fire | None:
        return await self._writer.call(partial(_trigger, name, job), durable=True)

    async def history(self, name: str, *, limit: int = FIRES_KEPT) -> list[Fire]:
        return await self._reader.call(partial(_history, name, limit))


def _values(schedule: Schedule, version: int, now: Instant) -> tuple[object, ...]:
    return (
        schedule.name, schedule.expression, schedule.kind, schedule.queue, schedule.payload,
        schedule.zone, schedule.missed, schedule.missed_limit, schedule.overlap, schedule.jitter_s,
        schedule.max_attempts, schedule.template, schedule.enabled, schedule.declared,
        schedule.edited, schedule.next_at, schedule.last_at, schedule.error, version, now,
    )  # fmt: skip


def _schedule(row: tuple[Any, ...]) -> Schedule:
    (
        name, expression, kind, queue, payload, zone, missed, missed_limit, overlap, jitter_s,
        max_attempts, template, enabled, declared, edited, next_at, last_at, error, version,
        updated_at,
    ) = row  # fmt: skip
    return Schedule(
        name=name,
        expression=expression,
        kind=kind,
        queue=queue,
        payload=payload,
        zone=zone,
        missed=missed,
        missed_limit=missed_limit,
        overlap=overlap,
        jitter_s=jitter_s,
        max_attempts=max_attempts,
        template=template,
        enabled=bool(enabled),
        declared=bool(declared),
        edited=bool(edited),
        next_at=next_at,
        last_at=last_at,
        error=error,
        version=version,
        updated_at=updated_at,
    )


def _put(schedule: Schedule, expect: int | None, tx: Tx) -> bool:
    found = tx.row(SQL["schedule_version"], (schedule.name,))
    version = 0 if found is None else found[0]
    if expect not in (None, version):
        return False
    tx.execute(SQL["put_schedule"], _values(schedule, version + 1, tx.now))
    tx.operate()
    return True


def _delete(name: str, tx: Tx) -> bool:
    tx.execute(SQL["delete_fires"], (name,))
    if tx.execute(SQL["delete_schedule"], (name,)).rowcount != 1:
        return False
    tx.operate()
    return True


def _get(name: str, connection: sqlite3.Connection) -> Schedule | None:
    found = connection.execute(SQL["schedule"], (name,)).fetchone()
    return None if found is None else _schedule(found)


def _all(connection: sqlite3.Connection) -> list[Schedule]:
    return [_schedule(row) for row in connection.execute(SQL["schedules"]).fetchall()]


def _due(now: Instant, limit: int, connection: sqlite3.Connection) -> DueSchedules:
    rows = connection.execute(SQL["due_schedules"], (now, limit)).fetchall()
    (next_at,) = connection.execute(SQL["next_tick"], (now,)).fetchone()
    return DueSchedules(now, [_schedule(row) for row in rows], next_at)


def _history(name: str, limit: int, connection: sqlite3.Connection) -> list[Fire]:
    rows = connection.execute(SQL["fires"], (name, limit)).fetchall()
    return [
        Fire(tick, at, FireOutcome(outcome), job_id, missed)
        for tick, at, outcome, job_id, missed in rows
    ]


def _fire(
    name: str, tick: Instant, next_at: Instant | None, new_fires: Sequence[NewFire], tx: Tx
) -> list[Fire] | None:
    last_at = max((shot.tick for shot in new_fires if shot.job is not None), default=None)
    if tx.execute(SQL["fire"], (name, tick, next_at, last_at, tx.now)).rowcount != 1:
        return None
    stored = iter(enqueue.insert(tx, [shot.job for shot in new_fires if shot.job is not None]))
    fires: list[Fire] = []
    for shot in new_fires:
        if shot.job is None:
            fires.append(Fire(shot.tick, tx.now, FireOutcome.MISSED, None, shot.missed))
            continue
        job = next(stored)
        outcome = FireOutcome.SKIPPED if job.duplicate else FireOutcome.FIRED
        fires.append(Fire(shot.tick, tx.now, outcome, job.id, shot.missed))
    _remember(tx, name, fires)
    return fires


def _trigger(name: str, job: NewJob, tx: Tx) -> Fire | None:
    if tx.row(SQL["schedule_version"], (name,)) is None:
        return None
    (stored,) = enqueue.insert(tx, [job])
    outcome = FireOutcome.SKIPPED if stored.duplicate else FireOutcome.TRIGGERED
    fire = Fire(tx.now, tx.now, outcome, stored.id)
    _remember(tx, name, [fire])
    return fire


def _remember(tx: Tx, name: str, fires: Sequence[Fire]) -> None:
    for fire in fires[-FIRES_KEPT:]:
        tx.execute(
            SQL["add_fire"], (name, fire.tick, fire.at, fire.outcome, fire.job_id, fire.missed)
        )
    tx.execute(SQL["trim_fires"], (name, FIRES_KEPT))
