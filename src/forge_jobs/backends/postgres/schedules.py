"""The schedule contract on Postgres: cron ticks that fire once, and rate buckets."""

import math
from typing import Final

from forge_jobs.core.errors import NotFound
from forge_jobs.core.instant import SECOND
from forge_jobs.store.schedules import Bucket, Grant

from .driver import Row
from .session import Link
from .timetable import PostgresTimetable

# A permit that is there but for a rounding error is there.
_ROUNDING: Final = 1e-6


class PostgresSchedules(PostgresTimetable):
    """What fires by time and rate; see ``forge_jobs.store.schedules``."""

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
