"""The queues page, with the forms that pause queues and change their settings."""

import asyncio
from typing import Final

from forge_jobs.core.errors import BadOption
from forge_jobs.core.instant import seconds
from forge_jobs.ops import queries
from forge_jobs.ops.actions import QueueChange
from forge_jobs.ops.queue_activity import queue_activity
from forge_jobs.web.access.identity import Role
from forge_jobs.web.request_context import RequestContext

from .commands import forge_command
from .page import FormSpec, Notice, PageSpec, Params, TemplateVars
from .sparklines import sparkline


async def view(context: RequestContext, params: Params) -> TemplateVars:
    queues, activity = await asyncio.gather(
        queries.queues(context.store, clock=context.clock),
        queue_activity(context.store, clock=context.clock),
    )
    return {
        "queues": queues,
        "sparklines": {name: sparkline(minutes) for name, minutes in activity.items()},
    }


async def pause(context: RequestContext, params: Params) -> Notice:
    name = params["name"]
    await context.job_actions.pause(name)
    return Notice(f"queue {name} is paused: what runs ends in peace", f"forge queues pause {name}")


async def resume(context: RequestContext, params: Params) -> Notice:
    name = params["name"]
    await context.job_actions.resume(name)
    return Notice(f"queue {name} goes on", f"forge queues resume {name}")


async def unthrottle(context: RequestContext, params: Params) -> Notice:
    name = params["name"]
    await context.job_actions.unthrottle(name)
    return Notice(f"queue {name} is open again", f"forge queues unthrottle {name}")


async def set_slots(context: RequestContext, params: Params) -> Notice:
    name, count = params["name"], _parse_int("slots", params.get("slots", ""))
    await context.job_actions.set_queue(name, QueueChange(slots=count))
    return Notice(f"queue {name} has {count:,} slots", f"forge queues set {name} --workers {count}")


async def set_retention(context: RequestContext, params: Params) -> Notice:
    name = params["name"]
    fields = ("done", "dead", "cancelled")
    done, dead, cancelled = (_parse_retention(field, params.get(field, "")) for field in fields)
    change = QueueChange(retain_done_s=done, retain_dead_s=dead, retain_cancelled_s=cancelled)
    await context.job_actions.set_queue(name, change)
    options = [w for f in fields for w in (f"--retain-{f}", params.get(f, "").strip() or "forever")]
    return Notice(
        f"queue {name} keeps ended jobs as set", forge_command("queues", "set", name, *options)
    )


async def set_backoff(context: RequestContext, params: Params) -> Notice:
    name, on = params["name"], params.get("enabled") == "yes"
    base_text, max_text = params.get("base", "").strip(), params.get("max", "").strip()
    change = QueueChange(
        backoff_enabled=on,
        backoff_base_s=seconds(base_text, field="base"),
        backoff_max_s=seconds(max_text, field="max"),
    )
    await context.job_actions.set_queue(name, change)
    option = f"{base_text}:{max_text}" if on else "off"
    text = (
        f"queue {name} pauses {base_text} to {max_text} when throttled"
        if on
        else f"queue {name}: off"
    )
    return Notice(text, forge_command("queues", "set", name, "--backoff", option))


def _parse_int(field: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise BadOption(f"{field}={text!r} is not a whole number") from None


def _parse_retention(field: str, text: str) -> float | None:
    return (
        None if text.strip().lower() in ("forever", "for ever", "") else seconds(text, field=field)
    )


PAGE: Final = PageSpec(
    path="/queues", name="queues", title="Queues", template="queues.html", view=view, key="q"
)
FORMS: Final = (
    FormSpec(path="/act/queues/{name}/pause", role=Role.OPERATOR, act=pause),
    FormSpec(path="/act/queues/{name}/resume", role=Role.OPERATOR, act=resume),
    FormSpec(path="/act/queues/{name}/unthrottle", role=Role.OPERATOR, act=unthrottle),
    FormSpec(path="/act/queues/{name}/slots", role=Role.OPERATOR, act=set_slots),
    FormSpec(path="/act/queues/{name}/retention", role=Role.ADMIN, act=set_retention),
    FormSpec(path="/act/queues/{name}/backoff", role=Role.OPERATOR, act=set_backoff),
)
