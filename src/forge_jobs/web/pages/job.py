"""The page of one job: its steps, and forms that send it an event, retry it from a step, or enqueue
a copy with an edited payload."""

import asyncio
from typing import Final

from forge_jobs.core import payload as json_payload
from forge_jobs.core.status import RETRYABLE
from forge_jobs.ops import queries, steps
from forge_jobs.ops.actions import APPLIES_TO, Action
from forge_jobs.ops.story import story
from forge_jobs.web.access.identity import Role
from forge_jobs.web.request_context import RequestContext

from .commands import forge_command
from .page import FormSpec, Notice, PageSpec, Params, TemplateVars
from .story import story_picture
from .waterfall import PAGE_STEPS, waterfall

_ACTIONS: Final = (Action.RETRY, Action.RUN_NOW, Action.CANCEL, Action.DUPLICATE, Action.DELETE)


async def view(context: RequestContext, params: Params) -> TemplateVars:
    job, told, page = await asyncio.gather(
        queries.job(context.store, params["id"], clock=context.clock),
        story(context.store, params["id"], clock=context.clock),
        steps.job_steps(
            context.store,
            params["id"],
            offset=_offset(params),
            limit=PAGE_STEPS,
            clock=context.clock,
        ),
    )
    return {
        "steps": waterfall(page, job),
        "story": told,
        "picture": story_picture(told, page, job),
        "may_retry_from": job.status in RETRYABLE,
        "job": job,
        "title": job.kind,
        "actions": [action.value for action in _ACTIONS if job.status in APPLIES_TO[action]],
    }


async def step_view(context: RequestContext, params: Params) -> TemplateVars:
    name = params.get("name", "")
    value = await steps.step_value(context.store, params["id"], name)
    return {"name": name, "job_id": params["id"].upper(), "value": value}


async def retry_from(context: RequestContext, params: Params) -> Notice:
    """Retry the job from a step."""
    step = params.get("step", "")
    done = await context.event_actions.retry_from(params["id"], step)
    again = "1 step runs again" if done.deleted == 1 else f"{done.deleted:,} steps run again"
    text = f"back in line; {again}, {done.kept:,} {'is' if done.kept == 1 else 'are'} kept"
    return Notice(text, forge_command("jobs", "retry", done.id, "--from", done.step))


async def send(context: RequestContext, params: Params) -> Notice:
    """Send an event that the job waits for."""
    record = await queries.get_record(context.store, params["id"])
    name, key = params.get("name", ""), params.get("key", "").strip()
    payload = json_payload.decode_text(params.get("payload", "").strip() or "null")
    to_job = key.upper() == record.id
    sent = await context.event_actions.send(
        name, payload, key=None if to_job else key or None, job_id=record.id if to_job else None
    )
    target = ("--job", record.id) if to_job else ("--key", key) if key else ()
    resumed = f"{sent.resumed:,} job{'' if sent.resumed == 1 else 's'} resumed"
    return Notice(f"sent {name}: {resumed}", forge_command("send", name, "…", *target))


def _offset(params: Params) -> int:
    text = params.get("steps", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 5 else 0


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
STEP_PAGE: Final = PageSpec(
    path="/jobs/{id}/step", name="step", title="Step", template="step.html", view=step_view,
    nav=False, live=False, nav_parent="jobs",
)  # fmt: skip
FORMS: Final = (
    FormSpec(path="/act/job/{id}/copy", role=Role.OPERATOR, act=copy),
    FormSpec(path="/act/job/{id}/retry-from", role=Role.OPERATOR, act=retry_from),
    FormSpec(path="/act/job/{id}/send", role=Role.OPERATOR, act=send),
)
