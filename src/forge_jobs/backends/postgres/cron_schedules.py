"""The cron half of the schedule contract on Postgres: ticks that fire once, and their history."""

from collections.abc import Sequence
from typing import Any

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

from . import rows, sql_files
from .connection.driver import Row
from .connection.server import Link, Server
from .enqueue import Enqueuer
from .notify.notifier import EVERYBODY, Notifier


class PostgresCronSchedules:
    """What fires by time; see ``forge_jobs.store.schedules``."""

    def __init__(self, server: Server, bell: Notifier, enqueuer: Enqueuer) -> None:
        self._server = server
        self._bell = bell
        self._enqueuer = enqueuer
        self._sql = sql_files.statements("schedules", server.address.schema)

    async def put(self, schedule: Schedule, *, expect: int | None = None) -> bool:
        async def work(link: Link) -> bool:
            now = self._server.present.bind()
            if expect:
                done = await link.fetch(self._sql["change"], now, *_values(schedule), expect)
            else:
                how = self._sql["put" if expect is None else "create"]
                done = await link.fetch(how, now, *_values(schedule))
            if done:
                await link.fetch(self._sql["raise_control_version"])
            return bool(done)

        return await self._operate(work)

    async def delete(self, name: str) -> bool:
        async def work(link: Link) -> bool:
            done = await link.fetch(self._sql["delete"], name)
            if done:
                await link.fetch(self._sql["raise_control_version"])
            return bool(done)

        return await self._operate(work)

    async def get(self, name: str) -> Schedule | None:
        row = await self._server.ask_row(self._sql["one"], name, writes=False)
        return None if row is None else _schedule(row)

    async def all(self) -> list[Schedule]:
        return [_schedule(row) for row in await self._server.ask(self._sql["all"], writes=False)]

    async def due(self, *, limit: int) -> DueSchedules:
        present = self._server.present.bind()
        head = await self._server.ask_row(self._sql["head"], present, writes=False)
        assert head is not None
        now, next_at = head["now"], head["next_at"]
        if not head["is_due"]:
            return DueSchedules(now, [], next_at)
        found = await self._server.ask(self._sql["due"], now, limit, writes=False)
        return DueSchedules(now, [_schedule(row) for row in found], next_at)

    async def fire(
        self, name: str, *, tick: Instant, next_at: Instant | None, new_fires: Sequence[NewFire]
    ) -> list[Fire] | None:
        jobs = [shot.job for shot in new_fires if shot.job is not None]
        last_at = max((shot.tick for shot in new_fires if shot.job is not None), default=None)

        async def work(link: Link) -> list[Fire] | None:
            now = self._server.present.bind()
            head = await link.row(self._sql["fire"], now, name, tick, next_at, last_at)
            if head is None:
                return None
            stored = iter(await self._enqueuer.insert(link, jobs, now) if jobs else [])
            fires: list[Fire] = []
            for shot in new_fires:
                if shot.job is None:
                    outcome, job_id = FireOutcome.MISSED, None
                else:
                    job = next(stored)
                    outcome = FireOutcome.SKIPPED if job.duplicate else FireOutcome.FIRED
                    job_id = job.id
                fires.append(Fire(shot.tick, head[0], outcome, job_id, shot.missed))
            await self._remember(link, name, fires)
            return fires

        fired = await self._server.within(work)
        if fired and jobs:
            await self._bell.notify(job.queue for job in jobs)
        return fired

    async def trigger(self, name: str, job: NewJob) -> Fire | None:
        async def work(link: Link) -> Fire | None:
            now = self._server.present.bind()
            head = await link.row(self._sql["lock"], now, name)
            if head is None:
                return None
            (stored,) = await self._enqueuer.insert(link, [job], now)
            outcome = FireOutcome.SKIPPED if stored.duplicate else FireOutcome.TRIGGERED
            fire = Fire(head[0], head[0], outcome, stored.id)
            await self._remember(link, name, [fire])
            return fire

        fired = await self._server.within(work)
        if fired is not None:
            await self._bell.notify([job.queue])
        return fired

    async def history(self, name: str, *, limit: int = FIRES_KEPT) -> list[Fire]:
        found = await self._server.ask(self._sql["fires"], name, limit, writes=False)
        return [
            Fire(row["tick"], row["at"], FireOutcome(row["outcome"]), row["job_id"], row["missed"])
            for row in found
        ]

    async def _remember(self, link: Link, name: str, fires: Sequence[Fire]) -> None:
        kept = fires[-FIRES_KEPT:]
        if not kept:
            return
        await link.fetch(
            self._sql["add_fires"],
            name,
            kept[0].at,
            [fire.tick for fire in kept],
            [fire.outcome.value for fire in kept],
            [fire.job_id for fire in kept],
            [fire.missed for fire in kept],
        )
        await link.fetch(self._sql["trim_fires"], name, FIRES_KEPT)

    async def _operate(self, work: Any) -> bool:
        done = await self._server.within(work)
        if done:
            await self._bell.notify([EVERYBODY])
        return done


def _values(schedule: Schedule) -> tuple[Any, ...]:
    error = schedule.error
    return (
        schedule.name, schedule.expression, schedule.kind, schedule.queue, schedule.payload,
        schedule.zone, schedule.missed, schedule.missed_limit, schedule.overlap, schedule.jitter_s,
        schedule.max_attempts, schedule.template, schedule.enabled, schedule.declared,
        schedule.edited, schedule.next_at, schedule.last_at,
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
        missed_limit=row["missed_limit"],
        overlap=row["overlap"],
        jitter_s=row["jitter_s"],
        max_attempts=row["max_attempts"],
        template=row["template"],
        enabled=row["enabled"],
        declared=row["declared"],
        edited=row["edited"],
        next_at=row["next_at"],
        last_at=row["last_at"],
        error=row["error"],
        version=row["version"],
        updated_at=row["updated_at"],
    )
