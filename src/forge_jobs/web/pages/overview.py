"""The first page: is everything well, and if not, where to look."""

import asyncio
from typing import Any, Final

from forge_jobs.ops import metrics, queries
from forge_jobs.ops.queue_activity import flows
from forge_jobs.web.request_context import RequestContext

from . import charts
from .page import Given, Page, Shown
from .ranges import RANGES, neighbours, range_of
from .sparklines import sparkline


async def view(desk: RequestContext, given: Given) -> Shown:
    now = await desk.now()
    chosen = range_of(given, now)
    queue = given.get("queue") or None
    span: dict[str, Any] = {"since": chosen.since, "until": chosen.until}
    seen, series, hosts, lately = await asyncio.gather(
        queries.overview(desk.store, minutes=1, clock=desk.clock),
        desk.chronicle.chart(desk.store, step_s=chosen.step_s, queue=queue, **span),
        metrics.hosts(desk.store, step_s=chosen.step_s, **span),
        flows(desk.store, clock=desk.clock),
    )
    points = series.points
    at, whole = charts.times(points), chosen.moments
    return {
        "seen": seen,
        "sparks": {name: sparkline(flow) for name, flow in lately.items()},
        "blocked": [one for one in seen.queues if one.blocks],
        "range": chosen,
        "queue": queue or "",
        "ranges": list(RANGES),
        "near": neighbours(chosen, now),
        "sums": {
            name: sum(getattr(point, name) for point in points)
            for name in ("enqueued", "done", "retried", "dead")
        },
        "charts": [
            charts.flow(
                points, chosen.unit if series.whole else f"{chosen.unit}; reading the rest", whole
            ),
            charts.latency("waited", "Wait before start", at, [p.waited for p in points], whole),
            charts.latency("ran", "Run time", at, [p.ran for p in points], whole),
            *charts.resources(hosts, whole),
        ],
    }


PAGE: Final = Page(
    path="/", name="overview", title="Overview", template="overview.html", view=view, key="o"
)
