"""The points of the charts as a table, each with a link to its jobs; needs no script."""

from datetime import timedelta
from typing import Final

from forge_jobs.web.request_context import RequestContext

from .charts import aligned
from .overview import range_variables
from .page import PageSpec, Params, TemplateVars
from .point_charts import read_points


async def view(context: RequestContext, params: Params) -> TemplateVars:
    data = await read_points(context, params, await context.now())
    step = timedelta(seconds=data.range.step_s)
    enqueued = aligned([point.enqueued for point in data.frame.earlier], len(data.points))
    return {
        **range_variables(data),
        "unit": data.unit,
        "rows": [
            {
                "point": point,
                "earlier": earlier,
                "jobs": {
                    "queue": data.queue or "",
                    "kind": data.kind or "",
                    "from": f"{point.at:%Y-%m-%dT%H:%M:%SZ}",
                    "until": f"{point.at + step:%Y-%m-%dT%H:%M:%SZ}",
                },
            }
            for point, earlier in zip(reversed(data.points), reversed(enqueued), strict=True)
        ],
    }


PAGE: Final = PageSpec(
    path="/timeline",
    name="timeline",
    title="Timeline",
    template="timeline.html",
    view=view,
    nav=False,
    nav_parent="overview",
)
