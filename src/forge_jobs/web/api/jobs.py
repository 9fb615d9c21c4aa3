"""Jobs over HTTP: looking at them. ``job_actions`` acts, ``bulk`` acts on many."""

import asyncio
from typing import Any

from msgspec import Struct, field

from forge_jobs.core.selection import Filter
from forge_jobs.core.status import JobStatus
from forge_jobs.ops import queries
from forge_jobs.ops.search import search
from forge_jobs.ops.views import ErrorView, JobLine, JobsPage, JobView
from forge_jobs.web.request_context import RequestContext

from .parameters import (
    Body,
    CursorText,
    JobFilter,
    JobId,
    KeyText,
    KindName,
    Limit,
    Moment,
    Offset,
    QueueName,
    SearchText,
    Status,
)
from .route import BadRequest, Routes

routes = Routes()

_STEP = 500
_MAX_SCHEDULED = 500
DEFAULT_LIMIT = 50


class Listing(Body, frozen=True, kw_only=True):
    """A page of jobs: by ``after``, the cursor of the page before, or by offset up to 10,000."""

    filter: JobFilter = JobFilter()
    limit: Limit = DEFAULT_LIMIT
    offset: Offset = 0
    after: CursorText | None = None


class Listed(Struct, frozen=True, kw_only=True):
    """Newest first. ``total`` stops at 10,000, and ``more`` says that there are more; it is null
    for a search, which tells how many jobs it ``looked`` at instead. ``stopped``: the page is short
    because one look goes through a bounded number of jobs; ``next`` looks further."""

    rows: tuple[JobLine, ...]
    total: int | None
    more: bool
    limit: int
    offset: int
    looked: int | None
    next: str | None
    stopped: bool = False


class Query(Struct, frozen=True, kw_only=True):
    """A filter in the address."""

    queue: tuple[QueueName, ...] = ()
    kind: tuple[KindName, ...] = ()
    status: tuple[Status, ...] = ()
    tag: KeyText | None = None
    dedupe_key: KeyText | None = None
    error: SearchText | None = None
    since: Moment | None = field(default=None, name="from")
    until: Moment | None = field(default=None, name="to")
    payload_search: SearchText | None = None
    limit: Limit = DEFAULT_LIMIT
    after: CursorText | None = None


class Counting(Body, frozen=True, kw_only=True):
    """Which jobs."""

    filter: JobFilter = JobFilter()


class Counted(Struct, frozen=True):
    """How many; ``more`` than that when the count stopped at its cap."""

    jobs: int
    more: bool


class Some(Struct, frozen=True, kw_only=True):
    """The newest of one queue, or of all."""

    queue_name: QueueName | None = None
    limit: Limit = 100


class Kinds(Struct, frozen=True, kw_only=True):
    """Kinds of one queue, or of all."""

    queue_name: QueueName | None = None


class Inspected(Struct, frozen=True, kw_only=True):
    """One job in full."""

    row: JobView
    payload: Any
    error_history: tuple[ErrorView, ...]


@routes.post("/jobs/list", writes=False)
async def listed(desk: RequestContext, body: Listing) -> Listed:
    """Jobs by filter, newest first."""
    if body.after is not None and body.offset:
        raise BadRequest("offset", "offset: give after or offset, not both")
    return await _page(desk, body.filter, body.limit, body.after, body.offset)


@routes.get("/jobs")
async def query_jobs(desk: RequestContext, query: Query) -> Listed:
    """The same as a plain link."""
    chosen = JobFilter(
        queues=query.queue,
        kinds=query.kind,
        statuses=query.status,
        tag=query.tag,
        dedupe_key=query.dedupe_key,
        error=query.error,
        since=query.since,
        until=query.until,
        payload_search=query.payload_search,
    )
    return await _page(desk, chosen, query.limit, query.after, 0)


@routes.post("/jobs/count", writes=False)
async def counted(desk: RequestContext, body: Counting) -> Counted:
    """How many jobs match, counted up to 10,000."""
    found = await queries.count(desk.store, body.filter.exact())
    return Counted(found.jobs, found.more)


@routes.get("/jobs/failed")
async def failed(desk: RequestContext, query: Some) -> tuple[JobLine, ...]:
    """Jobs that failed and are tried again."""
    chosen = Filter(queue=query.queue_name, statuses=(JobStatus.FAILED,))
    return (await queries.jobs(desk.store, chosen, limit=query.limit)).jobs


@routes.get("/jobs/scheduled")
async def scheduled(desk: RequestContext, query: Some) -> tuple[JobLine, ...]:
    """Jobs that wait for their time, at most 500."""
    chosen = Filter(queue=query.queue_name, statuses=(JobStatus.SCHEDULED,))
    page = await queries.jobs(desk.store, chosen, limit=min(query.limit, _MAX_SCHEDULED))
    return page.jobs


@routes.get("/jobs/kinds")
async def kinds(desk: RequestContext, query: Kinds) -> tuple[str, ...]:
    """Kinds that workers have published."""
    known = {**await desk.store.queues.kinds()}
    wanted = query.queue_name
    return tuple(sorted(kind for kind, queue in known.items() if wanted in (None, queue)))


@routes.get("/jobs/inspect/{id}")
async def inspect(desk: RequestContext, id: JobId) -> Inspected:
    """One job with its payload, errors, log lines, and why it is not running."""
    view = await queries.job(desk.store, id, clock=desk.clock)
    return Inspected(row=view, payload=view.payload, error_history=view.errors)


async def _page(
    desk: RequestContext, chosen: JobFilter, limit: int, after: str | None, offset: int
) -> Listed:
    plain, rest = chosen.plain(), chosen.rest()
    if rest is not None:
        if offset:
            raise BadRequest("offset", "offset: a search goes on by its cursor, in after")
        found = await search(desk.store, plain, rest, limit=limit, after=after)
        return Listed(
            rows=found.jobs,
            total=None,
            more=found.next is not None,
            limit=limit,
            offset=0,
            looked=found.looked,
            next=found.next,
        )
    page, total = await asyncio.gather(
        _behind(desk, plain, limit, after, offset), queries.count(desk.store, plain)
    )
    return Listed(
        rows=page.jobs,
        total=total.jobs,
        more=total.more,
        limit=limit,
        offset=offset,
        looked=None,
        next=page.next,
        stopped=page.stopped,
    )


async def _behind(
    desk: RequestContext, chosen: Filter, limit: int, after: str | None, offset: int
) -> JobsPage:
    """A page behind so many jobs, which are walked over by cursor."""
    while offset:
        step = min(offset, _STEP)
        skipped = await desk.store.jobs.page(chosen, limit=step, after=after)
        offset -= len(skipped.jobs)
        after = skipped.next
        if after is None or (skipped.stopped and offset):
            return JobsPage(jobs=(), next=after, stopped=skipped.stopped)
    return await queries.jobs(desk.store, chosen, limit=limit, after=after)
