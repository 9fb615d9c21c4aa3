"""The schedule and token bucket contracts on Postgres: ticks that fire once, and permits."""

from collections.abc import Sequence

from forge_jobs.backends.shared.setting_tables import SCHEDULES
from forge_jobs.core.errors import NotFound
from forge_jobs.core.instant import Instant
from forge_jobs.core.job import NewJob
from forge_jobs.core.token_bucket import Grant
from forge_jobs.store.schedules import FIRES_KEPT, DueSchedules, Fire, FireOutcome, NewFire

from . import sql_files
from .connection.server import Link, Server
from .enqueue import Enqueuer
from .notify.notifier import Notifier


class PostgresSchedules:
    """What fires by time; see ``forge_jobs.store.schedules``."""

    def __init__(self, server: Server, notifier: Notifier, enqueuer: Enqueuer) -> None:
        self._server = server
        self._notifier = notifier
        self._enqueuer = enqueuer
        self._sql = sql_files.statements("schedules", server.address.schema)

    async def due(self, *, limit: int) -> DueSchedules:
        store_clock = self._server.store_clock.bind()
        head = await self._server.ask_row(self._sql["head"], store_clock, writes=False)
        assert head is not None
        now, next_at = head["now"], head["next_at"]
        if not head["is_due"]:
            return DueSchedules(now, [], next_at)
        found = await self._server.ask(self._sql["due"], now, limit, writes=False)
        return DueSchedules(now, [SCHEDULES.struct_of(row) for row in found], next_at)

    async def fire(
        self, name: str, *, tick: Instant, next_at: Instant | None, new_fires: Sequence[NewFire]
    ) -> list[Fire] | None:
        jobs = [shot.job for shot in new_fires if shot.job is not None]
        last_at = max((shot.tick for shot in new_fires if shot.job is not None), default=None)

        async def work(link: Link) -> list[Fire] | None:
            now = self._server.store_clock.bind()
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
            await self._notifier.notify(job.queue for job in jobs)
        return fired

    async def trigger(self, name: str, job: NewJob) -> Fire | None:
        async def work(link: Link) -> Fire | None:
            now = self._server.store_clock.bind()
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
            await self._notifier.notify([job.queue])
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


class PostgresTokenBuckets:
    """Permits; see ``forge_jobs.store.token_buckets``."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._sql = sql_files.statements("schedules", server.address.schema)

    async def take(self, scope: str, permits: int) -> Grant:
        now = self._server.store_clock.bind()
        [row] = await self._server.ask(self._sql["take"], now, scope, permits)
        if row["granted"] is None:
            raise _undeclared(scope)
        return Grant(row["granted"], row["retry_s"])

    async def drain(self, scope: str) -> None:
        now = self._server.store_clock.bind()
        if not await self._server.ask(self._sql["drain"], now, scope):
            raise _undeclared(scope)


def _undeclared(scope: str) -> NotFound:
    return NotFound(f"rate limit scope {scope!r} is not declared")
