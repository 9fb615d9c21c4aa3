"""Worker processes that live now, and the queues none of them serves."""

import asyncio
from typing import Final

from forge_jobs.ops import metrics, queries
from forge_jobs.web.access.identity import Role
from forge_jobs.web.request_context import RequestContext

from . import charts
from .page import Form, Given, Notice, Page, Shown
from .ranges import range_of


async def view(desk: RequestContext, given: Given) -> Shown:
    lately = range_of({}, await desk.now())
    workers, queues, hosts = await asyncio.gather(
        queries.workers(desk.store, clock=desk.clock),
        queries.queues(desk.store, clock=desk.clock),
        metrics.hosts(desk.store, since=lately.since, until=lately.until, step_s=lately.step_s),
    )
    return {
        "workers": workers,
        "unserved": queries.unserved(queues),
        "charts": charts.resources(hosts, lately.moments),
    }


async def quiet(desk: RequestContext, given: Given) -> Notice:
    host_id = await desk.operator.quiet(given["host_id"])
    return Notice(f"{host_id} takes no more jobs", f"forge workers quiet {host_id}")


async def unquiet(desk: RequestContext, given: Given) -> Notice:
    host_id = await desk.operator.quiet(given["host_id"], quiet=False)
    return Notice(f"{host_id} takes jobs again", f"forge workers quiet --off {host_id}")


PAGE: Final = Page(
    path="/workers", name="workers", title="Workers", template="workers.html", view=view, key="w"
)
FORMS: Final = (
    Form(path="/act/workers/{host_id}/quiet", role=Role.OPERATOR, act=quiet),
    Form(path="/act/workers/{host_id}/unquiet", role=Role.OPERATOR, act=unquiet),
)
