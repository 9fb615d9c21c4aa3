"""The pages of tasks: what each kind, or each queue, did over a range, and one kind in full."""

import asyncio
from typing import Final

from forge_jobs.core.limits import queue_limit, task_limit
from forge_jobs.core.selection import Filter
from forge_jobs.ops import declared_limits, queries, tasks
from forge_jobs.ops.period_ranges import RANGES
from forge_jobs.ops.tasks import By, Sort
from forge_jobs.web.request_context import RequestContext

from .heat_map import heat_picture
from .page import PageSpec, Params, TemplateVars
from .sparklines import trend

_ROWS: Final = 50
_RECENT: Final = 10
# The columns of the list: title, what it is sorted by, whether it is a number.
COLUMNS: Final = (
    ("Name", Sort.NAME, False),
    ("Ended", Sort.THROUGHPUT, True),
    ("Failed", Sort.FAILURES, True),
    ("Wait p50 / p95 / p99", Sort.WAIT, True),
    ("Run p50 / p95 / p99", Sort.RUN, True),
    ("Share of run time", Sort.SHARE, True),
    ("Backlog", Sort.BACKLOG, True),
)


async def view(context: RequestContext, params: Params) -> TemplateVars:
    page = await tasks.tasks(
        context.store,
        range_name=params.get("range"),
        by=params.get("by") or By.KIND,
        sort=params.get("sort") or Sort.SHARE,
        limit=_ROWS,
        after=params.get("after") or None,
        clock=context.clock,
    )
    paused = set[str]()
    if page.by is By.QUEUE:
        paused = {queue.name for queue in await context.store.queues.all() if queue.paused}
    return {
        "list": page,
        "columns": COLUMNS,
        "ranges": RANGES,
        "first": not params.get("after"),
        "trends": {task.name: trend(task.trend, page.range) for task in page.tasks},
        "paused": paused,
        "link": {"range": page.range, "by": page.by.value, "sort": page.sort.value},
    }


async def view_task(context: RequestContext, params: Params) -> TemplateVars:
    kind = params["kind"]
    store = context.store
    detail, limits, schedules, configs, recent = await asyncio.gather(
        tasks.task(store, kind, range_name=params.get("range"), clock=context.clock),
        declared_limits.declared_limits(store),
        context.schedule_actions.all(),
        store.queues.all(),
        queries.jobs(store, Filter(kind=kind), limit=_RECENT),
    )
    names = {task_limit(kind), *(queue_limit(queue) for queue in detail.task.queues)}
    return {
        "detail": detail,
        "task": detail.task,
        "limit_name": task_limit(kind),
        "ranges": RANGES,
        "trend": trend(detail.task.trend, detail.range),
        "picture": heat_picture(detail.heat_map),
        "most": max((bucket.runs for bucket in detail.histogram), default=0),
        "limits": [limit for limit in limits if limit.name in names],
        "schedules": [schedule for schedule in schedules if schedule.kind == kind],
        "paused": {queue.name for queue in configs if queue.paused},
        "recent": recent.jobs,
    }


PAGE: Final = PageSpec(
    path="/tasks", name="tasks", title="Tasks", template="tasks.html", view=view, key="t"
)
TASK_PAGE: Final = PageSpec(
    path="/tasks/{kind}", name="task", title="Task", template="task.html", view=view_task,
    nav=False, nav_parent="tasks",
)  # fmt: skip
