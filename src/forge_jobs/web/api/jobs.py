"""Reads jobs over HTTP. ``job_actions`` and ``bulk`` change them."""

import asyncio
from typing import Any

from msgspec import Struct, field

from forge_jobs.core import job_query
from forge_jobs.core.selection import Filter, Order
from forge_jobs.core.status import JobStatus
from forge_jobs.ops import queries
from forge_jobs.ops.query_line import joined, query_filter
from forge_jobs.ops.search import SearchConditions, search
from forge_jobs.ops.views import ErrorView, JobsPage, JobSummary, JobView
from forge_jobs.web.request_context import RequestContext

from .parameters import (
    Body,
    CursorText,
    GroupId,
    JobFilter,
    JobId,
    KeyText,
    KindName,
    Limit,
    Offset,
    QueryText,
    QueueName,
    SearchText,
    Sort,
    Status,
    Timestamp,
    renamed,
)
from .route import BadRequest, Routes

routes = Routes()

_MAX_BATCH = 500
_MAX_SCHEDULED = 500
DEFAULT_LIMIT = 50


class ListJobsBody(Body, frozen=True, kw_only=True):
    """A page of jobs: by ``after``, the ``next`` of the page before, or by offset up to 10,000."""

    filter: JobFilter = JobFilter()
    limit: Limit = DEFAULT_LIMIT
    offset: Offset = 0
    after: CursorText | None = None


class JobList(Struct, frozen=True, kw_only=True):
    """Newest first. ``total`` is counted up to 10,000; ``more``: there are more. A search has no
    ``total``; ``looked`` is the number of jobs it read. ``stopped``: the page is short because one
    request reads a bounded number of jobs; ``next`` continues."""

    rows: tuple[JobSummary, ...]
    total: int | None
    more: bool
    limit: int
    offset: int
    looked: int | None
    next: str | None
    stopped: bool = False


class ListJobsQuery(Struct, frozen=True, kw_only=True):
    """A filter in the query string."""

    queue: tuple[QueueName, ...] = ()
    kind: tuple[KindName, ...] = ()
    status: tuple[Status, ...] = ()
    tag: KeyText | None = None
    dedupe_key: KeyText | None = None
    error: SearchText | None = None
    group: GroupId | None = None
    since: Timestamp | None = field(default=None, name="from")
    until: Timestamp | None = field(default=None, name="to")
    payload_search: SearchText | None = None
    query: QueryText | None = None
    sort: Sort = "-enqueued"
    limit: Limit = DEFAULT_LIMIT
    after: CursorText | None = None


class CountJobsBody(Body, frozen=True, kw_only=True):
    """The jobs to count."""

    filter: JobFilter = JobFilter()


class JobCount(Struct, frozen=True):
    """The number of jobs; ``more``: the count stopped at its cap."""

    jobs: int
    more: bool


class NewestJobsQuery(Struct, frozen=True, kw_only=True):
    """The newest jobs of one queue, or of all."""

    queue: QueueName | None = None
    queue_name: QueueName | None = None
    limit: Limit = 100


class KindsQuery(Struct, frozen=True, kw_only=True):
    """Kinds of one queue, or of all."""

    queue: QueueName | None = None
    queue_name: QueueName | None = None


class JobDetails(Struct, frozen=True, kw_only=True):
    """One job in full."""

    row: JobView
    payload: Any
    error_history: tuple[ErrorView, ...]


@routes.post("/jobs/list", writes=False)
async def list_jobs(context: RequestContext, body: ListJobsBody) -> JobList:
    """Jobs by filter, newest first."""
    if body.after is not None and body.offset:
        raise BadRequest("offset", "offset: give after or offset, not both")
    return await _job_list(
        context,
        body.filter.indexed_filter(),
        body.filter.search_conditions(),
        limit=body.limit,
        after=body.after,
        offset=body.offset,
    )


@routes.get("/jobs")
async def query_jobs(context: RequestContext, query: ListJobsQuery) -> JobList:
    """Jobs by a filter in the query string, newest first. ``query`` is a query line such as
    ``kind:send_mail to:ann@ since:1h``; what it says holds beside the other parameters. ``sort`` is
    by ``ended`` for dead and cancelled jobs, ``due`` for scheduled and failed, ``started`` for
    running ones; with ``-`` the latest first."""
    job_filter = JobFilter(
        queues=query.queue,
        kinds=query.kind,
        statuses=query.status,
        tag=query.tag,
        dedupe_key=query.dedupe_key,
        error=query.error,
        group=query.group,
        since=query.since,
        until=query.until,
        payload_search=query.payload_search,
    )
    wanted = job_filter.indexed_filter()
    conditions = job_filter.search_conditions()
    if query.query is not None:
        line = job_query.parse(query.query)
        wanted = joined(wanted, await query_filter(context.store, line, clock=context.clock))
    if conditions is None and wanted.reads_payloads:
        conditions = SearchConditions()
    return await _job_list(
        context,
        wanted,
        conditions,
        limit=query.limit,
        after=query.after,
        order=Order(query.sort),
    )


@routes.post("/jobs/count", writes=False)
async def count_jobs(context: RequestContext, body: CountJobsBody) -> JobCount:
    """Count the jobs that match, up to 10,000."""
    result = await queries.count(context.store, body.filter.bulk_filter())
    return JobCount(result.jobs, result.more)


@routes.get("/jobs/failed")
async def list_failed(context: RequestContext, query: NewestJobsQuery) -> tuple[JobSummary, ...]:
    """Jobs that failed and will be retried."""
    queue = renamed("queue", query.queue, "queue_name", query.queue_name)
    job_filter = Filter(queue=queue, statuses=(JobStatus.FAILED,))
    return (await queries.jobs(context.store, job_filter, limit=query.limit)).jobs


@routes.get("/jobs/scheduled")
async def list_scheduled(context: RequestContext, query: NewestJobsQuery) -> tuple[JobSummary, ...]:
    """Jobs scheduled for later, at most 500."""
    queue = renamed("queue", query.queue, "queue_name", query.queue_name)
    job_filter = Filter(queue=queue, statuses=(JobStatus.SCHEDULED,))
    page = await queries.jobs(context.store, job_filter, limit=min(query.limit, _MAX_SCHEDULED))
    return page.jobs


@routes.get("/jobs/kinds")
async def list_kinds(context: RequestContext, query: KindsQuery) -> tuple[str, ...]:
    """Kinds that workers have published."""
    queues_by_kind = {**await context.store.queues.kinds()}
    queue_name = renamed("queue", query.queue, "queue_name", query.queue_name)
    return tuple(
        sorted(kind for kind, queue in queues_by_kind.items() if queue_name in (None, queue))
    )


@routes.get("/jobs/inspect/{id}")
async def inspect(context: RequestContext, id: JobId) -> JobDetails:
    """One job with its payload, errors, log lines, and why it is not running."""
    view = await queries.job(context.store, id, clock=context.clock)
    return JobDetails(row=view, payload=view.payload, error_history=view.errors)


async def _job_list(
    context: RequestContext,
    indexed: Filter,
    conditions: SearchConditions | None,
    *,
    limit: int,
    after: str | None,
    offset: int = 0,
    order: Order = Order.NEWEST,
) -> JobList:
    if conditions is not None:
        if offset:
            raise BadRequest("offset", "offset: a search goes on by its cursor, in after")
        result = await search(
            context.store, indexed, conditions, limit=limit, after=after, order=order
        )
        return JobList(
            rows=result.jobs,
            total=None,
            more=result.next is not None,
            limit=limit,
            offset=0,
            looked=result.jobs_read,
            next=result.next,
        )
    page, total = await asyncio.gather(
        _page_at_offset(context, indexed, limit, after, offset, order),
        queries.count(context.store, indexed),
    )
    return JobList(
        rows=page.jobs,
        total=total.jobs,
        more=total.more,
        limit=limit,
        offset=offset,
        looked=None,
        next=page.next,
        stopped=page.stopped,
    )


async def _page_at_offset(
    context: RequestContext,
    job_filter: Filter,
    limit: int,
    after: str | None,
    offset: int,
    order: Order,
) -> JobsPage:
    """The page after ``offset`` jobs, which are skipped by cursor."""
    while offset:
        batch_size = min(offset, _MAX_BATCH)
        skipped = await context.store.jobs.page(job_filter, limit=batch_size, after=after)
        offset -= len(skipped.jobs)
        after = skipped.next
        if after is None or (skipped.stopped and offset):
            return JobsPage(jobs=(), next=after, stopped=skipped.stopped)
    return await queries.jobs(context.store, job_filter, limit=limit, after=after, order=order)
