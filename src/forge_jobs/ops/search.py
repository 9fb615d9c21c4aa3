"""Searching what no index knows: pieces of payloads, and several queues or kinds at once.

A search looks through the newest jobs of a filter, a bounded number per call, and says how many it
has looked at; its cursor goes on behind the last one. Secret-looking values are not found.
"""

from typing import Final

import msgspec
from msgspec.structs import replace

from forge_jobs.core.job import JobRecord
from forge_jobs.core.selection import Cursor, Filter
from forge_jobs.store.store import Store

from .views import JobLine, View, job_line

MAX_LOOK: Final = 5_000
_STEP: Final = 500


class Found(View, frozen=True, kw_only=True):
    """What a search came upon, newest first; ``next`` goes on where it stopped."""

    jobs: tuple[JobLine, ...]
    looked: int
    next: str | None


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What the jobs of a filter must also be; empty conditions hold for all of them."""

    payload: str = ""
    queues: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()

    def fits(self, record: JobRecord) -> bool:
        """Whether a job is meant."""
        if self.queues and record.queue not in self.queues:
            return False
        return not self.kinds or record.kind in self.kinds


async def search(
    store: Store,
    filter: Filter,
    wanted: Wanted,
    *,
    limit: int = 50,
    after: Cursor | None = None,
    most: int = MAX_LOOK,
) -> Found:
    """Up to ``limit`` jobs among the next ``most`` of the filter."""
    if wanted.payload:
        filter = replace(filter, payload=wanted.payload)
    if not wanted.queues and not wanted.kinds:
        page = await store.jobs.page(filter, limit=limit, after=after)
        lines = tuple(job_line(record) for record in page.jobs)
        return Found(jobs=lines, looked=page.rows_read, next=page.next)
    found: list[JobLine] = []
    looked = 0
    while looked < most:
        step = min(_STEP, most - looked)
        page = await store.jobs.page(filter, limit=step, after=after)
        for place, record in enumerate(page.jobs, 1):
            if wanted.fits(record):
                found.append(job_line(record))
            if len(found) == limit and place < len(page.jobs):
                # the cursor of a page lies behind its last job: ask for one that ends here
                short = await store.jobs.page(filter, limit=place, after=after)
                return Found(jobs=tuple(found), looked=looked + place, next=short.next)
        looked += page.rows_read
        after = page.next
        if after is None or page.stopped or len(found) == limit:
            break
    return Found(jobs=tuple(found), looked=looked, next=after)
