"""The page of suspended jobs: what they wait for, with a search by event and key."""

from typing import Final

from forge_jobs.core.errors import Invalid
from forge_jobs.core.status import JobStatus
from forge_jobs.ops import queries, steps
from forge_jobs.ops.steps import WaitsPage
from forge_jobs.web.request_context import RequestContext

from .page import PageSpec, Params, TemplateVars

_ROWS: Final = 100


async def view(context: RequestContext, params: Params) -> TemplateVars:
    name, key = params.get("event", "").strip(), params.get("key", "").strip()
    after = params.get("after") or None
    trouble = ""
    try:
        page = await steps.waits(
            context.store, name=name or None, key=key or None, limit=_ROWS, after=after
        )
    except Invalid as error:
        page, trouble = WaitsPage(waits=(), next=None), str(error)
    queues = await queries.queues(context.store, clock=context.clock)
    return {
        "waits": page.waits,
        "next": page.next,
        "first": after is None,
        "filter": {"event": name, "key": key},
        "trouble": trouble,
        "suspended": sum(queue.counts[JobStatus.SUSPENDED] for queue in queues),
    }


PAGE: Final = PageSpec(
    path="/suspended", name="suspended", title="Suspended", template="suspended.html", view=view,
    key="u",
)  # fmt: skip
