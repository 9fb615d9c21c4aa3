"""The audit over HTTP."""

from typing import Annotated

from msgspec import Meta, Struct

from forge_jobs.ops.audit import AuditPage, read_entries
from forge_jobs.web.access.identity import Role
from forge_jobs.web.request_context import RequestContext

from .parameters import Limit, SearchText
from .route import Routes

routes = Routes()


class AuditQuery(Struct, frozen=True, kw_only=True):
    """Texts that must occur in the fields; ``after`` is the ``next`` of the previous page."""

    actor: SearchText | None = None
    action: SearchText | None = None
    subject: SearchText | None = None
    limit: Limit = 200
    after: Annotated[str, Meta(pattern="^[0-9]{1,18}$")] | None = None


@routes.get("/audit", role=Role.OPERATOR)
async def list_entries(context: RequestContext, query: AuditQuery) -> AuditPage:
    """Audit entries, newest first."""
    return await read_entries(
        context.store,
        actor=query.actor or "",
        action=query.action or "",
        subject=query.subject or "",
        limit=query.limit,
        after=query.after,
    )
