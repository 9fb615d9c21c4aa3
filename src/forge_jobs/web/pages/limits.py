"""The limits page: rate limits of handlers, limits of tasks and queues, throttle scopes."""

import asyncio
from typing import Final

from forge_jobs.core.errors import BadOption
from forge_jobs.ops import declared_limits
from forge_jobs.ops.rate_limits import rate_limits
from forge_jobs.web.access.identity import Role
from forge_jobs.web.request_context import RequestContext

from .commands import forge_command
from .page import FormSpec, Notice, PageSpec, Params, TemplateVars


async def view(context: RequestContext, params: Params) -> TemplateVars:
    results = await asyncio.gather(
        rate_limits(context.store),
        declared_limits.declared_limits(context.store),
        declared_limits.scopes(context.store, clock=context.clock),
    )
    return dict(zip(("rates", "limits", "scopes"), results, strict=True))


async def set_limit(context: RequestContext, params: Params) -> Notice:
    """Set a declared limit (``task:`` or ``queue:``) or a rate limit (any other name)."""
    name = params.get("name", "").strip()
    rate, burst, concurrency_text = (
        params.get(f, "").strip() for f in ("rate", "burst", "concurrency")
    )
    number = _parse_number("burst", burst) if burst else None
    concurrency = int(_parse_number("concurrency", concurrency_text)) if concurrency_text else None
    if name.startswith(("task:", "queue:")):
        await context.limit_actions.set(
            name, concurrency=concurrency, rate=rate or None, burst=number
        )
    elif concurrency is not None:
        raise BadOption("at once is for task:KIND and queue:NAME; a scope has a rate, such as 50/m")
    else:
        await context.rate_limit_actions.set_rate(name, rate or None, burst=number)
    options = [rate] if rate else []
    options += ["--burst", burst] if burst else []
    options += ["--concurrency", concurrency_text] if concurrency_text else []
    return Notice(f"limit {name} is set", forge_command("limits", "set", name, *options))


async def lift(context: RequestContext, params: Params) -> Notice:
    name = params.get("name", "")
    await context.limit_actions.set(name, lift=True)
    return Notice(f"{name} has no bounds any more", forge_command("limits", "set", name, "--lift"))


async def reset(context: RequestContext, params: Params) -> Notice:
    name = params.get("name", "")
    await context.limit_actions.reset(name)
    text = f"{name}: the next worker that starts says what it is"
    return Notice(text, forge_command("limits", "reset", name))


async def drain(context: RequestContext, params: Params) -> Notice:
    name = params.get("name", "")
    await context.rate_limit_actions.drain(name)
    text = f"{name}: nobody gets a permit until it has refilled"
    return Notice(text, forge_command("limits", "drain", name))


async def clear(context: RequestContext, params: Params) -> Notice:
    name = params.get("name", "")
    await context.limit_actions.open_scope(name)
    return Notice(f"scope {name} is open", forge_command("limits", "clear", name))


def _parse_number(field: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise BadOption(f"{field}={text!r} is not a number") from None


PAGE: Final = PageSpec(
    path="/limits", name="limits", title="Limits", template="limits.html", view=view, key="l"
)
FORMS: Final = (
    FormSpec(path="/act/limits/set", role=Role.OPERATOR, act=set_limit),
    FormSpec(path="/act/limits/lift", role=Role.OPERATOR, act=lift),
    FormSpec(path="/act/limits/reset", role=Role.OPERATOR, act=reset),
    FormSpec(path="/act/limits/drain", role=Role.OPERATOR, act=drain),
    FormSpec(path="/act/limits/clear", role=Role.OPERATOR, act=clear),
)
