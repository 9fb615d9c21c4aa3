"""The page of one job, with the form that enqueues a copy with an edited payload."""

from typing import Final

from forge_jobs.core import payload as json_payload
from forge_jobs.ops import queries
from forge_jobs.ops.actions import APPLIES_TO, Action
from forge_jobs.web.access.identity import Role
from forge_jobs.web.request_context import RequestContext

from .commands import forge_command
from .page import FormSpec, Notice, PageSpec, Params, TemplateVars

_ACTIONS: Final = (Action.RETRY, Action.RUN_NOW, Action.CANCEL, Action.DUPLICATE, Action.DELETE)


async def view(context: RequestContext, params: Params) -> TemplateVars:
    job = await queries.job(context.store, params["id"], clock=context.clock)
    return {
        "job": job,
        "title": job.kind,
        "actions": [action.value for action in _ACTIONS if job.status in APPLIES_TO[action]],
    }


async def copy(context: RequestContext, params: Params) -> Notice:
    """Enqueue a copy with the edited payload."""
    record = await queries.get_record(context.store, params["id"])
    payload = json_payload.decode_text(params.get("payload", ""))
    copy_id = await context.job_actions.duplicate_with(record.id, payload)
    options = ("--queue", record.queue, "--payload", "…")
    return Notice(f"enqueued as {copy_id}", forge_command("enqueue", record.kind, *options))


PAGE: Final = PageSpec(
    path="/jobs/{id}", name="job", title="Job", template="job.html", view=view, nav=False,
    nav_parent="jobs",
)  # fmt: skip
FORMS: Final = (FormSpec(path="/act/job/{id}/copy", role=Role.OPERATOR, act=copy),)
