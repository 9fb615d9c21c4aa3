"""Compares the counters of a store (counts, minutes, totals) with its job rows.

For a store without cancelled, manually retried, deleted or purged jobs: then every counter follows
from the rows, no matter how many processes were killed.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterator

from forge_jobs import Forge, JobRecord, JobStatus
from forge_jobs.core.counters import Count, Minute, merge_minutes, sum_totals
from forge_jobs.core.error_groups import ErrorGroup
from forge_jobs.core.histogram import histogram, merged
from forge_jobs.core.instant import MINUTE, SECOND
from forge_jobs.core.selection import Filter
from forge_jobs.store.store import Store

_FAR = 1 << 60
_PAGE = 500
_ENDS = {JobStatus.DONE: "done", JobStatus.DEAD: "dead", JobStatus.CANCELLED: "cancelled"}


def differences(url: str, *, parking: bool = False) -> list[str]:
    """The differences between counters and rows, before and after the roll-up. ``parking``: runs
    that end with a sleep or a wait count as released, and have times."""
    return asyncio.run(_differences(url, parking=parking))


async def _differences(url: str, *, parking: bool) -> list[str]:
    async with Forge(url) as forge:
        store = await forge.aready()
        jobs = await every_job(store)
        found = await compare(store, jobs, "as found", parking=parking)
        while await store.metrics.roll_up(limit=1_000):
            pass
        return [*found, *await compare(store, jobs, "rolled up", parking=parking)]


async def every_job(store: Store) -> list[JobRecord]:
    """All jobs, page by page."""
    page = await store.jobs.page(Filter(), limit=_PAGE)
    jobs = list(page.jobs)
    while page.next is not None:
        page = await store.jobs.page(Filter(), limit=_PAGE, after=page.next)
        jobs += page.jobs
    return jobs


async def compare(
    store: Store, jobs: list[JobRecord], when: str, *, parking: bool = False
) -> list[str]:
    """Compare the current counters with these rows."""
    metrics = store.metrics
    counts = await metrics.counts()
    minutes = await metrics.minutes(since=0, until=_FAR)
    totals = await metrics.totals()
    groups = await store.error_groups.seen()
    found = [
        *find_differences(jobs, counts, minutes, totals, parking=parking),
        *error_group_differences(jobs, groups),
    ]
    return [f"{when}: {words}" for words in found]


def find_differences(
    jobs: list[JobRecord],
    counts: list[Count],
    minutes: list[Minute],
    totals: list[Minute],
    *,
    parking: bool = False,
) -> Iterator[str]:
    """Every difference, as text."""
    rows = Counter((job.queue, job.status) for job in jobs)
    counted = {(count.queue, count.status): count.jobs for count in counts if count.jobs}
    if counted != dict(rows):
        yield f"counts say {counted}, rows say {dict(rows)}"
    yield from _minutes(jobs, minutes)
    if [_comparable(part) for part in sum_totals(minutes)] != [
        _comparable(part) for part in totals
    ]:
        yield "the totals are not the sum of the minutes"
    yield from _flow(jobs, merge_minutes(totals, at=0, queue="", kind=""), parking=parking)


def error_group_differences(jobs: list[JobRecord], groups: list[ErrorGroup]) -> Iterator[str]:
    """Every failed attempt that a row remembers is counted once in its group."""
    rows: Counter[tuple[str, str]] = Counter(
        (error.group, job.kind) for job in jobs for error in job.errors if error.group is not None
    )
    counted = {(group.id, kind): count for group in groups for kind, count in group.kinds.items()}
    if counted != dict(rows):
        yield f"error groups say {counted}, rows say {dict(rows)}"


def _minutes(jobs: list[JobRecord], minutes: list[Minute]) -> Iterator[str]:
    rows: dict[tuple[int, str, str], Counter[str]] = defaultdict(Counter)
    durations: dict[tuple[int, str, str], list[float]] = defaultdict(list)
    for job in jobs:
        rows[_minute(job.enqueued_at), job.queue, job.kind]["enqueued"] += 1
        if job.finished_at is not None:
            name = (_minute(job.finished_at), job.queue, job.kind)
            rows[name][_ENDS[job.status]] += 1
            if job.status is JobStatus.DONE:
                durations[name].append((job.finished_at - job.enqueued_at) / SECOND)
    recorded = {(part.at, part.queue, part.kind): part for part in minutes}
    for name in sorted({*rows, *recorded}):
        part = recorded.get(name) or Minute(at=name[0], queue=name[1], kind=name[2])
        for field in ("enqueued", "done", "dead", "cancelled"):
            if getattr(part, field) != rows[name][field]:
                yield f"{name}: {field} is {getattr(part, field)}, rows say {rows[name][field]}"
        if part.took.buckets != histogram(durations[name]).buckets:
            yield f"{name}: total times {part.took.buckets} do not follow from the rows"


def _flow(jobs: list[JobRecord], whole: Minute, *, parking: bool) -> Iterator[str]:
    """Claims that were neither released nor throttled are attempts, and each has one finish."""
    attempts = sum(job.attempts for job in jobs)
    spent = whole.started - whole.released - whole.throttled
    if spent != attempts:
        yield f"{spent} claims were spent, rows say {attempts} attempts"
    running = sum(job.status is JobStatus.RUNNING for job in jobs)
    ended = whole.done + whole.retried + whole.dead
    if spent - ended != running:
        yield f"{spent} claims, {ended} ends, {running} running"
    most = ended + whole.throttled + (whole.released if parking else 0)
    if not whole.done <= whole.ran.count == whole.waited.count <= most:
        yield f"{whole.ran.count} run times, {whole.waited.count} wait times of {ended} ends"


def _comparable(part: Minute) -> tuple[object, ...]:
    spans = (part.waited, part.ran, part.took)
    counts = [getattr(part, name) for name in Minute.__struct_fields__[3:11]]
    return (part.queue, part.kind, *counts, *(merged([span]).buckets for span in spans))


def _minute(at: int) -> int:
    return at - at % MINUTE
