"""Bulk operations over HTTP: preview, start, progress, stop."""

from typing import Annotated

from msgspec import Meta, Struct

from forge_jobs.core.selection import Selection
from forge_jobs.ops.actions import Action
from forge_jobs.ops.operations import Operation
from forge_jobs.web.access.identity import Role
from forge_jobs.web.request_context import NotAllowed, RequestContext

from .parameters import Body, JobFilter, JobId, OperationId
from .route import BadRequest, Routes

routes = Routes()


class PreviewBody(Body, frozen=True, kw_only=True):
    """An action and the filter of its jobs."""

    action: Action
    filter: JobFilter = JobFilter()


class BulkPreview(Struct, frozen=True):
    """How many jobs the action would reach; ``more``: the count stopped at 10,000."""

    jobs: int
    more: bool


class BulkBody(Body, frozen=True, kw_only=True):
    """An action on jobs by id or by filter: exactly one of the two."""

    action: Action
    ids: Annotated[tuple[JobId, ...], Meta(max_length=10_000)] = ()
    filter: JobFilter | None = None


@routes.post("/bulk/preview", writes=False)
async def preview(context: RequestContext, body: PreviewBody) -> BulkPreview:
    """Count the jobs an action would reach; nothing is changed."""
    count = await context.job_actions.preview(body.action, body.filter.bulk_filter())
    return BulkPreview(count.jobs, count.more)


@routes.post("/bulk")
async def start(context: RequestContext, body: BulkBody) -> Operation:
    """Start an action on many jobs in the background. Deleting needs an admin."""
    if body.action is Action.DELETE and not context.may(Role.ADMIN):
        raise NotAllowed("deleting needs the role admin: ask one")
    if bool(body.ids) == (body.filter is not None):
        raise BadRequest("filter", "filter: give ids or a filter, one of the two")
    selection = (
        Selection(ids=body.ids)
        if body.filter is None
        else Selection(filter=body.filter.bulk_filter())
    )
    return await context.operations.start(
        context.job_actions, body.action, selection, actor=context.identity.name
    )


@routes.get("/bulk")
async def list_operations(context: RequestContext) -> tuple[Operation, ...]:
    """Operations of this process, newest first."""
    return context.operations.all()


@routes.get("/bulk/{id}")
async def get_operation(context: RequestContext, id: OperationId) -> Operation:
    """The progress of an operation."""
    return context.operations.get(id)


@routes.post("/bulk/{id}/stop")
async def stop(context: RequestContext, id: OperationId) -> Operation:
    """Stop an operation after its current batch; committed batches are not undone."""
    return context.operations.stop(id)
