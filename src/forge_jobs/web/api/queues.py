"""Queues over HTTP."""

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from forge_jobs.ops import queries
from forge_jobs.ops.actions import QueueChange
from forge_jobs.ops.views import QueueView
from forge_jobs.web.access.identity import Role
from forge_jobs.web.request_context import RequestContext

from .job_actions import DeletedJobs
from .parameters import Body, Days, QueueName, Seconds, Slots, renamed, required
from .route import BadRequest, Routes

routes = Routes()


class PausedBody(Body, frozen=True, kw_only=True):
    """Whether the queue is paused."""

    paused: bool


class MaxWorkersBody(Body, frozen=True, kw_only=True):
    """Cluster-wide slots."""

    slots: Slots | None = None
    n: Slots | None = None


class RetentionBody(Body, frozen=True, kw_only=True):
    """How long terminal jobs are kept; null keeps them for ever, omitted fields do not change."""

    done_days: Days | UnsetType | None = UNSET
    dead_days: Days | UnsetType | None = UNSET
    cancelled_days: Days | UnsetType | None = UNSET


class BackoffBody(Body, frozen=True, kw_only=True):
    """How a queue backs off while its jobs are throttled; omitted fields do not change."""

    enabled: bool | UnsetType = UNSET
    base_seconds: Annotated[float, Meta(gt=0, le=31_536_000)] | UnsetType = UNSET
    max_seconds: Seconds | UnsetType = UNSET


class QueueBody(Body, frozen=True, kw_only=True):
    """Settings of a queue, which is created if needed."""

    slots: Slots


@routes.get("/queue/overview")
async def overview(context: RequestContext) -> tuple[QueueView, ...]:
    """Every queue with its settings, counts and workers."""
    return await queries.queues(context.store, clock=context.clock)


@routes.get("/queue/{name}")
async def get_queue(context: RequestContext, name: QueueName) -> QueueView:
    """One queue."""
    return await queries.queue(context.store, name, clock=context.clock)


@routes.put("/queue/{name}")
async def put_queue(context: RequestContext, name: QueueName, body: QueueBody) -> QueueView:
    """Set the slots of a queue; creates its settings if needed."""
    await context.job_actions.set_queue(name, QueueChange(slots=body.slots), create=True)
    return await queries.queue(context.store, name, clock=context.clock)


@routes.post("/queue/{name}/max-workers")
async def set_max_workers(context: RequestContext, name: QueueName, body: MaxWorkersBody) -> None:
    """Set the cluster-wide slots of a queue."""
    slots = required("slots", renamed("slots", body.slots, "n", body.n))
    await context.job_actions.set_queue(name, QueueChange(slots=slots))


@routes.post("/queue/{name}/paused")
async def set_paused(context: RequestContext, name: QueueName, body: PausedBody) -> None:
    """Pause or resume a queue."""
    if body.paused:
        await context.job_actions.pause(name)
    else:
        await context.job_actions.resume(name)


@routes.post("/queue/{name}/retention", role=Role.ADMIN)
async def set_retention(context: RequestContext, name: QueueName, body: RetentionBody) -> None:
    """Set how long terminal jobs of a queue are kept."""
    change = QueueChange(
        retain_done_s=_to_seconds(body.done_days),
        retain_dead_s=_to_seconds(body.dead_days),
        retain_cancelled_s=_to_seconds(body.cancelled_days),
    )
    await context.job_actions.set_queue(name, _require_change(change))


@routes.post("/queue/{name}/backoff")
async def set_backoff(context: RequestContext, name: QueueName, body: BackoffBody) -> None:
    """Set how a queue backs off after a throttle."""
    change = QueueChange(
        backoff_enabled=body.enabled,
        backoff_base_s=body.base_seconds,
        backoff_max_s=body.max_seconds,
    )
    await context.job_actions.set_queue(name, _require_change(change))


@routes.post("/queue/{name}/unthrottle")
async def unthrottle(context: RequestContext, name: QueueName) -> None:
    """Open the throttle gate of a queue now."""
    await context.job_actions.unthrottle(name)


@routes.post("/queue/cleanup", role=Role.ADMIN)
async def cleanup(context: RequestContext) -> DeletedJobs:
    """Purge terminal jobs past their retention now."""
    return DeletedJobs(await context.job_actions.purge())


def _to_seconds(days: float | UnsetType | None) -> float | UnsetType | None:
    return days * 86_400.0 if isinstance(days, int | float) else days


def _require_change(change: QueueChange) -> QueueChange:
    if change == QueueChange():
        raise BadRequest("body", "body: say at least one thing to change")
    return change
