"""Queues over HTTP."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from forge_jobs.ops import queries
from forge_jobs.ops.actions import QueueChange
from forge_jobs.ops.views import QueueView
from forge_jobs.web.access.identity import Role
from forge_jobs.web.request_context import RequestContext

from .parameters import Body, Days, QueueName, Seconds, Slots
from .route import BadRequest, Routes

routes = Routes()


class Paused(Body, frozen=True, kw_only=True):
    """Whether the queue starts nothing more."""

    paused: bool


class MaxWorkers(Body, frozen=True, kw_only=True):
    """Slots over the whole cluster."""

    n: Slots


class RetentionDays(Body, frozen=True, kw_only=True):
    """How long ended jobs are kept; null keeps them for ever, what is not given stays."""

    done_days: Days | UnsetType | None = UNSET
    dead_days: Days | UnsetType | None = UNSET
    cancelled_days: Days | UnsetType | None = UNSET


class Backoff(Body, frozen=True, kw_only=True):
    """How a queue slows down while its jobs are throttled; what is not given stays."""

    enabled: bool | UnsetType = UNSET
    base_seconds: Annotated[float, Meta(gt=0, le=31_536_000)] | UnsetType = UNSET
    max_seconds: Seconds | UnsetType = UNSET


class NewQueue(Body, frozen=True, kw_only=True):
    """Settings of a queue; one without settings gets them."""

    slots: Slots


class Deleted(Struct, frozen=True):
    """How many jobs were removed."""

    deleted: int


@routes.get("/queue/overview")
async def overview(desk: RequestContext) -> tuple[QueueView, ...]:
    """Every queue with its settings, counts and who serves it."""
    return await queries.queues(desk.store, clock=desk.clock)


@routes.get("/queue/{name}")
async def one(desk: RequestContext, name: QueueName) -> QueueView:
    """One queue."""
    return await queries.queue(desk.store, name, clock=desk.clock)


@routes.put("/queue/{name}")
async def put(desk: RequestContext, name: QueueName, body: NewQueue) -> QueueView:
    """Give a queue its slots; it need not exist yet."""
    await desk.operator.set_queue(name, QueueChange(slots=body.slots), create=True)
    return await queries.queue(desk.store, name, clock=desk.clock)


@routes.post("/queue/{name}/max-workers")
async def max_workers(desk: RequestContext, name: QueueName, body: MaxWorkers) -> None:
    """Set how many jobs of a queue run at once over the cluster."""
    await desk.operator.set_queue(name, QueueChange(slots=body.n))


@routes.post("/queue/{name}/paused")
async def paused(desk: RequestContext, name: QueueName, body: Paused) -> None:
    """Pause a queue, or let it go on."""
    if body.paused:
        await desk.operator.pause(name)
    else:
        await desk.operator.resume(name)


@routes.post("/queue/{name}/retention", role=Role.ADMIN)
async def retention(desk: RequestContext, name: QueueName, body: RetentionDays) -> None:
    """Set how long ended jobs of a queue are kept."""
    change = QueueChange(
        retain_done_s=_seconds(body.done_days),
        retain_dead_s=_seconds(body.dead_days),
        retain_cancelled_s=_seconds(body.cancelled_days),
    )
    await desk.operator.set_queue(name, _something(change))


@routes.post("/queue/{name}/backoff")
async def backoff(desk: RequestContext, name: QueueName, body: Backoff) -> None:
    """Set how a queue backs off after a throttle."""
    change = QueueChange(
        backoff_enabled=body.enabled,
        backoff_base_s=body.base_seconds,
        backoff_max_s=body.max_seconds,
    )
    await desk.operator.set_queue(name, _something(change))


@routes.post("/queue/{name}/unthrottle")
async def unthrottle(desk: RequestContext, name: QueueName) -> None:
    """Open a queue's throttle gate now."""
    await desk.operator.unthrottle(name)


@routes.post("/queue/cleanup", role=Role.ADMIN)
async def cleanup(desk: RequestContext) -> Deleted:
    """Remove ended jobs past their retention now."""
    return Deleted(await desk.operator.purge())


def _seconds(days: float | UnsetType | None) -> float | UnsetType | None:
    return days * 86_400.0 if isinstance(days, int | float) else days


def _something(change: QueueChange) -> QueueChange:
    if change == QueueChange():
        raise BadRequest("body", "body: say at least one thing to change")
    return change
