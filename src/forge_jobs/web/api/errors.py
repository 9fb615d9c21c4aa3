"""Error groups over HTTP."""

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct

from forge_jobs.core.error_groups import GroupState
from forge_jobs.core.selection import Selection
from forge_jobs.ops import error_groups as ops
from forge_jobs.ops.actions import Action
from forge_jobs.ops.error_groups import (
    DEFAULT_SPAN_S,
    ErrorGroupDetail,
    ErrorGroupsPage,
    ErrorGroupView,
    GroupOrder,
)
from forge_jobs.ops.operations import Operation
from forge_jobs.web.request_context import RequestContext

from .bulk import BulkPreview
from .parameters import Body, CursorText, GroupId, KindName, Limit, QueueName
from .route import Routes

routes = Routes()

Span: TypeAlias = Annotated[float, Meta(gt=0, le=14 * 86_400)]


class ErrorsQuery(Struct, frozen=True, kw_only=True):
    """Groups seen in the last ``span_s`` seconds."""

    span_s: Span = DEFAULT_SPAN_S
    kind: KindName | None = None
    queue: QueueName | None = None
    state: tuple[GroupState, ...] = ()
    sort: GroupOrder = GroupOrder.LAST_SEEN
    limit: Limit = 50
    after: CursorText | None = None


class ErrorQuery(Struct, frozen=True, kw_only=True):
    """The time range of the trend and of ``recent``."""

    span_s: Span = DEFAULT_SPAN_S


class ErrorJobsBody(Body, frozen=True, kw_only=True):
    """An action on the jobs whose last failed attempt is of a group; only those of a kind or queue,
    if that is given."""

    action: Literal["retry", "cancel"]
    kind: KindName | None = None
    queue: QueueName | None = None


@routes.get("/errors")
async def list_errors(context: RequestContext, query: ErrorsQuery) -> ErrorGroupsPage:
    """Groups of failures with the same cause."""
    return await ops.error_groups(
        context.store,
        span_s=query.span_s,
        kind=query.kind,
        queue=query.queue,
        states=query.state,
        order=query.sort,
        limit=query.limit,
        after=query.after,
        clock=context.clock,
    )


@routes.get("/errors/{id}")
async def get_error(context: RequestContext, id: GroupId, query: ErrorQuery) -> ErrorGroupDetail:
    """One group with its trend, where it comes from, and samples with their tracebacks."""
    return await ops.error_group(context.store, id, span_s=query.span_s, clock=context.clock)


@routes.post("/errors/{id}/resolve")
async def resolve_error(context: RequestContext, id: GroupId) -> ErrorGroupView:
    """Mark a group as resolved; it is flagged as returned when it is seen again."""
    return await context.error_group_actions.resolve(id)


@routes.post("/errors/{id}/reopen")
async def reopen_error(context: RequestContext, id: GroupId) -> ErrorGroupView:
    """Remove the mark of a resolved group."""
    return await context.error_group_actions.reopen(id)


@routes.post("/errors/{id}/jobs/preview", writes=False)
async def preview_error_jobs(
    context: RequestContext, id: GroupId, body: ErrorJobsBody
) -> BulkPreview:
    """Count the jobs of a group that an action would reach; nothing is changed."""
    action = Action(body.action)
    selected = ops.jobs_of(id, action, kind=body.kind, queue=body.queue)
    count = await context.job_actions.preview(action, selected)
    return BulkPreview(count.jobs, count.more)


@routes.post("/errors/{id}/jobs")
async def act_on_error_jobs(context: RequestContext, id: GroupId, body: ErrorJobsBody) -> Operation:
    """Retry the failed and dead jobs of a group, or cancel its live ones, in the background."""
    await ops.error_group(context.store, id, clock=context.clock)
    action = Action(body.action)
    selection = Selection(filter=ops.jobs_of(id, action, kind=body.kind, queue=body.queue))
    return await context.operations.start(
        context.job_actions, action, selection, actor=context.identity.name
    )
