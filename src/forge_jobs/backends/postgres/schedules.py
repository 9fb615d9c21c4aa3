"""The schedule contract on Postgres: cron ticks that fire once, and rate buckets."""

from forge_jobs.core.errors import NotFound
from forge_jobs.core.token_bucket import Grant, TokenBucket, check_bucket, filled

from .connection.driver import Row
from .connection.server import Link
from .cron_schedules import PostgresCronSchedules


class PostgresSchedules(PostgresCronSchedules):
    """What fires by time and rate; see ``forge_jobs.store.schedules``."""

    async def ensure_token_bucket(
        self, scope: str, *, capacity: float, refill_per_s: float
    ) -> TokenBucket:
        check_bucket(scope, capacity=capacity, refill_per_s=refill_per_s)

        async def work(link: Link) -> TokenBucket:
            await self._made(link, scope, capacity, refill_per_s)
            return await self._filled(link, scope)

        return await self._server.within(work)

    async def put_token_bucket(
        self, scope: str, *, capacity: float, refill_per_s: float
    ) -> TokenBucket:
        check_bucket(scope, capacity=capacity, refill_per_s=refill_per_s)

        async def work(link: Link) -> TokenBucket:
            await self._made(link, scope, capacity, refill_per_s)
            known = await self._filled(link, scope)
            tokens = min(known.tokens, capacity)
            return await self._save(link, scope, capacity, refill_per_s, tokens, known.at)

        return await self._server.within(work)

    async def take(self, scope: str, permits: int) -> Grant:
        now = self._server.present.bind()
        [row] = await self._server.ask(self._sql["take"], now, scope, permits)
        if row["granted"] is None:
            raise _undeclared(scope)
        return Grant(row["granted"], row["retry_s"])

    async def drain(self, scope: str) -> None:
        now = self._server.present.bind()
        if not await self._server.ask(self._sql["drain"], now, scope):
            raise _undeclared(scope)

    async def buckets(self) -> list[TokenBucket]:
        now = self._server.present.bind()
        found = await self._server.ask(self._sql["buckets"], now, writes=False)
        return [_as_of_now(row) for row in found]

    async def _made(self, link: Link, scope: str, capacity: float, refill_per_s: float) -> None:
        now = self._server.present.bind()
        await link.fetch(self._sql["ensure_bucket"], now, scope, capacity, refill_per_s)

    async def _filled(self, link: Link, scope: str) -> TokenBucket:
        row = await link.row(self._sql["lock_bucket"], self._server.present.bind(), scope)
        if row is None:
            raise _undeclared(scope)
        return _as_of_now(row)

    async def _save(
        self, link: Link, scope: str, capacity: float, refill_per_s: float, tokens: float, at: int
    ) -> TokenBucket:
        await link.fetch(self._sql["save_bucket"], scope, capacity, refill_per_s, tokens, at)
        return TokenBucket(
            scope=scope, capacity=capacity, refill_per_s=refill_per_s, tokens=tokens, at=at
        )


def _as_of_now(row: Row) -> TokenBucket:
    left = TokenBucket(
        scope=row["scope"],
        capacity=row["capacity"],
        refill_per_s=row["refill_per_s"],
        tokens=row["tokens"],
        at=row["at"],
    )
    return filled(left, row["now"])


def _undeclared(scope: str) -> NotFound:
    return NotFound(f"rate limit scope {scope!r} is not declared")
