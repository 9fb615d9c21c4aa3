"""The errors pages: groups of failures with the same cause, and one group in full."""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct

from forge_jobs.core.error_groups import GroupState
from forge_jobs.core.errors import BadOption
from forge_jobs.ops import error_groups as ops
from forge_jobs.ops.error_groups import ErrorGroupView, GroupOrder
from forge_jobs.ops.versions import VersionView, worker_versions
from forge_jobs.web.access.identity import Role
from forge_jobs.web.request_context import RequestContext

from .commands import forge_command
from .page import FormSpec, Notice, PageSpec, Params, TemplateVars
from .sparklines import HEIGHT

DEFAULT_RANGE: Final = "24h"
# Seconds by name.
RANGES: Final = {"1h": 3_600, "6h": 21_600, "24h": 86_400, "7d": 604_800, "14d": 1_209_600}
PAGE_ROWS: Final = 50
_BARS: Final = 30
_STEP: Final = 4
_MAX_KINDS: Final = 12
_RETRIED: Final = ",".join(ops.RETRIED)


class TrendBars(Struct, frozen=True):
    """Bars as an SVG path; ``label`` is the text for screen readers."""

    width: int
    path: str
    label: str


class Deploy(Struct, frozen=True):
    """The newest version of the workers, and the kinds that failed since it appeared."""

    version: str
    at: datetime
    kinds: tuple[str, ...]


async def view(context: RequestContext, params: Params) -> TemplateVars:
    name, order = _range(params), _order(params)
    wanted = {
        field: params.get(field, "").strip() for field in ("kind", "queue", "state", "sort")
    } | {"range": "" if name == DEFAULT_RANGE else name}
    page, deploy, queues = await asyncio.gather(
        ops.error_groups(
            context.store,
            span_s=RANGES[name],
            kind=wanted["kind"] or None,
            queue=wanted["queue"] or None,
            states=_states(wanted["state"]),
            order=order,
            limit=PAGE_ROWS,
            after=params.get("after") or None,
            clock=context.clock,
        ),
        _deploy(context),
        context.store.queues.all(),
    )
    return {
        "groups": page.groups,
        "in_all": page.groups_in_all,
        "failures": page.failures,
        "next": page.next,
        "first": not params.get("after"),
        "bars": {one.id: trend_bars(one, page.since, page.at) for one in page.groups},
        "range": name,
        "ranges": list(RANGES),
        "states": [state.value for state in GroupState],
        "wanted": wanted,
        "order": order.value,
        "orders": [one.value for one in GroupOrder],
        "queues": [queue.name for queue in queues],
        "deploy": deploy,
        "retried": _RETRIED,
    }


async def group(context: RequestContext, params: Params) -> TemplateVars:
    name = _range(params)
    found = await ops.error_group(
        context.store, params["id"], span_s=RANGES[name], clock=context.clock
    )
    since = datetime.fromtimestamp(found.at.timestamp() - RANGES[name], found.at.tzinfo)
    return {
        "group": found.group,
        "samples": found.samples,
        "traceback": next((one for one in found.samples if one.traceback), None),
        "bars": trend_bars(found.group, since, found.at),
        "range": name,
        "ranges": list(RANGES),
        "retried": _RETRIED,
    }


async def resolve(context: RequestContext, params: Params) -> Notice:
    changed = await context.error_group_actions.resolve(params["id"])
    text = f"{changed.title[:80]} is resolved; it is flagged when it is seen again"
    return Notice(text, forge_command("errors", "resolve", params["id"]))


async def reopen(context: RequestContext, params: Params) -> Notice:
    changed = await context.error_group_actions.reopen(params["id"])
    return Notice(
        f"{changed.title[:80]} is open again", forge_command("errors", "reopen", params["id"])
    )


def trend_bars(one: ErrorGroupView, since: datetime, until: datetime) -> TrendBars:
    """The failures of a range in thirty bars."""
    counts = [0] * _BARS
    start, span_s = since.timestamp(), (until - since).total_seconds()
    for point in one.trend:
        place = int((point.at.timestamp() - start) / span_s * _BARS)
        counts[min(max(place, 0), _BARS - 1)] += point.count
    most = max(counts)
    path = "".join(
        f"M{index * _STEP} {HEIGHT}v-{max(1, round(count / most * (HEIGHT - 1)))}h3V{HEIGHT}z"
        for index, count in enumerate(counts)
        if count
    )
    return TrendBars(_BARS * _STEP, path, f"{one.recent:,} failures in this range")


async def _deploy(context: RequestContext) -> Deploy | None:
    """What failed since the newest version of the workers appeared."""
    versions: Sequence[VersionView] = await worker_versions(context.store)
    if not versions:
        return None
    newest = versions[-1]
    span_s = await context.now() / 1_000_000 - newest.first_at.timestamp()
    if not 0 < span_s <= ops.MAX_SPAN_S:
        return None
    page = await ops.error_groups(
        context.store, span_s=span_s, order=GroupOrder.COUNT, limit=ops.MAX_PAGE,
        clock=context.clock,
    )  # fmt: skip
    kinds = dict.fromkeys(kind.value for one in page.groups for kind in one.kinds)
    return Deploy(newest.version, newest.first_at, tuple(kinds)[:_MAX_KINDS]) if kinds else None


def _range(params: Params) -> str:
    name = params.get("range") or DEFAULT_RANGE
    if name not in RANGES:
        raise BadOption(f"range={name!r} is not one of {', '.join(RANGES)}")
    return name


def _order(params: Params) -> GroupOrder:
    name = params.get("sort") or GroupOrder.LAST_SEEN.value
    if name not in tuple(GroupOrder):
        raise BadOption(f"sort={name!r} is not one of {', '.join(GroupOrder)}")
    return GroupOrder(name)


def _states(text: str) -> tuple[GroupState, ...]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in tuple(GroupState):
            raise BadOption(f"state={name!r} is not one of {', '.join(GroupState)}")
    return tuple(map(GroupState, names))


PAGE: Final = PageSpec(
    path="/errors", name="errors", title="Errors", template="errors.html", view=view, key="e"
)
GROUP_PAGE: Final = PageSpec(
    path="/errors/{id}", name="error_group", title="Error", template="error_group.html",
    view=group, nav=False, nav_parent="errors",
)  # fmt: skip
FORMS: Final = (
    FormSpec(path="/act/errors/{id}/resolve", role=Role.OPERATOR, act=resolve),
    FormSpec(path="/act/errors/{id}/reopen", role=Role.OPERATOR, act=reopen),
)
