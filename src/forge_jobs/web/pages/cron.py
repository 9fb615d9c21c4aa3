"""Schedules: the list, one with its history, and everything that may be done to them."""

from typing import Any, Final, cast

from msgspec import UNSET

from forge_jobs.config import DEFAULT_QUEUE
from forge_jobs.core import payload as json_payload
from forge_jobs.core.errors import BadOption
from forge_jobs.core.instant import seconds
from forge_jobs.core.job import NewJob
from forge_jobs.core.schedule import Missed, Overlap
from forge_jobs.core.schedule_ticks import spec
from forge_jobs.ops.schedules import ScheduleChange
from forge_jobs.web.access.identity import Role
from forge_jobs.web.request_context import RequestContext

from .page import Form, Given, Notice, Page, Shown
from .quoting import forge

_WORDS: Final = {"missed_words": tuple(Missed), "overlap_words": tuple(Overlap)}


async def view(desk: RequestContext, given: Given) -> Shown:
    kinds = await desk.store.queues.kinds()
    return {"schedules": await desk.timetable.all(), "kinds": sorted(kinds), **_WORDS}


async def one(desk: RequestContext, given: Given) -> Shown:
    table = desk.timetable
    name = given["name"]
    schedule, fires = await table.get(name), await table.history(name)
    return {"schedule": schedule, "fires": fires, "title": schedule.name, **_WORDS}


async def create(desk: RequestContext, given: Given) -> Notice:
    name, expression, kind = (given.get(f, "").strip() for f in ("name", "expression", "kind"))
    body = _payload(given.get("payload", ""))
    attempts = given.get("max_attempts", "").strip()
    said = spec(
        NewJob(kind=kind, queue=DEFAULT_QUEUE, payload=body),
        expression,
        name=name or kind,
        queue=given.get("queue", "").strip() or None,
        tz=given.get("tz", "").strip() or "UTC",
        missed=given.get("missed") or Missed.ONCE,
        overlap=given.get("overlap") or None,
        jitter=given.get("jitter", "").strip() or 0,
        max_attempts=_whole("max_attempts", attempts) if attempts else None,
        where=f"schedule {name!r}",
    )
    await desk.timetable.create(said)
    options: list[str] = [] if said.payload == b"{}" else ["--payload", said.payload.decode()]
    if said.zone != "UTC":
        options += ["--tz", said.zone]
    command = forge("cron", "create", said.name, expression, kind, *options)
    return Notice(f"schedule {said.name} is set", command)


async def edit(desk: RequestContext, given: Given) -> Notice:
    name = given["name"]
    known = await desk.timetable.get(name)
    attempts = given.get("max_attempts", "").strip()
    wanted: dict[str, Any] = {
        "expression": given.get("expression", "").strip(),
        "zone": given.get("tz", "").strip() or "UTC",
        "queue": given.get("queue", "").strip() or None,
        "missed": given.get("missed", known.missed),
        "overlap": given.get("overlap", known.overlap),
        "jitter_s": seconds(given.get("jitter", "").strip() or 0, field="jitter"),
        "max_attempts": _whole("max_attempts", attempts) if attempts else None,
    }
    before = {**{field: getattr(known, field, None) for field in wanted}, "zone": known.tz}
    change = {field: value for field, value in wanted.items() if value != before[field]}
    text = given.get("payload", "")
    # what was hidden when it was shown must not be stored as it was shown
    if json_payload.decode_text(text or "{}") != known.payload:
        change["payload"] = _payload(text)
    if not change:
        return Notice(f"schedule {name} is as it was")
    await desk.timetable.edit(name, ScheduleChange(**{**_UNSET, **change}))
    return Notice(f"schedule {name} is changed: {', '.join(change)}", _set_command(name, change))


async def enable(desk: RequestContext, given: Given) -> Notice:
    name = given["name"]
    await desk.timetable.enable(name)
    return Notice(f"schedule {name} fires again", f"forge cron enable {name}")


async def disable(desk: RequestContext, given: Given) -> Notice:
    name = given["name"]
    await desk.timetable.disable(name)
    return Notice(f"schedule {name} fires no more", f"forge cron disable {name}")


async def trigger(desk: RequestContext, given: Given) -> Notice:
    name = given["name"]
    fire = await desk.timetable.trigger(name)
    said = f"job {fire.job_id}" if fire.job_id else f"no job: {fire.outcome}"
    return Notice(f"schedule {name} fired: {said}", f"forge cron run {name}")


async def delete(desk: RequestContext, given: Given) -> Notice:
    name = given["name"]
    await desk.timetable.delete(name)
    return Notice(f"schedule {name} is gone; its jobs stay", f"forge cron delete {name}")


_UNSET: Final = dict.fromkeys(ScheduleChange.__struct_fields__, UNSET)
_OPTIONS: Final = {
    "expression": "--cron", "zone": "--tz", "queue": "--queue", "missed": "--missed",
    "overlap": "--overlap", "jitter_s": "--jitter", "max_attempts": "--max-attempts",
    "payload": "--payload",
}  # fmt: skip


def _set_command(name: str, change: dict[str, Any]) -> str:
    words: list[str] = []
    for field, value in change.items():
        text = value.decode() if isinstance(value, bytes) else "auto" if value is None else value
        words += [_OPTIONS[field], str(text)]
    return forge("cron", "set", name, *words)


def _payload(text: str) -> bytes:
    value = json_payload.decode_text(text.strip() or "{}")
    if not isinstance(value, dict):
        raise BadOption('payload must be an object of arguments by name, such as {"a": 1}')
    return json_payload.encode(cast("dict[str, Any]", value), what="payload")


def _whole(field: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise BadOption(f"{field}={text!r} is not a whole number") from None


PAGE: Final = Page(
    path="/cron", name="cron", title="Cron", template="cron.html", view=view, key="c"
)
ONE: Final = Page(
    path="/cron/{name}", name="schedule", title="Schedule", template="schedule.html", view=one,
    nav=False, under="cron",
)  # fmt: skip
FORMS: Final = (
    Form(path="/act/cron", role=Role.OPERATOR, act=create),
    Form(path="/act/cron/{name}/edit", role=Role.OPERATOR, act=edit),
    Form(path="/act/cron/{name}/enable", role=Role.OPERATOR, act=enable),
    Form(path="/act/cron/{name}/disable", role=Role.OPERATOR, act=disable),
    Form(path="/act/cron/{name}/trigger", role=Role.OPERATOR, act=trigger),
    Form(path="/act/cron/{name}/delete", role=Role.ADMIN, act=delete),
)
