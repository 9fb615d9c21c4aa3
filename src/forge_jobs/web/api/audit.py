"""The audit over HTTP."""

from typing import Annotated

from msgspec import Meta, Struct

from forge_jobs.ops.audit import AuditPage, entries
from forge_jobs.web.access.identity import Role
from forge_jobs.web.desk import Desk

from .route import Routes
from .words import Limit, SearchText

routes = Routes()


class Query(Struct, frozen=True, kw_only=True):
    """Pieces of who, what and to what; ``after`` is the cursor of the page before."""

    actor: SearchText | None = None
    action: SearchText | None = None
    subject: SearchText | None = None
    limit: Limit = 200
    after: Annotated[str, Meta(pattern="^[0-9]{1,18}$")] | None = None


@routes.get("/audit", role=Role.OPERATOR)
async def listed(desk: Desk, query: Query) -> AuditPage:
    """Who did what, newest first."""
    return await entries(
        desk.store,
        actor=query.actor or "",
        action=query.action or "",
        subject=query.subject or "",
        limit=query.limit,
        after=query.after,
    )
