"""Queues with their live controls."""

from typing import Final

from forge_jobs.core.errors import BadOption
from forge_jobs.core.instant import seconds
from forge_jobs.ops import look
from forge_jobs.ops.act import QueueChange
from forge_jobs.web.access.identity import Role
from forge_jobs.web.desk import Desk

from .page import Form, Given, Notice, Page, Shown


async def view(desk: Desk, given: Given) -> Shown:
    return {"queues": await look.queues(desk.store, clock=desk.clock)}


async def pause(desk: Desk, given: Given) -> Notice:
    name = given["name"]
    await desk.operator.pause(name)
    return Notice(f"queue {name} is paused: what runs ends in peace", f"forge queues pause {name}")


async def resume(desk: Desk, given: Given) -> Notice:
    name = given["name"]
    await desk.operator.resume(name)
    return Notice(f"queue {name} goes on", f"forge queues resume {name}")


async def unthrottle(desk: Desk, given: Given) -> Notice:
    name = given["name"]
    await desk.operator.unthrottle(name)
    return Notice(f"queue {name} is open again", f"forge queues unthrottle {name}")


async def slots(desk: Desk, given: Given) -> Notice:
    name, count = given["name"], _whole("slots", given.get("slots", ""))
    await desk.operator.set_queue(name, QueueChange(slots=count))
    return Notice(f"queue {name} has {count:,} slots", f"forge queues set {name} --workers {count}")


async def retention(desk: Desk, given: Given) -> Notice:
    name = given["name"]
    done, dead = (_kept(field, given.get(field, "")) for field in ("done", "dead"))
    await desk.operator.set_queue(name, QueueChange(retain_done_s=done, retain_dead_s=dead))
    command = f"forge queues set {name} --retain-done {given['done']} --retain-dead {given['dead']}"
    return Notice(f"queue {name} keeps ended jobs as set", command)


def _whole(field: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise BadOption(f"{field}={text!r} is not a whole number") from None


def _kept(field: str, text: str) -> float | None:
    return None if text.strip().lower() in ("never", "") else seconds(text, field=field)


PAGE: Final = Page(
    path="/queues", name="queues", title="Queues", template="queues.html", view=view, key="q"
)
FORMS: Final = (
    Form(path="/act/queues/{name}/pause", role=Role.OPERATOR, act=pause),
    Form(path="/act/queues/{name}/resume", role=Role.OPERATOR, act=resume),
    Form(path="/act/queues/{name}/unthrottle", role=Role.OPERATOR, act=unthrottle),
    Form(path="/act/queues/{name}/slots", role=Role.OPERATOR, act=slots),
    Form(path="/act/queues/{name}/retention", role=Role.ADMIN, act=retention),
)
