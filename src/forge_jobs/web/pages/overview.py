"""The overview page: counts, blocked queues, charts, queues and workers."""

import asyncio
from typing import Final

from forge_jobs.core.error_groups import GroupState
from forge_jobs.ops import error_groups, metrics, queries
from forge_jobs.ops.error_groups import GroupOrder
from forge_jobs.ops.queue_activity import queue_activity
from forge_jobs.web.request_context import RequestContext

from . import charts
from .comparison import COMPARISONS, difference
from .page import PageSpec, Params, TemplateVars
from .point_charts import ChartData, read_points
from .ranges import RANGES, adjacent_ranges
from .sparklines import sparkline

_ERRORS_S: Final = 3_600.0
_ERRORS_SHOWN: Final = 3
_UNRESOLVED: Final = (GroupState.OPEN, GroupState.RETURNED)
_COUNTED: Final = ("enqueued", "done", "retried", "dead")


async def view(context: RequestContext, params: Params) -> TemplateVars:
    now = await context.now()
    data = await read_points(context, params, now)
    range_ = data.range
    overview, hosts, activity, groups = await asyncio.gather(
        queries.overview(context.store, minutes=1, clock=context.clock),
        metrics.hosts(
            context.store, since=range_.since, until=range_.until, step_s=max(range_.step_s, 60)
        ),
        queue_activity(context.store, clock=context.clock),
        error_groups.error_groups(
            context.store,
            span_s=_ERRORS_S,
            states=_UNRESOLVED,
            order=GroupOrder.COUNT,
            limit=_ERRORS_SHOWN,
            clock=context.clock,
        ),
    )
    return {
        "overview": overview,
        "errors": groups,
        "sparklines": {name: sparkline(minutes) for name, minutes in activity.items()},
        "blocked": [queue for queue in overview.queues if queue.blocks],
        **range_variables(data),
        "adjacent": adjacent_ranges(range_, now),
        "totals": _totals(data.points),
        "differences": _differences(data),
        "charts": [*point_charts(data), *charts.resource_charts(hosts, range_.point_times)],
    }


def range_variables(data: ChartData) -> dict[str, object]:
    """Variables of the bar with ranges and comparisons, and of links that keep them."""
    return {
        "range": data.range,
        "ranges": list(RANGES),
        "queue": data.queue or "",
        "kind": data.kind or "",
        "comparison": data.comparison,
        "comparisons": list(COMPARISONS.values()),
        "wanted": data.wanted,
        "link": data.link,
        "marks": data.frame.marks,
    }


def point_charts(data: ChartData) -> list[TemplateVars]:
    """Jobs, wait and run time."""
    points, times, frame = data.points, data.range.point_times, data.frame
    at = charts.point_times(points)
    return [
        charts.jobs_chart(points, data.unit, times, frame),
        charts.latency_chart(
            "waited", "Wait before start", at, [p.waited for p in points], times,
            frame=frame, earlier=[p.waited for p in frame.earlier],
        ),
        charts.latency_chart(
            "ran", "Run time", at, [p.ran for p in points], times,
            frame=frame, earlier=[p.ran for p in frame.earlier],
        ),
    ]  # fmt: skip


def _totals(points: tuple[metrics.Point, ...]) -> dict[str, int]:
    return {name: sum(getattr(point, name) for point in points) for name in _COUNTED}


def _differences(data: ChartData) -> dict[str, str]:
    """How the totals compare with the earlier time; without the points that have not ended, and as
    far as the present ones reach."""
    if data.comparison is None:
        return {}
    ended = [point for point in data.points if not point.open]
    count = len(data.points)
    earlier = data.frame.earlier[-count:][: len(ended)] if count else ()
    now, then = _totals(tuple(ended)), _totals(tuple(earlier))
    return {name: f"{then[name]:,}: {difference(now[name], then[name])}" for name in _COUNTED}


PAGE: Final = PageSpec(
    path="/", name="overview", title="Overview", template="overview.html", view=view, key="o"
)
