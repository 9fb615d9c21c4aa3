"""Who did what from here."""

from typing import Final

from forge_jobs.core.instant import to_datetime
from forge_jobs.web.access.identity import Role
from forge_jobs.web.desk import Desk

from .acting import trail
from .page import Given, Page, Shown

_ROWS: Final = 200


async def view(desk: Desk, given: Given) -> Shown:
    wanted = {name: given.get(name, "").strip() for name in ("actor", "action", "subject")}
    entries = [
        {
            "at": to_datetime(entry.at),
            "actor": entry.actor,
            "action": entry.action,
            "subject": entry.subject,
            "detail": {name: value for name, value in entry.detail.items() if value is not None},
        }
        for entry in trail(desk).entries
        if all(text in getattr(entry, name) for name, text in wanted.items())
    ]
    return {"entries": entries[:_ROWS], "total": len(entries), "filter": wanted}


PAGE: Final = Page(
    path="/audit", name="audit", title="Audit", template="audit.html", view=view, key="a",
    role=Role.OPERATOR,
)  # fmt: skip
