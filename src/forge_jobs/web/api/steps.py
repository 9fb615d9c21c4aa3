"""Steps, events and waits over HTTP: what a workflow has stored and waits for, sending an event,
and a retry from a step."""

from typing import Annotated, Any

from msgspec import Meta, Struct, field

from forge_jobs.core.events import SentEvent
from forge_jobs.ops import steps
from forge_jobs.ops.event_actions import RetriedFrom
from forge_jobs.ops.steps import EventsPage, StepsPage, WaitsPage
from forge_jobs.web.request_context import RequestContext

from .parameters import Body, CursorText, JobId, KeyText, KindName, Limit, Offset
from .route import Routes

routes = Routes()

StepName = Annotated[str, Meta(min_length=1, max_length=1_000)]
EventCursor = Annotated[str, Meta(pattern="^[0-9]{1,18}$")]
Flag = Annotated[int, Meta(ge=0, le=1)]


class StepsQuery(Struct, frozen=True, kw_only=True):
    """``values=1`` adds the values, with secrets masked; such a page ends early at 1 MiB."""

    offset: Offset = 0
    limit: Limit = steps.DEFAULT_LIMIT
    values: Flag = 0


class EventsQuery(Struct, frozen=True, kw_only=True):
    """Events of a name, of a name and key, or all; ``before`` is the ``next`` of the page
    before."""

    name: KindName | None = None
    key: KeyText | None = None
    limit: Limit = steps.DEFAULT_LIMIT
    before: EventCursor | None = None


class WaitsQuery(Struct, frozen=True, kw_only=True):
    """Waits for a name, for a name and key, or all; ``after`` is the ``next`` of the page
    before."""

    name: KindName | None = None
    key: KeyText | None = None
    limit: Limit = steps.DEFAULT_LIMIT
    after: CursorText | None = None


class SendBody(Body, frozen=True, kw_only=True):
    """An event. ``job_id`` instead of ``key``: it is for that job alone. ``dedupe_key``: of several
    events of this name with it, only the first is sent."""

    name: KindName
    payload: Any = None
    key: KeyText | None = None
    dedupe_key: KeyText | None = None
    job_id: JobId | None = None


class RetryFromBody(Body, frozen=True, kw_only=True):
    """The step to retry from, as ``GET /jobs/{id}/steps`` names it."""

    step: StepName = field(name="from")


@routes.get("/jobs/{id}/steps")
async def list_steps(context: RequestContext, id: JobId, query: StepsQuery) -> StepsPage:
    """Steps of a job in the order in which they began, open waits last."""
    return await steps.job_steps(
        context.store,
        id,
        offset=query.offset,
        limit=query.limit,
        values=query.values == 1,
        clock=context.clock,
    )


@routes.post("/jobs/{id}/retry")
async def retry_from(context: RequestContext, id: JobId, body: RetryFromBody) -> RetriedFrom:
    """Delete a step and all that began later, and retry the job: failed, dead or cancelled."""
    return await context.event_actions.retry_from(id, body.step)


@routes.get("/events")
async def list_events(context: RequestContext, query: EventsQuery) -> EventsPage:
    """Stored events, newest first, with their payloads masked."""
    return await steps.events(
        context.store, name=query.name, key=query.key, limit=query.limit, before=query.before
    )


@routes.post("/events")
async def send_event(context: RequestContext, body: SendBody) -> SentEvent:
    """Send an event: jobs that wait for its name and key go on."""
    return await context.event_actions.send(
        body.name, body.payload, key=body.key, dedupe_key=body.dedupe_key, job_id=body.job_id
    )


@routes.get("/waits")
async def list_waits(context: RequestContext, query: WaitsQuery) -> WaitsPage:
    """What suspended jobs wait for, by name, key and job."""
    return await steps.waits(
        context.store, name=query.name, key=query.key, limit=query.limit, after=query.after
    )
