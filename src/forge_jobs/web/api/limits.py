"""Limits over HTTP: declared limits of queues and tasks, throttle scopes, rate limits of handlers.

Scopes are any text, so they stand in the body and not in the path.
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
    """Everything that bounds jobs."""

    limits: tuple[LimitView, ...]
    scopes: tuple[ScopeView, ...]
    rates: tuple[RateLimitView, ...]


class NewLimit(Body, frozen=True, kw_only=True):
    """Numbers to set; what is not given stays. ``lift`` takes all of them away."""

    concurrency: Concurrency | None = None
    rate: Rate | None = None
    burst: Burst | None = None
    lift: bool = False


class NewRate(Body, frozen=True, kw_only=True):
    """The rate of a scope that handlers ask permits of."""

    scope: KeyText
    rate: Rate | None = None
    burst: Burst | None = None


class Scope(Body, frozen=True, kw_only=True):
    """A scope by its name."""

    scope: KeyText


@routes.get("/limits")
async def listed(desk: RequestContext) -> AllLimits:
    """All limits, throttle scopes and rate limits."""
    declared, scopes, rates = await asyncio.gather(
        declared_limits.declared_limits(desk.store),
        declared_limits.scopes(desk.store, clock=desk.clock),
        rate_limits.rate_limits(desk.store),
    )
    return AllLimits(limits=declared, scopes=scopes, rates=rates)


@routes.put("/limits/{name}")
async def put(desk: RequestContext, name: LimitName, body: NewLimit) -> LimitView:
    """Set the numbers of a limit; code does not overwrite them."""
    return await desk.bound_operator.set(
        name,
        concurrency=body.concurrency,
        rate=body.rate,
        burst=body.burst,
        lift=body.lift,
    )


@routes.post("/limits/{name}/reset")
async def reset(desk: RequestContext, name: LimitName) -> None:
    """Let code say again what a limit is."""
    await desk.bound_operator.reset(name)


@routes.post("/scopes/open")
async def open_scope(desk: RequestContext, body: Scope) -> None:
    """Forget the throttle of a scope: its jobs start again."""
    await desk.bound_operator.open_scope(body.scope)


@routes.post("/rates")
async def set_rate(desk: RequestContext, body: NewRate) -> RateLimitView:
    """Set the rate of a scope that handlers ask permits of."""
    return await desk.limit_operator.set_rate(body.scope, body.rate, burst=body.burst)


@routes.post("/rates/drain")
async def drain(desk: RequestContext, body: Scope) -> RateLimitView:
    """Let nobody have a permit of a scope until it has refilled."""
    return await desk.limit_operator.drain(body.scope)
