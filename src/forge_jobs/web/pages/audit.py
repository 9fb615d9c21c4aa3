"""Who did what from here."""

from typing import Final

from forge_jobs.ops.audit import entries
from forge_jobs.web.access.identity import Role
from forge_jobs.web.request_context import RequestContext

from .page import Given, Page, Shown

_ROWS: Final = 200


async def view(desk: RequestContext, given: Given) -> Shown:
    wanted = {name: given.get(name, "").strip() for name in ("actor", "action", "subject")}
    page = await entries(desk.store, **wanted, limit=_ROWS, after=given.get("after") or None)
    shown = [
        {
            "at": line.at,
            "actor": line.actor,
            "action": line.action,
            "subject": line.subject,
            # what an action did not do says nothing
            "detail": {name: told(value) for name, value in line.detail.items() if value},
        }
        for line in page.entries
    ]
    return {"entries": shown, "next": page.next, "filter": wanted}


def told(value: object) -> str:
    """A value of an entry, as people read it."""
    match value:
        case True:
            return "yes"
        case int():
            return f"{value:,}"
        case _:
            return str(value)


PAGE: Final = Page(
    path="/audit", name="audit", title="Audit", template="audit.html", view=view, key="a",
    role=Role.OPERATOR,
)  # fmt: skip
