"""Reading: the overview, queues, workers, pages of jobs and one job in full.

Nothing here scans the jobs: counts come from the books, lists by cursor, counts by filter stop at a
cap.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, cast

from forge_jobs.config import DEFAULT_QUEUE_WORKERS
from forge_jobs.core import payload as json_payload
from forge_jobs.core.counters import CappedCount, Count, Minute, merge_minutes
from forge_jobs.core.errors import BadOption, NotFound
from forge_jobs.core.ids import decode
from forge_jobs.core.instant import MINUTE, SECOND, Instant, to_datetime
from forge_jobs.core.job import JobRecord, LogLine
from forge_jobs.core.selection import Cursor, Filter
from forge_jobs.core.status import JobStatus
from forge_jobs.kit import redact
from forge_jobs.kit.clock import SYSTEM_CLOCK, Clock
from forge_jobs.kit.redact import HIDDEN, looks_secret, prose
from forge_jobs.store.processes import ProcessRecord
from forge_jobs.store.queues import QueueConfig
from forge_jobs.store.store import Store

from .held import closed_scopes
from .metrics import spans
from .store_time import store_now
from .views import (
    ErrorView,
    JobsPage,
    JobView,
    LogView,
    MinuteView,
    Overview,
    QueueView,
    Reason,
    WorkerView,
    job_line,
    moment,
)
from .why import queue_blocks, why

COUNT_CAP = 10_000
MAX_PAGE = 1_000
_WAITING = (JobStatus.PENDING, JobStatus.SCHEDULED, JobStatus.HELD, JobStatus.FAILED)


async def overview(store: Store, *, minutes: int = 10, clock: Clock = SYSTEM_CLOCK) -> Overview:
    """Counts, lag, queues, workers and the last whole minutes with the present one."""
    now = await store_now(store, clock)
    since = now // MINUTE * MINUTE - (minutes - 1) * MINUTE
    seen, people, told = await asyncio.gather(
        queues(store, clock=clock),
        workers(store, clock=clock),
        store.metrics.minutes(since=since, until=now // MINUTE * MINUTE + MINUTE),
    )
    totals = {status: sum(q.counts[status] for q in seen) for status in JobStatus}
    return Overview(
        at=to_datetime(now),
        store=store.maintenance.describe(),
        counts=totals,
        lag_s=max((queue.lag_s for queue in seen), default=0.0),
        queues=seen,
        workers=people,
        minutes=_by_minute(told, since, minutes),
    )


async def queues(store: Store, *, clock: Clock = SYSTEM_CLOCK) -> tuple[QueueView, ...]:
    """Every queue with settings, jobs or a worker, by name."""
    configs, counts, oldest, processes = await asyncio.gather(
        store.queues.all(),
        store.metrics.counts(),
        store.metrics.oldest_due(),
        store.processes.all(),
    )
    now = await store_now(store, clock)
    closed = await closed_scopes(store, now)
    known = {config.name: config for config in configs}
    tallies = _by_queue(counts)
    serving: dict[str, list[ProcessRecord]] = {}
    for process in processes:
        for name in process.queues:
            serving.setdefault(name, []).append(process)
    busy = (name for name, tally in tallies.items() if any(tally.values()))
    names = sorted({*known, *busy, *oldest, *serving})
    return tuple(
        _queue(
            known.get(name) or QueueConfig(name=name, slots=DEFAULT_QUEUE_WORKERS),
            configured=name in known,
            counts=tallies.get(name) or dict.fromkeys(JobStatus, 0),
            oldest=oldest.get(name),
            serving=serving.get(name, []),
            now=now,
            closed=tuple(closed.get(name, ())),
        )
        for name in names
    )


async def queue(store: Store, name: str, *, clock: Clock = SYSTEM_CLOCK) -> QueueView:
    """One queue; NotFound when nothing knows it."""
    for view in await queues(store, clock=clock):
        if view.name == name:
            return view
    raise NotFound(f"there is no queue {name!r}: see `forge queues list`")


def unserved(seen: Sequence[QueueView]) -> tuple[str, ...]:
    """Queues that are set up or in which jobs wait, and that no living worker serves. A queue
    without slots is not meant for workers: scripts pull from it."""
    return tuple(
        queue.name
        for queue in seen
        if not queue.workers
        and queue.slots > 0
        and (queue.configured or any(queue.counts[status] for status in _WAITING))
    )


async def workers(store: Store, *, clock: Clock = SYSTEM_CLOCK) -> tuple[WorkerView, ...]:
    """All living worker processes, by label."""
    now = await store_now(store, clock)
    views = [_worker(process, now) for process in await store.processes.all()]
    return tuple(sorted(views, key=lambda view: (view.label, view.host_id)))


async def jobs(
    store: Store, filter: Filter, *, limit: int = 50, after: Cursor | None = None
) -> JobsPage:
    """One page of jobs, newest first."""
    if not 1 <= limit <= MAX_PAGE:
        raise BadOption(f"limit={limit} must lie between 1 and {MAX_PAGE:,}: page with the cursor")
    page = await store.jobs.page(filter, limit=limit, after=after)
    lines = tuple(job_line(record) for record in page.jobs)
    return JobsPage(jobs=lines, next=page.next, stopped=page.stopped, looked=page.rows_read)


async def listed(
    store: Store, filter: Filter, *, limit: int = 50, after: Cursor | None = None
) -> tuple[JobsPage, CappedCount]:
    """A page and how many jobs match in all; what the first page has seen is not counted again,
    nor is anything for a look that found nothing and goes on."""
    page = await jobs(store, filter, limit=limit, after=after)
    if page.stopped and not page.jobs:
        return page, CappedCount(0, True)
    if after is None and (page.stopped or page.next is None):
        return page, CappedCount(len(page.jobs), page.stopped)
    return page, await count(store, filter)


async def count(store: Store, filter: Filter, *, cap: int = COUNT_CAP) -> CappedCount:
    """How many jobs match, looking at no more than ``cap``."""
    return await store.metrics.count(filter, cap=cap)


async def job(
    store: Store, job_id: str, *, reveal: bool = False, clock: Clock = SYSTEM_CLOCK
) -> JobView:
    """One job in full, with the lines it wrote and why it is not running.

    Without ``reveal`` values under secret-looking names are hidden. NotFound for an unknown id.
    """
    record = await existing(store, job_id)
    lines, reasons, processes, now = await asyncio.gather(
        store.metrics.logs(record.id),
        why(store, record, clock=clock),
        store.processes.all(),
        store_now(store, clock),
    )
    worker = next((process.label for process in processes if process.key == record.owner), None)
    return _job(record, lines, worker=worker, reasons=reasons, reveal=reveal, now=now)


async def existing(store: Store, job_id: str) -> JobRecord:
    """The record behind a public id, or an error that says what is wrong with the id."""
    if decode(job_id) is None:
        raise BadOption(f"{job_id!r} is not a job id: it has 26 letters and digits")
    record = await store.jobs.get(job_id.upper())
    if record is None:
        raise NotFound(f"there is no job {job_id} in this store: it was deleted, or is elsewhere")
    return record


def _by_queue(counts: Sequence[Count]) -> dict[str, dict[JobStatus, int]]:
    tallies: dict[str, dict[JobStatus, int]] = {}
    for entry in counts:
        tally = tallies.setdefault(entry.queue, dict.fromkeys(JobStatus, 0))
        tally[entry.status] += entry.jobs
    return tallies


def _queue(
    config: QueueConfig,
    *,
    configured: bool,
    counts: Mapping[JobStatus, int],
    oldest: Instant | None,
    serving: Sequence[ProcessRecord],
    now: Instant,
    closed: tuple[Reason, ...] = (),
) -> QueueView:
    name, gate = config.name, config.gate
    return QueueView(
        name=name,
        configured=configured,
        slots=config.slots,
        slots_live=sum(process.slots.get(name, 0) for process in serving),
        workers=len(serving),
        paused=config.paused,
        throttled_until=moment(gate.until) if gate.closed(now) else None,
        counts=counts,
        lag_s=_span_s(oldest, now),
        backoff_enabled=config.backoff_enabled,
        backoff_base_s=config.backoff_base_s,
        backoff_max_s=config.backoff_max_s,
        retain_done_s=config.retain_done_s,
        retain_dead_s=config.retain_dead_s,
        retain_cancelled_s=config.retain_cancelled_s,
        blocks=queue_blocks(name, config, serving, now),
        scopes_closed=closed,
    )


def _worker(process: ProcessRecord, now: Instant) -> WorkerView:
    return WorkerView(
        host_id=process.host_id,
        label=process.label,
        hostname=process.hostname,
        pid=process.pid,
        version=process.version,
        queues=process.queues,
        slots=dict(process.slots),
        running=process.running,
        memory_bytes=process.memory_bytes,
        cores=process.cores,
        disk_share=process.disk_share,
        quiet=process.quiet,
        started_at=to_datetime(process.started_at),
        beat_at=to_datetime(process.beat_at),
        beat_age_s=_span_s(process.beat_at, now),
        lease_s=process.lease_s,
    )


def _job(
    record: JobRecord,
    lines: Sequence[LogLine],
    *,
    worker: str | None,
    reasons: tuple[Reason, ...],
    reveal: bool,
    now: Instant,
) -> JobView:
    return JobView(
        id=record.id,
        kind=record.kind,
        queue=record.queue,
        status=record.status,
        why=reasons,
        payload=shown(record.payload, reveal),
        result=None if record.result is None else shown(record.result, reveal),
        priority=record.priority,
        attempts=record.attempts,
        max_attempts=record.max_attempts,
        crashes=record.crashes,
        throttles=record.throttles,
        enqueued_at=to_datetime(record.enqueued_at),
        run_at=to_datetime(record.run_at),
        started_at=moment(record.started_at),
        finished_at=moment(record.finished_at),
        expires_at=moment(record.expires_at),
        cancel_requested_at=moment(record.cancel_requested_at),
        timeout_s=record.timeout_s,
        ran_s=_ran_s(record, now),
        progress=record.progress,
        progress_note=_told(record.progress_note, reveal),
        last_error=_told(record.last_error, reveal),
        errors=tuple(
            ErrorView(
                at=to_datetime(error.at),
                attempt=error.attempt,
                message=_told(error.message, reveal) or "",
            )
            for error in record.errors
        ),
        logs=tuple(
            LogView(
                at=to_datetime(line.at), level=line.level, message=_told(line.message, reveal) or ""
            )
            for line in lines
        ),
        worker=worker,
        tags=record.tags,
        dedupe_key=record.dedupe_key,
        lane=record.lane,
        limit_key=record.limit_key,
        trace=record.trace,
    )


def _told(text: str | None, reveal: bool) -> str | None:
    return text if reveal or text is None else prose(text)


def _ran_s(record: JobRecord, now: Instant) -> float | None:
    if record.started_at is None:
        return None
    if record.status is JobStatus.RUNNING:
        return _span_s(record.started_at, now)
    if record.finished_at is None:
        return None
    return _span_s(record.started_at, record.finished_at)


def shown(data: bytes, reveal: bool) -> Any:
    """A payload or result as people see it; without ``reveal``, secret-looking values hidden."""
    value = json_payload.decode(data)
    return value if reveal else redact.value(value)


def unhidden(value: Any, original: Any) -> Any:
    """A value that was edited as ``shown``, with what was hidden put back."""
    if isinstance(value, dict) and isinstance(original, dict):
        fields, before = cast("dict[str, Any]", value), cast("dict[str, Any]", original)
        return {
            name: before[name]
            if name in before and inner == HIDDEN and looks_secret(name)
            else unhidden(inner, before.get(name))
            for name, inner in fields.items()
        }
    if isinstance(value, list) and isinstance(original, list):
        items, known = cast("list[Any]", value), cast("list[Any]", original)
        return [
            unhidden(item, known[place] if place < len(known) else None)
            for place, item in enumerate(items)
        ]
    if isinstance(value, str) and isinstance(original, str) and value == prose(original):
        return original
    return cast("Any", value)


def _by_minute(told: Sequence[Minute], since: Instant, length: int) -> tuple[MinuteView, ...]:
    rows: Mapping[Instant, list[Minute]] = {since + n * MINUTE: [] for n in range(length)}
    for entry in told:
        if entry.at in rows:
            rows[entry.at].append(entry)
    return tuple(_minute(at, entries) for at, entries in rows.items())


def _minute(at: Instant, entries: Sequence[Minute]) -> MinuteView:
    whole = merge_minutes(entries, at=at, queue="", kind="")
    waited, ran = spans(whole.waited), spans(whole.ran)
    return MinuteView(
        at=to_datetime(at),
        enqueued=whole.enqueued,
        started=whole.started,
        done=whole.done,
        retried=whole.retried,
        dead=whole.dead,
        cancelled=whole.cancelled,
        throttled=whole.throttled,
        mean_run_s=ran.mean_s,
        run_p95_s=ran.p95_s,
        wait_p95_s=waited.p95_s,
    )


def _span_s(start: Instant | None, end: Instant) -> float:
    return 0.0 if start is None else round(max(0, end - start) / SECOND, 3)
