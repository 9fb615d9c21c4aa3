"""The alerts page: rules, their episodes, and a test button for each receiver."""

import asyncio
from typing import Any, Final

from forge_jobs.core.alert_rule import Condition, new_rule
from forge_jobs.core.errors import BadOption
from forge_jobs.ops import alerts as ops
from forge_jobs.web.access.identity import Role
from forge_jobs.web.request_context import RequestContext

from .commands import forge_command
from .page import FormSpec, Notice, PageSpec, Params, TemplateVars

_EPISODES: Final = 100
# Fields of the form, their names in ``new_rule``, and their options on the command line.
_FIELDS: Final = {
    "above": ("above", "--above"),
    "below": ("below", "--below"),
    "for": ("hold", "--for"),
    "clear": ("clear", "--clear"),
    "queue": ("queue", "--queue"),
    "schedule": ("schedule", "--schedule"),
    "window": ("window", "--window"),
    "min_jobs": ("min_jobs", "--min-jobs"),
    "url": ("url", "--webhook"),
    "tz": ("tz", "--tz"),
}


async def view(context: RequestContext, params: Params) -> TemplateVars:
    rules, episodes = await asyncio.gather(
        ops.alert_rules(context.store), ops.episodes(context.store, limit=_EPISODES)
    )
    return {"rules": rules, "episodes": episodes, "conditions": tuple(Condition)}


async def add(context: RequestContext, params: Params) -> Notice:
    name, condition = params.get("name", "").strip(), params.get("condition", "")
    given, options = _given(params)
    rule = new_rule(name, condition, where=f"alert {name!r}", **given)
    await context.alert_actions.add(rule)
    text = f"alert rule {rule.name} is added"
    return Notice(text, forge_command("alerts", "add", name, condition, *options))


async def edit(context: RequestContext, params: Params) -> Notice:
    name = params["name"]
    given, options = _given(params)
    if params.get("remove_secret"):
        given["secret"] = None
    await context.alert_actions.edit(name, given)
    return Notice(f"alert rule {name} is changed", forge_command("alerts", "edit", name, *options))


async def enable(context: RequestContext, params: Params) -> Notice:
    name = params["name"]
    await context.alert_actions.enable(name, True)
    return Notice(f"alert rule {name} is on", forge_command("alerts", "edit", name, "--on"))


async def disable(context: RequestContext, params: Params) -> Notice:
    name = params["name"]
    await context.alert_actions.enable(name, False)
    return Notice(f"alert rule {name} is off", forge_command("alerts", "edit", name, "--off"))


async def test(context: RequestContext, params: Params) -> Notice:
    name = params["name"]
    job_id = await context.alert_actions.test(name)
    text = f"job {job_id} sends a test message of {name}"
    return Notice(text, forge_command("alerts", "test", name))


async def remove(context: RequestContext, params: Params) -> Notice:
    name = params["name"]
    await context.alert_actions.remove(name)
    return Notice(f"alert rule {name} is removed", forge_command("alerts", "remove", name))


def _given(params: Params) -> tuple[dict[str, Any], list[str]]:
    """What the form says, and the same as options; an address and a secret stay out of them."""
    given: dict[str, Any] = {}
    options: list[str] = []
    for field, (name, option) in _FIELDS.items():
        text = params.get(field, "").strip()
        if text:
            given[name] = _parse_int(field, text) if name == "min_jobs" else text
            options += [option, "URL" if name == "url" else text]
    if params.get("quiet", "").strip():
        given["quiet"] = [one.strip() for one in params["quiet"].split(";") if one.strip()]
        options += [part for one in given["quiet"] for part in ("--quiet", one)]
    if params.get("secret", "").strip():
        given["secret"] = params["secret"].strip()
        options += ["--secret-env", "NAME"]
    return given, options


def _parse_int(field: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise BadOption(f"{field}={text!r} is not a whole number") from None


PAGE: Final = PageSpec(
    path="/alerts", name="alerts", title="Alerts", template="alerts.html", view=view, key="n"
)
FORMS: Final = (
    FormSpec(path="/act/alerts", role=Role.ADMIN, act=add),
    FormSpec(path="/act/alerts/{name}/edit", role=Role.ADMIN, act=edit),
    FormSpec(path="/act/alerts/{name}/enable", role=Role.OPERATOR, act=enable),
    FormSpec(path="/act/alerts/{name}/disable", role=Role.OPERATOR, act=disable),
    FormSpec(path="/act/alerts/{name}/test", role=Role.OPERATOR, act=test),
    FormSpec(path="/act/alerts/{name}/remove", role=Role.ADMIN, act=remove),
)
