"""The overview page: counts, blocked queues, charts, queues and workers."""

import asyncio
from typing import Any, Final

from forge_jobs.ops import metrics, queries
from forge_jobs.ops.queue_activity import queue_activity
from forge_jobs.web.request_context import RequestContext

from . import charts
from .page import PageSpec, Params, TemplateVars
from .ranges import RANGES, adjacent_ranges, parse_range
from .sparklines import sparkline


async def view(context: RequestContext, params: Params) -> TemplateVars:
    now = await context.now()
    range_ = parse_range(params, now)
    queue_name = params.get("queue") or None
    bounds: dict[str, Any] = {"since": range_.since, "until": range_.until}
    overview, chart, hosts, activity = await asyncio.gather(
        queries.overview(context.store, minutes=1, clock=context.clock),
        context.chart_cache.chart(context.store, step_s=range_.step_s, queue=queue_name, **bounds),
        metrics.hosts(context.store, step_s=range_.step_s, **bounds),
        queue_activity(context.store, clock=context.clock),
    )
    points = chart.points
    at, all_times = charts.point_times(points), range_.point_times
    return {
        "overview": overview,
        "sparklines": {name: sparkline(minutes) for name, minutes in activity.items()},
        "blocked": [queue for queue in overview.queues if queue.blocks],
        "range": range_,
        "queue": queue_name or "",
        "ranges": list(RANGES),
        "adjacent": adjacent_ranges(range_, now),
        "totals": {
            name: sum(getattr(point, name) for point in points)
            for name in ("enqueued", "done", "retried", "dead")
        },
        "charts": [
            charts.jobs_chart(
                points,
                range_.unit if chart.complete else f"{range_.unit}; reading the rest",
                all_times,
            ),
            charts.latency_chart(
                "waited", "Wait before start", at, [p.waited for p in points], all_times
            ),
            charts.latency_chart("ran", "Run time", at, [p.ran for p in points], all_times),
            *charts.resource_charts(hosts, all_times),
        ],
    }


PAGE: Final = PageSpec(
    path="/", name="overview", title="Overview", template="overview.html", view=view, key="o"
)
