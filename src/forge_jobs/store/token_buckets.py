"""Token buckets of rate limits: the rules of their settings, and the contract for permits."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from forge_jobs.core.instant import Instant
from forge_jobs.core.token_bucket import Grant, TokenBucket, check_bucket, filled, full, resized

from .settings import TOKEN_BUCKET, SettingStore, TypedSettings


class TokenBucketStore(Protocol):
    """The contract for permits: one call in store time, without a lock held by the caller."""

    async def take(self, scope: str, permits: int) -> Grant:
        """Take up to ``permits`` whole permits. A clock that is set back refills nothing. NotFound
        for an unknown scope."""
        ...

    async def drain(self, scope: str) -> None:
        """Empty the token bucket, after the external limiter refused a call. NotFound for an
        unknown scope."""
        ...


class TokenBuckets:
    """The token buckets of a store, by scope."""

    def __init__(
        self,
        settings: SettingStore,
        permits: TokenBucketStore,
        now: Callable[[], Awaitable[Instant]],
    ) -> None:
        self._buckets = TypedSettings(settings, TOKEN_BUCKET, TokenBucket)
        self._now = now
        self.take = permits.take
        self.drain = permits.drain

    async def ensure(self, scope: str, *, capacity: float, refill_per_s: float) -> TokenBucket:
        """The token bucket of a scope. Created full if absent, never overwritten. BadOption for a
        capacity below 1 or a negative rate."""
        check_bucket(scope, capacity=capacity, refill_per_s=refill_per_s)

        def create(known: TokenBucket | None, now: Instant) -> TokenBucket | None:
            if known is not None:
                return None
            return full(scope, capacity=capacity, refill_per_s=refill_per_s, now=now)

        return filled(await self._buckets.update(scope, create), await self._now())

    async def put(self, scope: str, *, capacity: float, refill_per_s: float) -> TokenBucket:
        """Create the token bucket full, or change its capacity and rate and keep
        min(tokens, capacity). BadOption as above."""
        check_bucket(scope, capacity=capacity, refill_per_s=refill_per_s)

        def changed(known: TokenBucket | None, now: Instant) -> TokenBucket:
            if known is None:
                return full(scope, capacity=capacity, refill_per_s=refill_per_s, now=now)
            return resized(known, capacity=capacity, refill_per_s=refill_per_s, now=now)

        return await self._buckets.update(scope, changed)

    async def all(self) -> list[TokenBucket]:
        """All token buckets, by scope, as of now."""
        buckets, now = await self._buckets.all(), await self._now()
        return [filled(bucket, now) for bucket in buckets]
