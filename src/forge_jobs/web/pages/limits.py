"""Limits: rates that handlers keep to, limits of tasks and queues, and throttled scopes."""

import asyncio
from typing import Final

from forge_jobs.core.errors import BadOption
from forge_jobs.ops import declared_limits as ops_bounds
from forge_jobs.ops.rate_limits import rate_limits
from forge_jobs.web.access.identity import Role
from forge_jobs.web.request_context import RequestContext

from .page import Form, Given, Notice, Page, Shown
from .quoting import forge


async def view(desk: RequestContext, given: Given) -> Shown:
    found = await asyncio.gather(
        rate_limits(desk.store),
        ops_bounds.declared_limits(desk.store),
        ops_bounds.scopes(desk.store, clock=desk.clock),
    )
    return dict(zip(("rates", "limits", "scopes"), found, strict=True))


async def set_limit(desk: RequestContext, given: Given) -> Notice:
    """One form for both: ``task:`` and ``queue:`` name limits, everything else a rate."""
    name = given.get("name", "").strip()
    rate, burst, most = (given.get(f, "").strip() for f in ("rate", "burst", "concurrency"))
    number = _number("burst", burst) if burst else None
    at_once = int(_number("concurrency", most)) if most else None
    if name.startswith(("task:", "queue:")):
        await desk.bound_operator.set(name, concurrency=at_once, rate=rate or None, burst=number)
    elif at_once is not None:
        raise BadOption("at once is for task:KIND and queue:NAME; a scope has a rate, such as 50/m")
    else:
        await desk.limit_operator.set_rate(name, rate or None, burst=number)
    words = [word for word in (rate,) if word]
    words += ["--burst", burst] if burst else []
    words += ["--concurrency", most] if most else []
    return Notice(f"limit {name} is set", forge("limits", "set", name, *words))


async def lift(desk: RequestContext, given: Given) -> Notice:
    name = given.get("name", "")
    await desk.bound_operator.set(name, lift=True)
    return Notice(f"{name} has no bounds any more", forge("limits", "set", name, "--lift"))


async def reset(desk: RequestContext, given: Given) -> Notice:
    name = given.get("name", "")
    await desk.bound_operator.reset(name)
    text = f"{name}: the next worker that starts says what it is"
    return Notice(text, forge("limits", "reset", name))


async def drain(desk: RequestContext, given: Given) -> Notice:
    name = given.get("name", "")
    await desk.limit_operator.drain(name)
    text = f"{name}: nobody gets a permit until it has refilled"
    return Notice(text, forge("limits", "drain", name))


async def clear(desk: RequestContext, given: Given) -> Notice:
    name = given.get("name", "")
    await desk.bound_operator.open_scope(name)
    return Notice(f"scope {name} is open", forge("limits", "clear", name))


def _number(field: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise BadOption(f"{field}={text!r} is not a number") from None


PAGE: Final = Page(
    path="/limits", name="limits", title="Limits", template="limits.html", view=view, key="l"
)
FORMS: Final = (
    Form(path="/act/limits/set", role=Role.OPERATOR, act=set_limit),
    Form(path="/act/limits/lift", role=Role.OPERATOR, act=lift),
    Form(path="/act/limits/reset", role=Role.OPERATOR, act=reset),
    Form(path="/act/limits/drain", role=Role.OPERATOR, act=drain),
    Form(path="/act/limits/clear", role=Role.OPERATOR, act=clear),
)
