"""Saved views over HTTP: named query lines."""

from typing import Annotated

from msgspec import Meta

from forge_jobs.ops import saved_views as ops
from forge_jobs.ops.saved_views import MAX_NAME, SavedView
from forge_jobs.web.access.identity import Role
from forge_jobs.web.request_context import RequestContext

from .parameters import Body, QueryText
from .route import Routes

routes = Routes()

ViewName = Annotated[str, Meta(min_length=1, max_length=MAX_NAME, pattern="^[^/]+$")]


class SaveViewBody(Body, frozen=True, kw_only=True):
    """The query line to save."""

    query: QueryText


@routes.get("/views")
async def list_views(context: RequestContext) -> tuple[SavedView, ...]:
    """All saved views, by name."""
    return await ops.saved_views(context.store)


@routes.put("/views/{name}", role=Role.OPERATOR)
async def save_view(context: RequestContext, name: ViewName, body: SaveViewBody) -> SavedView:
    """Save a query line under a name, in place of an earlier one."""
    return await context.saved_view_actions.save(name, body.query)


@routes.delete("/views/{name}", role=Role.OPERATOR)
async def delete_view(context: RequestContext, name: ViewName) -> None:
    """Delete a saved view."""
    await context.saved_view_actions.delete(name)
