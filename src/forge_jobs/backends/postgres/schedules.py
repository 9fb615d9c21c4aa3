"""The schedule contract on Postgres: cron ticks that fire once, and rate buckets."""

import math
from collections.abc import Sequence
from typing import Any, Final

from forge_jobs.core.errors import NotFound
from forge_jobs.core.instant import SECOND
from forge_jobs.core.job import Enqueued, NewJob
from forge_jobs.store.schedules import Bucket, Grant, Schedule

from . import rows, sqlfiles
from .bell import Bell
from .driver import Row
from .enqueue import Enqueuer
from .session import Link, Server

# A permit that is there but for a rounding error is there.
_ROUNDING: Final = 1e-6


class PostgresSchedules:
    """What fires by time and rate; see ``forge_jobs.store.schedules``."""

    def __init__(self, server: Server, bell: Bell, enqueuer: Enqueuer) -> None:
        self._server = server
        self._bell = bell
        self._enqueuer = enqueuer
        self._sql = sqlfiles.statements("schedules", server.address.schema)

    async def ensure(self, schedule: Schedule) -> Schedule:
        async def work(link: Link) -> Schedule:
            await link.fetch(self._sql["ensure"], self._server.present.bind(), *_values(schedule))
            row = await link.row(self._sql["one"], schedule.name)
            return schedule if row is None else _schedule(row)

        return await self._server.within(work)

    async def put(self, schedule: Schedule) -> None:
        now = self._server.present.bind()
        await self._server.ask(self._sql["put"], now, *_values(schedule))

    async def delete(self, name: str) -> bool:
        return bool(await self._server.ask(self._sql["delete"], name))

    async def get(self, name: str) -> Schedule | None:
        row = await self._server.ask_row(self._sql["one"], name, writes=False)
        return None if row is None else _schedule(row)

    async def all(self) -> list[Schedule]:
        return [_schedule(row) for row in await self._server.ask(self._sql["all"], writes=False)]

    async def fire(
        self, name: str, *, tick: int, next_at: int | None, jobs: Sequence[NewJob]
    ) -> list[Enqueued] | None:
        async def work(link: Link) -> list[Enqueued] | None:
            now = self._server.present.bind()
            if not await link.fetch(self._sql["fire"], now, name, tick, next_at):
                return None
            return await self._enqueuer.insert(link, jobs, now) if jobs else []

        fired = await self._server.within(work)
        if fired:
            await self._bell.ring(job.queue for job in jobs)
        return fired

    async def ensure_bucket(self, scope: str, *, capacity: float, refill_per_s: float) -> Bucket:
        async def work(link: Link) -> Bucket:
            await self._made(link, scope, capacity, refill_per_s)
            return await self._filled(link, scope)

        return await self._server.within(work)

    async def put_bucket(self, scope: str, *, capacity: float, refill_per_s: float) -> Bucket:
        async def work(link: Link) -> Bucket:
            await self._made(link, scope, capacity, refill_per_s)
            known = await self._filled(link, scope)
            tokens = min(known.tokens, capacity)
            return await self._save(link, scope, capacity, refill_per_s, tokens, known.at)

        return await self._server.within(work)

    async def take(self, scope: str, permits: int) -> Grant:
        async def work(link: Link) -> Grant:
            bucket = await self._filled(link, scope)
            granted = min(max(permits, 0), math.floor(bucket.tokens + _ROUNDING))
            left = max(bucket.tokens - granted, 0.0)
            await self._save(link, scope, bucket.capacity, bucket.refill_per_s, left, bucket.at)
            if granted >= permits or bucket.refill_per_s <= 0:
                return Grant(granted)
            return Grant(granted, bucket.at + math.ceil((1 - left) / bucket.refill_per_s * SECOND))

        return await self._server.within(work)

    async def drain(self, scope: str) -> None:
        async def work(link: Link) -> None:
            bucket = await self._filled(link, scope)
            await self._save(link, scope, bucket.capacity, bucket.refill_per_s, 0.0, bucket.at)

        await self._server.within(work)

    async def buckets(self) -> list[Bucket]:
        now = self._server.present.bind()
        found = await self._server.ask(self._sql["buckets"], now, writes=False)
        return [_as_of_now(row) for row in found]

    async def _made(self, link: Link, scope: str, capacity: float, refill_per_s: float) -> None:
        now = self._server.present.bind()
        await link.fetch(self._sql["ensure_bucket"], now, scope, capacity, refill_per_s)

    async def _filled(self, link: Link, scope: str) -> Bucket:
        row = await link.row(self._sql["lock_bucket"], self._server.present.bind(), scope)
        if row is None:
            raise NotFound(f"rate limit scope {scope!r} is not declared")
        return _as_of_now(row)

    async def _save(
        self, link: Link, scope: str, capacity: float, refill_per_s: float, tokens: float, at: int
    ) -> Bucket:
        await link.fetch(self._sql["save_bucket"], scope, capacity, refill_per_s, tokens, at)
        return Bucket(
            scope=scope, capacity=capacity, refill_per_s=refill_per_s, tokens=tokens, at=at
        )


def _as_of_now(row: Row) -> Bucket:
    """The bucket filled up to the present; time that runs backwards fills nothing."""
    gained = max(row["now"] - row["at"], 0) / SECOND * row["refill_per_s"]
    return Bucket(
        scope=row["scope"],
        capacity=row["capacity"],
        refill_per_s=row["refill_per_s"],
        tokens=min(row["tokens"] + gained, row["capacity"]),
        at=max(row["now"], row["at"]),
    )


def _values(schedule: Schedule) -> tuple[Any, ...]:
    error = schedule.error
    return (
        schedule.name, schedule.expression, schedule.kind, schedule.queue, schedule.payload,
        schedule.zone, schedule.missed, schedule.overlap, schedule.jitter_s, schedule.max_attempts,
        schedule.enabled, schedule.next_at, schedule.last_at,
        None if error is None else rows.storable(error),
    )  # fmt: skip


def _schedule(row: Row) -> Schedule:
    return Schedule(
        name=row["name"],
        expression=row["expression"],
        kind=row["kind"],
        queue=row["queue"],
        payload=row["payload"],
        zone=row["zone"],
        missed=row["missed"],
        overlap=row["overlap"],
        jitter_s=row["jitter_s"],
        max_attempts=row["max_attempts"],
        enabled=row["enabled"],
        next_at=row["next_at"],
        last_at=row["last_at"],
        error=row["error"],
        updated_at=row["updated_at"],
    )
