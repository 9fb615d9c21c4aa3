"""The schedule contract of a row-wise store: cron schedules (inherited) and token buckets."""

from msgspec import structs

from forge_jobs.core.errors import NotFound
from forge_jobs.core.instant import Instant
from forge_jobs.core.token_bucket import (
    Grant,
    TokenBucket,
    check_bucket,
    filled,
    full,
    resized,
    taken,
)

from .cron_schedules import RowwiseCronSchedules


class RowwiseSchedules(RowwiseCronSchedules):
    """``ScheduleStore`` of a row-wise store; see ``forge_jobs.store.schedules``."""

    async def ensure_token_bucket(
        self, scope: str, *, capacity: float, refill_per_s: float
    ) -> TokenBucket:
        check_bucket(scope, capacity=capacity, refill_per_s=refill_per_s)
        with self._storage.write() as tx:
            now = tx.now
            if scope not in self._tables.token_buckets:
                self._tables.token_buckets[scope] = full(
                    scope, capacity=capacity, refill_per_s=refill_per_s, now=now
                )
            return self._filled(scope, now)

    async def put_token_bucket(
        self, scope: str, *, capacity: float, refill_per_s: float
    ) -> TokenBucket:
        check_bucket(scope, capacity=capacity, refill_per_s=refill_per_s)
        with self._storage.write() as tx:
            now = tx.now
            known = self._tables.token_buckets.get(scope)
            bucket = (
                full(scope, capacity=capacity, refill_per_s=refill_per_s, now=now)
                if known is None
                else resized(known, capacity=capacity, refill_per_s=refill_per_s, now=now)
            )
            self._tables.token_buckets[scope] = bucket
            return bucket

    async def take(self, scope: str, permits: int) -> Grant:
        with self._storage.write() as tx:
            now = tx.now
            left, grant = taken(self._known(scope), permits, now)
            self._tables.token_buckets[scope] = left
            return grant

    async def drain(self, scope: str) -> None:
        with self._storage.write() as tx:
            now = tx.now
            self._tables.token_buckets[scope] = structs.replace(
                self._filled(scope, now), tokens=0.0
            )

    async def buckets(self) -> list[TokenBucket]:
        with self._storage.read() as now:
            return [self._filled(scope, now) for scope in sorted(self._tables.token_buckets)]

    def _filled(self, scope: str, now: Instant) -> TokenBucket:
        return filled(self._known(scope), now)

    def _known(self, scope: str) -> TokenBucket:
        bucket = self._tables.token_buckets.get(scope)
        if bucket is None:
            raise NotFound(f"rate limit scope {scope!r} is not declared")
        return bucket
