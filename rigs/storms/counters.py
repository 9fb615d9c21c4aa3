"""Whether the books tell what the rows tell: counters, minutes and totals against the jobs.

For a store in which nobody cancelled, retried by hand or deleted, and nothing was purged: then
every number in the books follows from the rows, however many processes were killed on the way.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterator

from forge_jobs import JobRecord, JobStatus, open_storage
from forge_jobs.core.counters import Count, Minute, merge_minutes, sum_totals
from forge_jobs.core.histogram import histogram, merged
from forge_jobs.core.instant import MINUTE, SECOND
from forge_jobs.core.selection import Filter
from forge_jobs.store.store import Store

_FAR = 1 << 60
_PAGE = 500
_ENDS = {JobStatus.DONE: "done", JobStatus.DEAD: "dead", JobStatus.CANCELLED: "cancelled"}


def differences(url: str) -> list[str]:
    """What the books of a store and its rows disagree about, read and folded."""
    return asyncio.run(_differences(url))


async def _differences(url: str) -> list[str]:
    store = open_storage(url)
    await store.open()
    try:
        jobs = await every_job(store)
        found = await compared(store, jobs, "as found")
        while await store.metrics.roll_up(limit=1_000):
            pass
        return [*found, *await compared(store, jobs, "folded")]
    finally:
        await store.close()


async def every_job(store: Store) -> list[JobRecord]:
    """All jobs, page by page."""
    page = await store.jobs.page(Filter(), limit=_PAGE)
    jobs = list(page.jobs)
    while page.next is not None:
        page = await store.jobs.page(Filter(), limit=_PAGE, after=page.next)
        jobs += page.jobs
    return jobs


async def compared(store: Store, jobs: list[JobRecord], when: str) -> list[str]:
    """The books of this moment against these rows."""
    metrics = store.metrics
    counts = await metrics.counts()
    minutes = await metrics.minutes(since=0, until=_FAR)
    totals = await metrics.totals()
    return [f"{when}: {words}" for words in judged(jobs, counts, minutes, totals)]


def judged(
    jobs: list[JobRecord], counts: list[Count], minutes: list[Minute], totals: list[Minute]
) -> Iterator[str]:
    """Every difference, in words."""
    rows = Counter((job.queue, job.status) for job in jobs)
    told = {(count.queue, count.status): count.jobs for count in counts if count.jobs}
    if told != dict(rows):
        yield f"counts say {told}, rows say {dict(rows)}"
    yield from _minutes(jobs, minutes)
    if [_plain(part) for part in sum_totals(minutes)] != [_plain(part) for part in totals]:
        yield "the totals are not the sum of the minutes"
    yield from _flow(jobs, merge_minutes(totals, at=0, queue="", kind=""))


def _minutes(jobs: list[JobRecord], minutes: list[Minute]) -> Iterator[str]:
    rows: dict[tuple[int, str, str], Counter[str]] = defaultdict(Counter)
    took: dict[tuple[int, str, str], list[float]] = defaultdict(list)
    for job in jobs:
        rows[_minute(job.enqueued_at), job.queue, job.kind]["enqueued"] += 1
        if job.finished_at is not None:
            name = (_minute(job.finished_at), job.queue, job.kind)
            rows[name][_ENDS[job.status]] += 1
            if job.status is JobStatus.DONE:
                took[name].append((job.finished_at - job.enqueued_at) / SECOND)
    books = {(part.at, part.queue, part.kind): part for part in minutes}
    for name in sorted({*rows, *books}):
        part = books.get(name) or Minute(at=name[0], queue=name[1], kind=name[2])
        for field in ("enqueued", "done", "dead", "cancelled"):
            if getattr(part, field) != rows[name][field]:
                yield f"{name}: {field} is {getattr(part, field)}, rows say {rows[name][field]}"
        if part.took.buckets != histogram(took[name]).buckets:
            yield f"{name}: total times {part.took.buckets} do not follow from the rows"


def _flow(jobs: list[JobRecord], whole: Minute) -> Iterator[str]:
    """Claims that were neither handed back nor throttled are attempts, and each ended once."""
    attempts = sum(job.attempts for job in jobs)
    spent = whole.started - whole.released - whole.throttled
    if spent != attempts:
        yield f"{spent} claims were spent, rows say {attempts} attempts"
    running = sum(job.status is JobStatus.RUNNING for job in jobs)
    ended = whole.done + whole.retried + whole.dead
    if spent - ended != running:
        yield f"{spent} claims, {ended} ends, {running} running"
    if not whole.done <= whole.ran.count == whole.waited.count <= ended + whole.throttled:
        yield f"{whole.ran.count} run times, {whole.waited.count} wait times of {ended} ends"


def _plain(part: Minute) -> tuple[object, ...]:
    spans = (part.waited, part.ran, part.took)
    counts = [getattr(part, name) for name in Minute.__struct_fields__[3:11]]
    return (part.queue, part.kind, *counts, *(merged([span]).buckets for span in spans))


def _minute(at: int) -> int:
    return at - at % MINUTE
