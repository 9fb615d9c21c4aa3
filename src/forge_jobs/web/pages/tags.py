"""The pages of tags: what the runs of each tag came to, and one tag with its tasks."""

import asyncio
from typing import Final

from forge_jobs.core.limits import task_limit
from forge_jobs.ops import declared_limits, tags
from forge_jobs.ops.period_ranges import RANGES
from forge_jobs.ops.tags import TagSort
from forge_jobs.web.request_context import RequestContext

from .page import PageSpec, Params, TemplateVars
from .sparklines import trend

_ROWS: Final = 50
COLUMNS: Final = (
    ("Tag", TagSort.NAME, False),
    ("Runs", TagSort.RUNS, True),
    ("Failed", TagSort.FAILURES, True),
    ("Mean wait", TagSort.WAIT, True),
    ("Mean run", "", True),
    ("Share of run time", TagSort.SHARE, True),
)


async def view(context: RequestContext, params: Params) -> TemplateVars:
    page = await tags.tags(
        context.store,
        range_name=params.get("range"),
        sort=params.get("sort") or TagSort.SHARE,
        limit=_ROWS,
        after=params.get("after") or None,
        clock=context.clock,
    )
    return {
        "list": page,
        "columns": COLUMNS,
        "ranges": RANGES,
        "first": not params.get("after"),
        "trends": {tag.tag: trend(tag.trend, page.range) for tag in page.tags},
        "link": {"range": page.range, "sort": page.sort.value},
    }


async def view_tag(context: RequestContext, params: Params) -> TemplateVars:
    detail, limits, configs = await asyncio.gather(
        tags.tag(
            context.store,
            params.get("tag", ""),
            range_name=params.get("range"),
            clock=context.clock,
        ),
        declared_limits.declared_limits(context.store),
        context.store.queues.all(),
    )
    return {
        "detail": detail,
        "ranges": RANGES,
        "trend": trend(detail.tag.trend, detail.range),
        "limits": {limit.name: limit for limit in limits},
        "limit_names": {task.kind: task_limit(task.kind) for task in detail.tasks},
        "paused": {queue.name for queue in configs if queue.paused},
    }


PAGE: Final = PageSpec(
    path="/tags", name="tags", title="Tags", template="tags.html", view=view, key="y"
)
# A tag is free text: it stands in the query, where any text survives.
TAG_PAGE: Final = PageSpec(
    path="/tags/show", name="tag", title="Tag", template="tag.html", view=view_tag, nav=False,
    nav_parent="tags",
)  # fmt: skip
