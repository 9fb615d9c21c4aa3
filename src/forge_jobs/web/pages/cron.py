"""The cron pages: the list of schedules, one schedule with its history, and their forms."""

import asyncio
from typing import Any, Final, cast

from msgspec import UNSET

from forge_jobs.config import DEFAULT_QUEUE
from forge_jobs.core import payload as json_payload
from forge_jobs.core.errors import BadOption
from forge_jobs.core.instant import seconds
from forge_jobs.core.job import NewJob
from forge_jobs.core.schedule import Missed, Overlap
from forge_jobs.core.schedule_ticks import spec
from forge_jobs.ops.schedule_runs import runs_of, schedule_runs
from forge_jobs.ops.schedules import ScheduleChange
from forge_jobs.ops.schedules import schedule_view as schedule_view_of
from forge_jobs.web.access.identity import Role
from forge_jobs.web.request_context import RequestContext

from .commands import forge_command
from .page import FormSpec, Notice, PageSpec, Params, TemplateVars
from .run_ticks import run_ticks

# Of more schedules than this the list shows no runs.
MAX_WITH_RUNS: Final = 40
_POLICIES: Final = {"missed_policies": tuple(Missed), "overlap_policies": tuple(Overlap)}


async def view(context: RequestContext, params: Params) -> TemplateVars:
    kinds, schedules = await asyncio.gather(
        context.store.queues.kinds(), context.store.schedules.all()
    )
    shown = await runs_of(context.store, schedules[:MAX_WITH_RUNS], clock=context.clock)
    return {
        "schedules": tuple(map(schedule_view_of, schedules)),
        "runs": {one.schedule.name: one for one in shown},
        "ticks": {one.schedule.name: run_ticks(one.runs) for one in shown},
        "kinds": sorted(kinds),
        **_POLICIES,
    }


async def schedule_view(context: RequestContext, params: Params) -> TemplateVars:
    actions = context.schedule_actions
    name = params["name"]
    fires, found = await asyncio.gather(
        actions.history(name), schedule_runs(context.store, name, clock=context.clock)
    )
    return {
        "schedule": found.schedule,
        "found": found,
        "ticks": run_ticks(found.runs),
        "results": {
            run.job_id: run for run in found.runs if run.job_id and run.attempts is not None
        },
        "fires": fires,
        "title": found.schedule.name,
        **_POLICIES,
    }


async def create(context: RequestContext, params: Params) -> Notice:
    name, expression, kind = (params.get(f, "").strip() for f in ("name", "expression", "kind"))
    payload = _encode_payload(params.get("payload", ""))
    attempts = params.get("max_attempts", "").strip()
    schedule_spec = spec(
        NewJob(kind=kind, queue=DEFAULT_QUEUE, payload=payload),
        expression,
        name=name or kind,
        queue=params.get("queue", "").strip() or None,
        tz=params.get("tz", "").strip() or "UTC",
        missed=params.get("missed") or Missed.ONCE,
        overlap=params.get("overlap") or None,
        jitter=params.get("jitter", "").strip() or 0,
        max_attempts=_parse_int("max_attempts", attempts) if attempts else None,
        where=f"schedule {name!r}",
    )
    await context.schedule_actions.create(schedule_spec, remedy=_remedy(params))
    options: list[str] = (
        [] if schedule_spec.payload == b"{}" else ["--payload", schedule_spec.payload.decode()]
    )
    if schedule_spec.zone != "UTC":
        options += ["--tz", schedule_spec.zone]
    command = forge_command("cron", "create", schedule_spec.name, expression, kind, *options)
    return Notice(f"schedule {schedule_spec.name} is set", command)


async def edit(context: RequestContext, params: Params) -> Notice:
    name = params["name"]
    current = await context.schedule_actions.get(name)
    attempts = params.get("max_attempts", "").strip()
    submitted: dict[str, Any] = {
        "expression": params.get("expression", "").strip(),
        "zone": params.get("tz", "").strip() or "UTC",
        "queue": params.get("queue", "").strip() or None,
        "missed": params.get("missed", current.missed),
        "overlap": params.get("overlap", current.overlap),
        "jitter_s": seconds(params.get("jitter", "").strip() or 0, field="jitter"),
        "max_attempts": _parse_int("max_attempts", attempts) if attempts else None,
    }
    stored = {**{field: getattr(current, field, None) for field in submitted}, "zone": current.tz}
    change = {field: value for field, value in submitted.items() if value != stored[field]}
    text = params.get("payload", "")
    # an unchanged payload holds redacted values, which must not be stored
    if json_payload.decode_text(text or "{}") != current.payload:
        change["payload"] = _encode_payload(text)
    if not change:
        return Notice(f"schedule {name} is as it was")
    await context.schedule_actions.edit(
        name, ScheduleChange(**{**_UNSET, **change}), remedy=_remedy(params)
    )
    return Notice(f"schedule {name} is changed: {', '.join(change)}", _set_command(name, change))


async def enable(context: RequestContext, params: Params) -> Notice:
    name = params["name"]
    await context.schedule_actions.enable(name)
    return Notice(f"schedule {name} fires again", f"forge cron enable {name}")


async def disable(context: RequestContext, params: Params) -> Notice:
    name = params["name"]
    await context.schedule_actions.disable(name)
    return Notice(f"schedule {name} fires no more", f"forge cron disable {name}")


async def trigger(context: RequestContext, params: Params) -> Notice:
    name = params["name"]
    fire = await context.schedule_actions.trigger(name)
    outcome = f"job {fire.job_id}" if fire.job_id else f"no job: {fire.outcome}"
    return Notice(f"schedule {name} fired: {outcome}", f"forge cron run {name}")


async def delete(context: RequestContext, params: Params) -> Notice:
    name = params["name"]
    await context.schedule_actions.delete(name)
    return Notice(f"schedule {name} is gone; its jobs stay", f"forge cron delete {name}")


_UNSET: Final = dict.fromkeys(ScheduleChange.__struct_fields__, UNSET)
_OPTIONS: Final = {
    "expression": "--cron", "zone": "--tz", "queue": "--queue", "missed": "--missed",
    "overlap": "--overlap", "jitter_s": "--jitter", "max_attempts": "--max-attempts",
    "payload": "--payload",
}  # fmt: skip


def _set_command(name: str, change: dict[str, Any]) -> str:
    options: list[str] = []
    for field, value in change.items():
        text = value.decode() if isinstance(value, bytes) else "auto" if value is None else value
        options += [_OPTIONS[field], str(text)]
    return forge_command("cron", "set", name, *options)


def _encode_payload(text: str) -> bytes:
    value = json_payload.decode_text(text.strip() or "{}")
    if not isinstance(value, dict):
        raise BadOption('payload must be an object of arguments by name, such as {"a": 1}')
    return json_payload.encode(cast("dict[str, Any]", value), what="payload")


def _remedy(params: Params) -> str | None:
    return None if params.get("force") else 'tick "Do not check against published tasks"'


def _parse_int(field: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise BadOption(f"{field}={text!r} is not a whole number") from None


PAGE: Final = PageSpec(
    path="/cron", name="cron", title="Cron", template="cron.html", view=view, key="c"
)
SCHEDULE_PAGE: Final = PageSpec(
    path="/cron/{name}", name="schedule", title="Schedule", template="schedule.html",
    view=schedule_view, nav=False, nav_parent="cron",
)  # fmt: skip
FORMS: Final = (
    FormSpec(path="/act/cron", role=Role.OPERATOR, act=create),
    FormSpec(path="/act/cron/{name}/edit", role=Role.OPERATOR, act=edit),
    FormSpec(path="/act/cron/{name}/enable", role=Role.OPERATOR, act=enable),
    FormSpec(path="/act/cron/{name}/disable", role=Role.OPERATOR, act=disable),
    FormSpec(path="/act/cron/{name}/trigger", role=Role.OPERATOR, act=trigger),
    FormSpec(path="/act/cron/{name}/delete", role=Role.ADMIN, act=delete),
)
