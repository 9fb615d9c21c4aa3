"""Tasks and tags over HTTP: what each kind, queue and tag did over a range."""

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct, field

from forge_jobs.ops import tags, tasks
from forge_jobs.ops.tags import TagDetail, TagsPage
from forge_jobs.ops.tasks import MAX_ROWS, TaskDetail, TasksPage
from forge_jobs.web.request_context import RequestContext

from .parameters import CursorText, KeyText, KindName
from .route import Routes

routes = Routes()

RangeName: TypeAlias = Literal["1h", "6h", "24h", "7d", "30d"]
Rows: TypeAlias = Annotated[int, Meta(ge=1, le=MAX_ROWS)]


class PeriodQuery(Struct, frozen=True, kw_only=True):
    """A range up to now, which begins with a whole minute, hour or day."""

    range_name: RangeName = field(default="1h", name="range")


class TasksQuery(PeriodQuery, frozen=True, kw_only=True):
    """How the list is grouped, sorted and continued."""

    by: Literal["kind", "queue"] = "kind"
    sort: Literal["share", "name", "throughput", "failures", "wait", "run", "backlog"] = "share"
    limit: Rows = 100
    after: CursorText | None = None


class TagsQuery(PeriodQuery, frozen=True, kw_only=True):
    """How the list is sorted and continued."""

    sort: Literal["share", "name", "runs", "failures", "wait"] = "share"
    limit: Rows = 100
    after: Annotated[str, Meta(min_length=1, max_length=600)] | None = None


class TagQuery(PeriodQuery, frozen=True, kw_only=True):
    """Which tag: free text, therefore in the query and not in the path."""

    tag: KeyText


@routes.get("/tasks")
async def list_tasks(context: RequestContext, query: TasksQuery) -> TasksPage:
    """What each kind, or each queue, did over a range, and what waits."""
    return await tasks.tasks(
        context.store,
        range_name=query.range_name,
        by=query.by,
        sort=query.sort,
        limit=query.limit,
        after=query.after,
        clock=context.clock,
    )


@routes.get("/tasks/{kind}")
async def get_task(context: RequestContext, kind: KindName, query: PeriodQuery) -> TaskDetail:
    """One kind: its numbers, a histogram and a heat map of run time."""
    return await tasks.task(context.store, kind, range_name=query.range_name, clock=context.clock)


@routes.get("/tags")
async def list_tags(context: RequestContext, query: TagsQuery) -> TagsPage:
    """What the runs of each tag came to over a range."""
    return await tags.tags(
        context.store,
        range_name=query.range_name,
        sort=query.sort,
        limit=query.limit,
        after=query.after,
        clock=context.clock,
    )


@routes.get("/tags/show")
async def get_tag(context: RequestContext, query: TagQuery) -> TagDetail:
    """One tag, with its queues and kinds."""
    return await tags.tag(
        context.store, query.tag, range_name=query.range_name, clock=context.clock
    )
