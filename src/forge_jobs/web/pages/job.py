"""One job in full: what it is, what it said, why it is not running; and a copy with other data."""

from typing import Any, Final, cast

from msgspec.structs import replace

from forge_jobs.core import payload as json_payload
from forge_jobs.kit.redact import HIDDEN, looks_secret
from forge_jobs.ops import look
from forge_jobs.ops.act import APPLIES, Action, again
from forge_jobs.ops.audit import AuditEntry
from forge_jobs.web.access.identity import Role
from forge_jobs.web.desk import Desk

from .acting import actor, trail
from .page import Form, Given, Notice, Page, Shown
from .quoting import forge

_LISTED: Final = (Action.RETRY, Action.RUN_NOW, Action.CANCEL, Action.DUPLICATE, Action.DELETE)


async def view(desk: Desk, given: Given) -> Shown:
    job = await look.job(desk.store, given["id"], clock=desk.clock)
    return {
        "job": job,
        "title": job.kind,
        "actions": [action.value for action in _LISTED if job.status in APPLIES[action]],
    }


async def copy(desk: Desk, given: Given) -> Notice:
    """Enqueue the job once more with the payload as it was edited."""
    record = await look.existing(desk.store, given["id"])
    before = json_payload.decode(record.payload)
    wanted = unhidden(json_payload.decode_text(given.get("payload", "")), before)
    job = replace(again(record), payload=json_payload.encode(wanted, what="payload"))
    made = await desk.store.jobs.enqueue([job])
    entry = AuditEntry(
        at=desk.clock.now(), actor=actor(desk), action="duplicate", subject=record.id,
        detail={"job": made[0].id, "edited": wanted != before},
    )  # fmt: skip
    await trail(desk).record(entry)
    words = ("--queue", job.queue, "--payload", "…")
    return Notice(f"enqueued as {made[0].id}", forge("enqueue", job.kind, *words))


def unhidden(edited: Any, before: Any) -> Any:
    """The edited payload, with what was hidden from view as it was before."""
    if isinstance(edited, dict) and isinstance(before, dict):
        known = cast("dict[str, Any]", before)
        return {
            name: known[name]
            if value == HIDDEN and looks_secret(name) and name in known
            else unhidden(value, known.get(name))
            for name, value in cast("dict[str, Any]", edited).items()
        }
    if isinstance(edited, list) and isinstance(before, list):
        items, old = cast("list[Any]", edited), cast("list[Any]", before)
        padded = old + [None] * (len(items) - len(old))
        return [unhidden(item, was) for item, was in zip(items, padded, strict=False)]
    return cast("Any", edited)


PAGE: Final = Page(
    path="/jobs/{id}", name="job", title="Job", template="job.html", view=view, nav=False,
    under="jobs",
)  # fmt: skip
FORMS: Final = (Form(path="/act/job/{id}/copy", role=Role.OPERATOR, act=copy),)
