"""The audit over HTTP."""

from typing import Annotated

from msgspec import Meta, Struct

from forge_jobs.ops.audit import AuditPage, entries
from forge_jobs.web.access.identity import Role
from forge_jobs.web.request_context import RequestContext

from .parameters import Limit, SearchText
from .route import Routes

routes = Routes()


class Query(Struct, frozen=True, kw_only=True):
    """Pieces of who, what and to what; ``after`` is the cursor of the page before."""

    actor: SearchText | None = None
    action: SearchText | None = None
    subject: SearchText | None = None
    limit: Limit = 200
    after: Annotated[str, Meta(pattern="^[0-9]{1,18}$")] | None = None


@routes.get("/audit", role=Role.OPERATOR)
async def listed(desk: RequestContext, query: Query) -> AuditPage:
    """Who did what, newest first."""
    return await entries(
        desk.store,
        actor=query.actor or "",
        action=query.action or "",
        subject=query.subject or "",
        limit=query.limit,
        after=query.after,
    )
