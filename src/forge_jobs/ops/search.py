"""Searches by conditions that no index serves: text in payloads, several queues or kinds at once.

A call reads a bounded number of jobs of a filter, newest first, and returns how many it read and a
cursor to continue. Secret-looking values in payloads are not searched.
"""

from typing import Final

import msgspec
from msgspec.structs import replace

from forge_jobs.core.job import JobRecord
from forge_jobs.core.selection import Cursor, Filter, Order
from forge_jobs.store.store import Store

from .views import JobSummary, View, job_summary

MAX_JOBS_READ: Final = 5_000
_MAX_BATCH: Final = 500


class SearchPage(View, frozen=True, kw_only=True):
    """Matching jobs, newest first; ``next`` continues where the search stopped."""

    jobs: tuple[JobSummary, ...]
    jobs_read: int
    next: str | None


class SearchConditions(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions beyond the filter; an empty one holds for every job."""

    payload: str = ""
    queues: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()

    def matches(self, record: JobRecord) -> bool:
        """Whether the job has one of the queues and one of the kinds."""
        if self.queues and record.queue not in self.queues:
            return False
        return not self.kinds or record.kind in self.kinds


async def search(
    store: Store,
    filter: Filter,
    conditions: SearchConditions,
    *,
    limit: int = 50,
    after: Cursor | None = None,
    max_read: int = MAX_JOBS_READ,
    order: Order = Order.NEWEST,
) -> SearchPage:
    """Up to ``limit`` matches among the next ``max_read`` jobs of the filter."""
    if conditions.payload:
        filter = replace(filter, payload=conditions.payload)
    if not conditions.queues and not conditions.kinds:
        page = await store.jobs.page(filter, limit=limit, after=after, order=order)
        summaries = tuple(job_summary(record) for record in page.jobs)
        return SearchPage(jobs=summaries, jobs_read=page.rows_read, next=page.next)
    found: list[JobSummary] = []
    jobs_read = 0
    while jobs_read < max_read:
        batch_size = min(_MAX_BATCH, max_read - jobs_read)
        page = await store.jobs.page(filter, limit=batch_size, after=after, order=order)
        for position, record in enumerate(page.jobs, 1):
            if conditions.matches(record):
                found.append(job_summary(record))
            if len(found) == limit and position < len(page.jobs):
                # a cursor points behind the last job of its page: read a page that ends here
                prefix = await store.jobs.page(filter, limit=position, after=after, order=order)
                return SearchPage(
                    jobs=tuple(found), jobs_read=jobs_read + position, next=prefix.next
                )
        jobs_read += page.rows_read
        after = page.next
        if after is None or page.stopped or len(found) == limit:
            break
    return SearchPage(jobs=tuple(found), jobs_read=jobs_read, next=after)
