"""The audit page."""

from collections.abc import Mapping
from typing import Final

from forge_jobs.core.audit import Value
from forge_jobs.ops.audit import AuditEntryView, read_entries
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
            "id": entry.id,
            "at": entry.at,
            "actor": entry.actor,
            "role": entry.role,
            "address": entry.address,
            "action": entry.action,
            "subject": entry.subject,
            # counts of zero are noise; what is shown as a change is not shown twice
            "detail": {
                name: detail_text(value)
                for name, value in entry.detail.items()
                if value and name not in entry.after
            },
            "changes": changes(entry),
            "ids": entry.ids if len(entry.ids) > 1 or entry.ids != (entry.subject,) else (),
        }
        for entry in page.entries
    ]
    return {"entries": rows, "next": page.next, "filter": filters}


def changes(entry: AuditEntryView) -> list[tuple[str, str, str]]:
    """Name, former and new value of each changed field; "–" where there was or is none. Of
    something that was created there is no former value."""
    names = [name for name in {**entry.before, **entry.after} if entry.before or entry.after[name]]
    return [
        (
            name,
            _change_text(entry.before, name) if entry.before else "",
            _change_text(entry.after, name),
        )
        for name in names
    ]


def _change_text(values: Mapping[str, Value], name: str) -> str:
    value = values.get(name)
    if value is None:
        return "–"
    return "no" if value is False else detail_text(value)


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
