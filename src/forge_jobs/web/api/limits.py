"""Limits over HTTP: declared limits of queues and tasks, throttle scopes, rate limits of handlers.

The name of a scope may be any text, so it is in the body and not in the path.
"""

import asyncio
from typing import Annotated

from msgspec import Meta, Struct

from forge_jobs.ops import declared_limits, rate_limits
from forge_jobs.ops.declared_limits import LimitView, ScopeView
from forge_jobs.ops.rate_limits import RateLimitView
from forge_jobs.web.request_context import RequestContext

from .parameters import Body, KeyText, LimitName
from .route import Routes

routes = Routes()

Rate = Annotated[str, Meta(pattern="^[0-9]{1,9}(\\.[0-9]{1,6})?/(s|m|h|d)$")]
Burst = Annotated[float, Meta(ge=1, le=1_000_000)]
Concurrency = Annotated[int, Meta(ge=0, le=100_000)]


class AllLimits(Struct, frozen=True, kw_only=True):
    """Declared limits, throttle scopes and rate limits."""

    limits: tuple[LimitView, ...]
    scopes: tuple[ScopeView, ...]
    rates: tuple[RateLimitView, ...]


class LimitBody(Body, frozen=True, kw_only=True):
    """Bounds to set; omitted ones do not change. ``lift`` removes all of them."""

    concurrency: Concurrency | None = None
    rate: Rate | None = None
    burst: Burst | None = None
    lift: bool = False


class RateBody(Body, frozen=True, kw_only=True):
    """The rate of a scope that handlers take permits from."""

    scope: KeyText
    rate: Rate | None = None
    burst: Burst | None = None


class ScopeBody(Body, frozen=True, kw_only=True):
    """A scope by its name."""

    scope: KeyText


@routes.get("/limits")
async def list_limits(context: RequestContext) -> AllLimits:
    """All limits, throttle scopes and rate limits."""
    declared, scopes, rates = await asyncio.gather(
        declared_limits.declared_limits(context.store),
        declared_limits.scopes(context.store, clock=context.clock),
        rate_limits.rate_limits(context.store),
    )
    return AllLimits(limits=declared, scopes=scopes, rates=rates)


@routes.put("/limits/{name}")
async def put_limit(context: RequestContext, name: LimitName, body: LimitBody) -> LimitView:
    """Set the bounds of a limit; code does not overwrite them."""
    return await context.limit_actions.set(
        name,
        concurrency=body.concurrency,
        rate=body.rate,
        burst=body.burst,
        lift=body.lift,
    )


@routes.post("/limits/{name}/reset")
async def reset_limit(context: RequestContext, name: LimitName) -> None:
    """Return a limit to what code declares."""
    await context.limit_actions.reset(name)


@routes.post("/scopes/open")
async def open_scope(context: RequestContext, body: ScopeBody) -> None:
    """Open a throttled scope: its jobs may start."""
    await context.limit_actions.open_scope(body.scope)


@routes.post("/rates")
async def set_rate(context: RequestContext, body: RateBody) -> RateLimitView:
    """Set the rate of a scope that handlers take permits from."""
    return await context.rate_limit_actions.set_rate(body.scope, body.rate, burst=body.burst)


@routes.post("/rates/drain")
async def drain_rate(context: RequestContext, body: ScopeBody) -> RateLimitView:
    """Remove all permits of a scope until it has refilled."""
    return await context.rate_limit_actions.drain(body.scope)
