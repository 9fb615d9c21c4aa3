"""Queues with their live controls."""

import asyncio
from typing import Final

from forge_jobs.core.errors import BadOption
from forge_jobs.core.instant import seconds
from forge_jobs.ops import queries
from forge_jobs.ops.actions import QueueChange
from forge_jobs.ops.queue_activity import flows
from forge_jobs.web.access.identity import Role
from forge_jobs.web.request_context import RequestContext

from .page import Form, Given, Notice, Page, Shown
from .quoting import forge
from .sparklines import sparkline


async def view(desk: RequestContext, given: Given) -> Shown:
    queues, lately = await asyncio.gather(
        queries.queues(desk.store, clock=desk.clock), flows(desk.store, clock=desk.clock)
    )
    return {"queues": queues, "sparks": {name: sparkline(flow) for name, flow in lately.items()}}


async def pause(desk: RequestContext, given: Given) -> Notice:
    name = given["name"]
    await desk.operator.pause(name)
    return Notice(f"queue {name} is paused: what runs ends in peace", f"forge queues pause {name}")


async def resume(desk: RequestContext, given: Given) -> Notice:
    name = given["name"]
    await desk.operator.resume(name)
    return Notice(f"queue {name} goes on", f"forge queues resume {name}")


async def unthrottle(desk: RequestContext, given: Given) -> Notice:
    name = given["name"]
    await desk.operator.unthrottle(name)
    return Notice(f"queue {name} is open again", f"forge queues unthrottle {name}")


async def slots(desk: RequestContext, given: Given) -> Notice:
    name, count = given["name"], _whole("slots", given.get("slots", ""))
    await desk.operator.set_queue(name, QueueChange(slots=count))
    return Notice(f"queue {name} has {count:,} slots", f"forge queues set {name} --workers {count}")


async def retention(desk: RequestContext, given: Given) -> Notice:
    name = given["name"]
    fields = ("done", "dead", "cancelled")
    done, dead, cancelled = (_kept(field, given.get(field, "")) for field in fields)
    change = QueueChange(retain_done_s=done, retain_dead_s=dead, retain_cancelled_s=cancelled)
    await desk.operator.set_queue(name, change)
    words = [w for f in fields for w in (f"--retain-{f}", given.get(f, "").strip() or "forever")]
    return Notice(f"queue {name} keeps ended jobs as set", forge("queues", "set", name, *words))


async def backoff(desk: RequestContext, given: Given) -> Notice:
    name, on = given["name"], given.get("enabled") == "yes"
    base, most = given.get("base", "").strip(), given.get("max", "").strip()
    change = QueueChange(
        backoff_enabled=on,
        backoff_base_s=seconds(base, field="base"),
        backoff_max_s=seconds(most, field="max"),
    )
    await desk.operator.set_queue(name, change)
    word = f"{base}:{most}" if on else "off"
    text = f"queue {name} pauses {base} to {most} when throttled" if on else f"queue {name}: off"
    return Notice(text, forge("queues", "set", name, "--backoff", word))


def _whole(field: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise BadOption(f"{field}={text!r} is not a whole number") from None


def _kept(field: str, text: str) -> float | None:
    return (
        None if text.strip().lower() in ("forever", "for ever", "") else seconds(text, field=field)
    )


PAGE: Final = Page(
    path="/queues", name="queues", title="Queues", template="queues.html", view=view, key="q"
)
FORMS: Final = (
    Form(path="/act/queues/{name}/pause", role=Role.OPERATOR, act=pause),
    Form(path="/act/queues/{name}/resume", role=Role.OPERATOR, act=resume),
    Form(path="/act/queues/{name}/unthrottle", role=Role.OPERATOR, act=unthrottle),
    Form(path="/act/queues/{name}/slots", role=Role.OPERATOR, act=slots),
    Form(path="/act/queues/{name}/retention", role=Role.ADMIN, act=retention),
    Form(path="/act/queues/{name}/backoff", role=Role.OPERATOR, act=backoff),
)
