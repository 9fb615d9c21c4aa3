"""Bulk work over HTTP: preview, start, look, stop."""

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


class Previewed(Body, frozen=True, kw_only=True):
    """An action and the jobs it would be for."""

    action: Action
    filter: JobFilter = JobFilter()


class Preview(Struct, frozen=True):
    """How many jobs the action would reach; ``more`` when the count stopped at 10,000."""

    jobs: int
    more: bool


class Wish(Body, frozen=True, kw_only=True):
    """An action for jobs by id or by filter: one of the two."""

    action: Action
    ids: Annotated[tuple[JobId, ...], Meta(max_length=10_000)] = ()
    filter: JobFilter | None = None


@routes.post("/bulk/preview", writes=False)
async def preview(desk: RequestContext, body: Previewed) -> Preview:
    """How many jobs an action would reach; nothing is changed."""
    found = await desk.operator.preview(body.action, body.filter.exact())
    return Preview(found.jobs, found.more)


@routes.post("/bulk")
async def start(desk: RequestContext, body: Wish) -> Operation:
    """Begin an action on many jobs; it goes on in the background. Deleting needs an admin."""
    if body.action is Action.DELETE and not desk.may(Role.ADMIN):
        raise NotAllowed("deleting needs the role admin: ask one")
    if bool(body.ids) == (body.filter is not None):
        raise BadRequest("filter", "filter: give ids or a filter, one of the two")
    selection = (
        Selection(ids=body.ids) if body.filter is None else Selection(filter=body.filter.exact())
    )
    return await desk.operations.start(
        desk.operator, body.action, selection, actor=desk.identity.name
    )


@routes.get("/bulk")
async def everything(desk: RequestContext) -> tuple[Operation, ...]:
    """Operations of this process, newest first."""
    return desk.operations.all()


@routes.get("/bulk/{id}")
async def one(desk: RequestContext, id: OperationId) -> Operation:
    """How far an operation has come."""
    return desk.operations.get(id)


@routes.post("/bulk/{id}/stop")
async def stop(desk: RequestContext, id: OperationId) -> Operation:
    """Stop an operation after its present step; what is done stays done."""
    return desk.operations.stop(id)
