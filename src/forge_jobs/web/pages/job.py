"""One job in full: what it is, what it said, why it is not running; and a copy with other data."""

from typing import Final

from forge_jobs.core import payload as json_payload
from forge_jobs.ops import queries
from forge_jobs.ops.actions import APPLIES, Action
from forge_jobs.web.access.identity import Role
from forge_jobs.web.request_context import RequestContext

from .page import Form, Given, Notice, Page, Shown
from .quoting import forge

_LISTED: Final = (Action.RETRY, Action.RUN_NOW, Action.CANCEL, Action.DUPLICATE, Action.DELETE)


async def view(desk: RequestContext, given: Given) -> Shown:
    job = await queries.job(desk.store, given["id"], clock=desk.clock)
    return {
        "job": job,
        "title": job.kind,
        "actions": [action.value for action in _LISTED if job.status in APPLIES[action]],
    }


async def copy(desk: RequestContext, given: Given) -> Notice:
    """Enqueue the job once more with the payload as it was edited."""
    record = await queries.existing(desk.store, given["id"])
    wanted = json_payload.decode_text(given.get("payload", ""))
    made = await desk.operator.duplicate_with(record.id, wanted)
    words = ("--queue", record.queue, "--payload", "…")
    return Notice(f"enqueued as {made}", forge("enqueue", record.kind, *words))


PAGE: Final = Page(
    path="/jobs/{id}", name="job", title="Job", template="job.html", view=view, nav=False,
    under="jobs",
)  # fmt: skip
FORMS: Final = (Form(path="/act/job/{id}/copy", role=Role.OPERATOR, act=copy),)
