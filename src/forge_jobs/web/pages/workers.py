"""The workers page: live worker processes, and queues that none of them serves."""

import asyncio
from typing import Final

from forge_jobs.ops import metrics, queries
from forge_jobs.web.access.identity import Role
from forge_jobs.web.request_context import RequestContext

from . import charts
from .page import FormSpec, Notice, PageSpec, Params, TemplateVars
from .ranges import parse_range


async def view(context: RequestContext, params: Params) -> TemplateVars:
    range_ = parse_range({}, await context.now())
    workers, queues, hosts = await asyncio.gather(
        queries.workers(context.store, clock=context.clock),
        queries.queues(context.store, clock=context.clock),
        metrics.hosts(context.store, since=range_.since, until=range_.until, step_s=range_.step_s),
    )
    return {
        "workers": workers,
        "unserved": queries.unserved_queues(queues),
        "charts": charts.resource_charts(hosts, range_.point_times),
    }


async def quiet(context: RequestContext, params: Params) -> Notice:
    host_id = await context.job_actions.quiet(params["host_id"])
    return Notice(f"{host_id} takes no more jobs", f"forge workers quiet {host_id}")


async def unquiet(context: RequestContext, params: Params) -> Notice:
    host_id = await context.job_actions.quiet(params["host_id"], quiet=False)
    return Notice(f"{host_id} takes jobs again", f"forge workers quiet --off {host_id}")


PAGE: Final = PageSpec(
    path="/workers", name="workers", title="Workers", template="workers.html", view=view, key="w"
)
FORMS: Final = (
    FormSpec(path="/act/workers/{host_id}/quiet", role=Role.OPERATOR, act=quiet),
    FormSpec(path="/act/workers/{host_id}/unquiet", role=Role.OPERATOR, act=unquiet),
)
