"""The schedule contract on SQLite: cron ticks that fire once, and rate buckets."""

import math
import sqlite3
from functools import partial
from typing import Any, Final

from msgspec import structs

from forge_jobs.core.errors import NotFound
from forge_jobs.core.instant import SECOND, Instant
from forge_jobs.store.schedules import Bucket, Grant

from .timetable import SQL, SqliteTimetable
from .transaction import Tx

# A permit that is there but for a rounding error is there.
_ROUNDING: Final = 1e-6


class SqliteSchedules(SqliteTimetable):
    """What fires by time and rate; see ``forge_jobs.store.schedules``."""

    async def ensure_bucket(self, scope: str, *, capacity: float, refill_per_s: float) -> Bucket:
        return await self._writer.call(partial(_ensure_bucket, scope, capacity, refill_per_s))

    async def put_bucket(self, scope: str, *, capacity: float, refill_per_s: float) -> Bucket:
        return await self._writer.call(partial(_put_bucket, scope, capacity, refill_per_s))

    async def take(self, scope: str, permits: int) -> Grant:
        return await self._writer.call(partial(_take, scope, permits))

    async def drain(self, scope: str) -> None:
        await self._writer.call(partial(_drain, scope))

    async def buckets(self) -> list[Bucket]:
        now = self._clock.now()
        stored = await self._reader.call(_buckets)
        return [_filled(bucket, now) for bucket in stored]


def _ensure_bucket(scope: str, capacity: float, refill_per_s: float, tx: Tx) -> Bucket:
    found = tx.row(SQL["bucket"], (scope,))
    if found is not None:
        return _filled(_bucket(found), tx.now)
    return _keep(tx, _full(scope, capacity, refill_per_s, tx.now))


def _put_bucket(scope: str, capacity: float, refill_per_s: float, tx: Tx) -> Bucket:
    bucket = _full(scope, capacity, refill_per_s, tx.now)
    found = tx.row(SQL["bucket"], (scope,))
    if found is not None:
        known = _filled(_bucket(found), tx.now)
        bucket = structs.replace(bucket, tokens=min(known.tokens, capacity), at=known.at)
    return _keep(tx, bucket)


def _take(scope: str, permits: int, tx: Tx) -> Grant:
    bucket = _known(scope, tx)
    granted = min(max(permits, 0), math.floor(bucket.tokens + _ROUNDING))
    left = max(bucket.tokens - granted, 0.0)
    _keep(tx, structs.replace(bucket, tokens=left))
    if granted >= permits or bucket.refill_per_s <= 0:
        return Grant(granted)
    return Grant(granted, bucket.at + math.ceil((1 - left) / bucket.refill_per_s * SECOND))


def _drain(scope: str, tx: Tx) -> None:
    _keep(tx, structs.replace(_known(scope, tx), tokens=0.0))


def _known(scope: str, tx: Tx) -> Bucket:
    found = tx.row(SQL["bucket"], (scope,))
    if found is None:
        raise NotFound(f"rate limit scope {scope!r} is not declared")
    return _filled(_bucket(found), tx.now)


def _keep(tx: Tx, bucket: Bucket) -> Bucket:
    tx.execute(
        SQL["put_bucket"],
        (bucket.scope, bucket.capacity, bucket.refill_per_s, bucket.tokens, bucket.at),
    )
    return bucket


def _buckets(connection: sqlite3.Connection) -> list[Bucket]:
    return [_bucket(row) for row in connection.execute(SQL["buckets"]).fetchall()]


def _bucket(row: tuple[Any, ...]) -> Bucket:
    scope, capacity, refill_per_s, tokens, at = row
    return Bucket(scope=scope, capacity=capacity, refill_per_s=refill_per_s, tokens=tokens, at=at)


def _filled(bucket: Bucket, now: Instant) -> Bucket:
    gained = max(now - bucket.at, 0) / SECOND * bucket.refill_per_s
    tokens = min(bucket.tokens + gained, bucket.capacity)
    return structs.replace(bucket, tokens=tokens, at=max(now, bucket.at))


def _full(scope: str, capacity: float, refill_per_s: float, now: Instant) -> Bucket:
    return Bucket(
        scope=scope, capacity=capacity, refill_per_s=refill_per_s, tokens=capacity, at=now
    )
