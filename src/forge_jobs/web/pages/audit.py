"""The audit page."""

from typing import Final

from forge_jobs.ops.audit import read_entries
from forge_jobs.web.access.identity import Role
from forge_jobs.web.request_context import RequestContext

from .page import PageSpec, Params, TemplateVars

_ROWS: Final = 200


async def view(context: RequestContext, params: Params) -> TemplateVars:
    filters = {name: params.get(name, "").strip() for name in ("actor", "action", "subject")}
    page = await read_entries(
        context.store, **filters, limit=_ROWS, after=params.get("after") or None
    )
    rows = [
        {
            "at": entry.at,
            "actor": entry.actor,
            "action": entry.action,
            "subject": entry.subject,
            # counts of zero are noise
            "detail": {name: detail_text(value) for name, value in entry.detail.items() if value},
        }
        for entry in page.entries
    ]
    return {"entries": rows, "next": page.next, "filter": filters}


def detail_text(value: object) -> str:
    """A value of an entry's detail for display."""
    match value:
        case True:
            return "yes"
        case int():
            return f"{value:,}"
        case _:
            return str(value)


PAGE: Final = PageSpec(
    path="/audit", name="audit", title="Audit", template="audit.html", view=view, key="a",
    role=Role.OPERATOR,
)  # fmt: skip
