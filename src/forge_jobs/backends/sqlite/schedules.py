"""The schedule and token bucket contracts on SQLite: ticks that fire once, and permits."""

import sqlite3
from collections.abc import Sequence
from functools import partial
from typing import Final

from msgspec import structs

from forge_jobs.backends.shared.setting_tables import SCHEDULES
from forge_jobs.backends.shared.sql_text import SqlText
from forge_jobs.core.errors import NotFound
from forge_jobs.core.instant import Instant
from forge_jobs.core.job import NewJob
from forge_jobs.core.token_bucket import Grant, TokenBucket, filled, taken
from forge_jobs.kit.clock import Clock
from forge_jobs.store.schedules import FIRES_KEPT, DueSchedules, Fire, FireOutcome, NewFire
from forge_jobs.store.settings import SCHEDULE, TOKEN_BUCKET

from . import enqueue
from .io.reader import Reader
from .io.transaction import Tx
from .io.writer import Writer
from .settings import read_typed, write_typed

SQL: Final = SqlText.load("forge_jobs.backends.sqlite.sql", "schedules.sql")


class SqliteSchedules:
    """Fires cron schedules; see ``forge_jobs.store.schedules``."""

    def __init__(self, writer: Writer, reader: Reader, clock: Clock) -> None:
        self._writer = writer
        self._reader = reader
        self._clock = clock

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


class SqliteTokenBuckets:
    """Grants permits; see ``forge_jobs.store.token_buckets``."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def take(self, scope: str, permits: int) -> Grant:
        return await self._writer.call(partial(_take, scope, permits))

    async def drain(self, scope: str) -> None:
        await self._writer.call(partial(_drain, scope))


def _due(now: Instant, limit: int, connection: sqlite3.Connection) -> DueSchedules:
    rows = connection.execute(SQL["due_schedules"], (now, limit)).fetchall()
    (next_at,) = connection.execute(SQL["next_tick"], (now,)).fetchone()
    return DueSchedules(now, [SCHEDULES.struct_of(row) for row in rows], next_at)


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
    _record_fires(tx, name, fires)
    return fires


def _trigger(name: str, job: NewJob, tx: Tx) -> Fire | None:
    if read_typed(tx.execute, SCHEDULE, name) is None:
        return None
    (stored,) = enqueue.insert(tx, [job])
    outcome = FireOutcome.SKIPPED if stored.duplicate else FireOutcome.TRIGGERED
    fire = Fire(tx.now, tx.now, outcome, stored.id)
    _record_fires(tx, name, [fire])
    return fire


def _record_fires(tx: Tx, name: str, fires: Sequence[Fire]) -> None:
    for fire in fires[-FIRES_KEPT:]:
        tx.execute(
            SQL["add_fire"], (name, fire.tick, fire.at, fire.outcome, fire.job_id, fire.missed)
        )
    tx.execute(SQL["trim_fires"], (name, FIRES_KEPT))


def _take(scope: str, permits: int, tx: Tx) -> Grant:
    left, grant = taken(_token_bucket(scope, tx), permits, tx.now)
    if grant.granted:
        write_typed(tx, TOKEN_BUCKET, left)
    return grant


def _drain(scope: str, tx: Tx) -> None:
    bucket = filled(_token_bucket(scope, tx), tx.now)
    write_typed(tx, TOKEN_BUCKET, structs.replace(bucket, tokens=0.0))


def _token_bucket(scope: str, tx: Tx) -> TokenBucket:
    bucket: TokenBucket | None = read_typed(tx.execute, TOKEN_BUCKET, scope)
    if bucket is None:
        raise NotFound(f"rate limit scope {scope!r} is not declared")
    return bucket
