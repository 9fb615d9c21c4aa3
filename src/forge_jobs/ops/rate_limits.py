"""Rate limits that handlers take permits from: read models and operator actions."""

from typing import Final

from forge_jobs.core import names
from forge_jobs.core.errors import NotFound
from forge_jobs.core.limits import rate_of, rate_text
from forge_jobs.core.token_bucket import TokenBucket
from forge_jobs.kit.clock import SYSTEM_CLOCK, Clock
from forge_jobs.store.store import Store

from .audit import Actor, Audit, AuditTrail, field_values
from .views import View

_AUDITED: Final = ("refill_per_s", "capacity")


class RateLimitView(View, frozen=True, kw_only=True):
    """A scope of ``ctx.rate_limit``: ``available`` permits of at most ``burst``. Without any, the
    next permit is available in ``next_in_s``."""

    scope: str
    rate: str
    per_s: float
    burst: float
    available: int
    next_in_s: float


async def rate_limits(store: Store) -> tuple[RateLimitView, ...]:
    """All scopes, by name."""
    return tuple(_rate_limit_view(bucket) for bucket in await store.token_buckets.all())


class RateLimitActions:
    """Changes rate limits of one store; ``actor`` is the name in the audit."""

    def __init__(
        self,
        store: Store,
        *,
        actor: str | Actor,
        audit: Audit | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._store = store
        self._trail = AuditTrail(store, actor, audit, clock)

    async def set_rate(
        self, scope: str, rate: str | None = None, *, burst: float | None = None
    ) -> RateLimitView:
        """Set rate and burst; a new scope starts with a full bucket. Without ``rate`` it stays;
        without ``burst`` the capacity follows a new rate, or stays. Workers apply the change within
        seconds, and code never overwrites it."""
        names.key_text("scope", scope)
        buckets = {bucket.scope: bucket for bucket in await self._store.token_buckets.all()}
        bucket = buckets.get(scope)
        if rate is None and bucket is None:
            raise NotFound(f"there is no rate limit {scope!r} yet: say its rate, for example 50/m")
        per_s = bucket.refill_per_s if rate is None and bucket is not None else 0.0
        capacity = 1.0 if bucket is None else bucket.capacity
        if rate is not None:
            per_s, _ = rate_of(rate)
            capacity = max(1.0, float(rate.partition("/")[0]))
        before = field_values(bucket, _AUDITED)
        bucket = await self._store.token_buckets.put(
            scope, capacity=capacity if burst is None else burst, refill_per_s=per_s
        )
        detail = {"per_s": bucket.refill_per_s, "burst": bucket.capacity}
        after = field_values(bucket, _AUDITED)
        await self._trail.record("set limit", scope, detail, before=before, after=after)
        return _rate_limit_view(bucket)

    async def drain(self, scope: str) -> RateLimitView:
        """Empty the bucket: no permit until it has refilled. For when the remote side refuses."""
        buckets = await self._store.token_buckets.all()
        if all(bucket.scope != scope for bucket in buckets):
            scopes = ", ".join(bucket.scope for bucket in buckets) or "none"
            raise NotFound(f"there is no rate limit {scope!r} (known: {scopes})")
        await self._store.token_buckets.drain(scope)
        await self._trail.record("drain limit", scope)
        views = await rate_limits(self._store)
        return next(view for view in views if view.scope == scope)


def _rate_limit_view(bucket: TokenBucket) -> RateLimitView:
    available = int(bucket.tokens + 1e-6)
    wait_s = 0.0
    if not available and bucket.refill_per_s > 0:
        wait_s = round((1 - bucket.tokens) / bucket.refill_per_s, 3)
    return RateLimitView(
        scope=bucket.scope,
        rate=rate_text(bucket.refill_per_s) if bucket.refill_per_s > 0 else "never refilled",
        per_s=bucket.refill_per_s,
        burst=bucket.capacity,
        available=available,
        next_in_s=wait_s,
    )
