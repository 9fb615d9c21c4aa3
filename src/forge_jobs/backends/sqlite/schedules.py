"""The schedule contract on SQLite: cron schedules (``cron_schedules``) and token buckets."""

import sqlite3
from functools import partial
from typing import Any

from msgspec import structs

from forge_jobs.core.errors import NotFound
from forge_jobs.core.token_bucket import (
    Grant,
    TokenBucket,
    check_bucket,
    filled,
    full,
    resized,
    taken,
)

from .cron_schedules import SQL, SqliteCronSchedules
from .io.transaction import Tx


class SqliteSchedules(SqliteCronSchedules):
    """Stores schedules and token buckets; see ``forge_jobs.store.schedules``."""

    async def ensure_token_bucket(
        self, scope: str, *, capacity: float, refill_per_s: float
    ) -> TokenBucket:
        check_bucket(scope, capacity=capacity, refill_per_s=refill_per_s)
        return await self._writer.call(partial(_ensure_bucket, scope, capacity, refill_per_s))

    async def put_token_bucket(
        self, scope: str, *, capacity: float, refill_per_s: float
    ) -> TokenBucket:
        check_bucket(scope, capacity=capacity, refill_per_s=refill_per_s)
        return await self._writer.call(partial(_put_bucket, scope, capacity, refill_per_s))

    async def take(self, scope: str, permits: int) -> Grant:
        return await self._writer.call(partial(_take, scope, permits))

    async def drain(self, scope: str) -> None:
        await self._writer.call(partial(_drain, scope))

    async def buckets(self) -> list[TokenBucket]:
        now = self._clock.now()
        stored = await self._reader.call(_buckets)
        return [filled(bucket, now) for bucket in stored]


def _ensure_bucket(scope: str, capacity: float, refill_per_s: float, tx: Tx) -> TokenBucket:
    found = tx.row(SQL["token_bucket"], (scope,))
    if found is not None:
        return filled(_bucket(found), tx.now)
    return _put(tx, full(scope, capacity=capacity, refill_per_s=refill_per_s, now=tx.now))


def _put_bucket(scope: str, capacity: float, refill_per_s: float, tx: Tx) -> TokenBucket:
    found = tx.row(SQL["token_bucket"], (scope,))
    if found is None:
        return _put(tx, full(scope, capacity=capacity, refill_per_s=refill_per_s, now=tx.now))
    known = _bucket(found)
    return _put(tx, resized(known, capacity=capacity, refill_per_s=refill_per_s, now=tx.now))


def _take(scope: str, permits: int, tx: Tx) -> Grant:
    left, grant = taken(_require(scope, tx), permits, tx.now)
    if grant.granted:
        _put(tx, left)
    return grant


def _drain(scope: str, tx: Tx) -> None:
    _put(tx, structs.replace(filled(_require(scope, tx), tx.now), tokens=0.0))


def _require(scope: str, tx: Tx) -> TokenBucket:
    found = tx.row(SQL["token_bucket"], (scope,))
    if found is None:
        raise NotFound(f"rate limit scope {scope!r} is not declared")
    return _bucket(found)


def _put(tx: Tx, bucket: TokenBucket) -> TokenBucket:
    tx.execute(
        SQL["put_token_bucket"],
        (bucket.scope, bucket.capacity, bucket.refill_per_s, bucket.tokens, bucket.at),
    )
    return bucket


def _buckets(connection: sqlite3.Connection) -> list[TokenBucket]:
    return [_bucket(row) for row in connection.execute(SQL["token_buckets"]).fetchall()]


def _bucket(row: tuple[Any, ...]) -> TokenBucket:
    scope, capacity, refill_per_s, tokens, at = row
    return TokenBucket(
        scope=scope, capacity=capacity, refill_per_s=refill_per_s, tokens=tokens, at=at
    )
