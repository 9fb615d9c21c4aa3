"""The schedule contract on memory: cron ticks that fire once, and rate buckets."""

import math

from msgspec import structs

from forge_jobs.core.errors import NotFound
from forge_jobs.core.instant import SECOND, Instant
from forge_jobs.store.schedules import Bucket, Grant

from .timetable import MemoryTimetable

# A permit that is there but for a rounding error is there.
_ROUNDING = 1e-6


class MemorySchedules(MemoryTimetable):
    """What fires by time and rate; see ``forge_jobs.store.schedules``."""

    async def ensure_bucket(self, scope: str, *, capacity: float, refill_per_s: float) -> Bucket:
        with self._tables.change() as now:
            if scope not in self._tables.buckets:
                self._tables.buckets[scope] = _full(scope, capacity, refill_per_s, now)
            return self._filled(scope, now)

    async def put_bucket(self, scope: str, *, capacity: float, refill_per_s: float) -> Bucket:
        with self._tables.change() as now:
            bucket = _full(scope, capacity, refill_per_s, now)
            if scope in self._tables.buckets:
                known = self._filled(scope, now)
                tokens = min(known.tokens, capacity)
                bucket = structs.replace(bucket, tokens=tokens, at=known.at)
            self._tables.buckets[scope] = bucket
            return bucket

    async def take(self, scope: str, permits: int) -> Grant:
        with self._tables.change() as now:
            bucket = self._filled(scope, now)
            granted = min(max(permits, 0), math.floor(bucket.tokens + _ROUNDING))
            left = max(bucket.tokens - granted, 0.0)
            self._tables.buckets[scope] = structs.replace(bucket, tokens=left)
            if granted >= permits or bucket.refill_per_s <= 0:
                return Grant(granted)
            return Grant(granted, bucket.at + math.ceil((1 - left) / bucket.refill_per_s * SECOND))

    async def drain(self, scope: str) -> None:
        with self._tables.change() as now:
            self._tables.buckets[scope] = structs.replace(self._filled(scope, now), tokens=0.0)

    async def buckets(self) -> list[Bucket]:
        with self._tables.look() as now:
            return [self._filled(scope, now) for scope in sorted(self._tables.buckets)]

    def _filled(self, scope: str, now: Instant) -> Bucket:
        bucket = self._tables.buckets.get(scope)
        if bucket is None:
            raise NotFound(f"rate limit scope {scope!r} is not declared")
        gained = max(now - bucket.at, 0) / SECOND * bucket.refill_per_s
        tokens = min(bucket.tokens + gained, bucket.capacity)
        return structs.replace(bucket, tokens=tokens, at=max(now, bucket.at))


def _full(scope: str, capacity: float, refill_per_s: float, now: Instant) -> Bucket:
    return Bucket(
        scope=scope, capacity=capacity, refill_per_s=refill_per_s, tokens=capacity, at=now
    )
