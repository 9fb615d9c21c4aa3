"""Whether the workers keep up: backlog, rates, utilisation and time to empty, and their charts."""

import asyncio
from typing import Final

from forge_jobs.ops.capacity import capacity, live_jobs, unfinished_at, utilisation_at
from forge_jobs.web.request_context import RequestContext

from . import charts
from .overview import point_charts, range_variables
from .page import PageSpec, Params, TemplateVars
from .point_charts import read_points

MINUTES: Final = 10


async def view(context: RequestContext, params: Params) -> TemplateVars:
    now = await context.now()
    data = await read_points(context, params, now)
    found, live = await asyncio.gather(
        capacity(context.store, minutes=MINUTES, clock=context.clock),
        live_jobs(context.store, queue=data.queue, kind=data.kind),
    )
    of_queue = [row for row in found.queues if data.queue in (None, row.queue)]
    slots = sum(row.slots for row in of_queue)
    times, points = data.range.point_times, data.points
    reaches_now = bool(points) and points[-1].open
    backlog_charts = charts.backlog_charts(
        points,
        unfinished_at(points, live) if reaches_now else [],
        utilisation_at(points, slots, data.range.step_s),
        times,
        data.frame,
    )
    return {
        "capacity": found,
        "minutes": MINUTES,
        **range_variables(data),
        "charts": backlog_charts if reaches_now else backlog_charts[1:],
        "flow": point_charts(data)[:2],
    }


PAGE: Final = PageSpec(
    path="/capacity", name="capacity", title="Capacity", template="capacity.html", view=view
)
