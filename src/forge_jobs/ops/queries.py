"""Read-only queries: the overview, queues, workers, pages of jobs and one job in full.

No query scans all jobs: counts come from the counters, lists are paginated by cursor, counts by
filter stop at a cap.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, cast

from msgspec.structs import replace

from forge_jobs.config import DEFAULT_QUEUE_WORKERS
from forge_jobs.core import payload as json_payload
from forge_jobs.core.counters import CappedCount, Count, Minute, merge_minutes
from forge_jobs.core.errors import BadOption, NotFound
from forge_jobs.core.ids import decode, is_short
from forge_jobs.core.instant import MINUTE, SECOND, Instant, to_datetime
from forge_jobs.core.job import JobRecord, LogLine
from forge_jobs.core.parent import without_parent
from forge_jobs.core.selection import Cursor, Filter, Order
from forge_jobs.core.status import WAITING, JobStatus
from forge_jobs.kit import redact
from forge_jobs.kit.clock import SYSTEM_CLOCK, Clock
from forge_jobs.kit.redact import HIDDEN, is_secret_name, prose
from forge_jobs.store.processes import ProcessRecord
from forge_jobs.store.queues import QueueConfig
from forge_jobs.store.store import Store

from .held import closed_scopes
from .metrics import duration_stats
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
    job_summary,
    optional_datetime,
)
from .waits import job_waits, sendable, wait_view
from .why import queue_blocks, why

COUNT_CAP = 10_000
MAX_PAGE = 1_000
_WAITING_STATES = (*WAITING, JobStatus.SUSPENDED)


async def overview(store: Store, *, minutes: int = 10, clock: Clock = SYSTEM_CLOCK) -> Overview:
    """Counts, lag, queues, workers and the last minutes, including the current one."""
    now = await store_now(store, clock)
    since = now // MINUTE * MINUTE - (minutes - 1) * MINUTE
    queue_views, worker_views, recent = await asyncio.gather(
        queues(store, clock=clock),
        workers(store, clock=clock),
        store.metrics.minutes(since=since, until=now // MINUTE * MINUTE + MINUTE),
    )
    totals = {status: sum(q.counts[status] for q in queue_views) for status in JobStatus}
    return Overview(
        at=to_datetime(now),
        store=store.maintenance.describe(),
        counts=totals,
        lag_s=max((queue.lag_s for queue in queue_views), default=0.0),
        queues=queue_views,
        workers=worker_views,
        minutes=_minute_views(recent, since, minutes),
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
    configs_by_name = {config.name: config for config in configs}
    counts_by_queue = _counts_by_queue(counts)
    serving: dict[str, list[ProcessRecord]] = {}
    for process in processes:
        for name in process.queues:
            serving.setdefault(name, []).append(process)
    busy = (name for name, queue_counts in counts_by_queue.items() if any(queue_counts.values()))
    names = sorted({*configs_by_name, *busy, *oldest, *serving})
    return tuple(
        _queue_view(
            configs_by_name.get(name) or QueueConfig(name=name, slots=DEFAULT_QUEUE_WORKERS),
            configured=name in configs_by_name,
            counts=counts_by_queue.get(name) or dict.fromkeys(JobStatus, 0),
            oldest=oldest.get(name),
            serving=serving.get(name, []),
            now=now,
            closed=tuple(closed.get(name, ())),
        )
        for name in names
    )


async def queue(store: Store, name: str, *, clock: Clock = SYSTEM_CLOCK) -> QueueView:
    """One queue; NotFound if it has neither settings nor jobs nor a worker."""
    for view in await queues(store, clock=clock):
        if view.name == name:
            return view
    raise NotFound(f"there is no queue {name!r}: see `forge queues list`")


def unserved_queues(queues: Sequence[QueueView]) -> tuple[str, ...]:
    """Queues with settings or waiting jobs that no live worker serves. Queues without slots are
    left out: scripts pull from them."""
    return tuple(
        queue.name
        for queue in queues
        if not queue.workers
        and queue.slots > 0
        and (queue.configured or any(queue.counts[status] for status in _WAITING_STATES))
    )


async def workers(store: Store, *, clock: Clock = SYSTEM_CLOCK) -> tuple[WorkerView, ...]:
    """All live worker processes, by label."""
    now = await store_now(store, clock)
    views = [_worker_view(process, now) for process in await store.processes.all()]
    return tuple(sorted(views, key=lambda view: (view.label, view.host_id)))


async def jobs(
    store: Store,
    filter: Filter,
    *,
    limit: int = 50,
    after: Cursor | None = None,
    order: Order = Order.NEWEST,
) -> JobsPage:
    """One page of jobs, by default newest first."""
    if not 1 <= limit <= MAX_PAGE:
        raise BadOption(f"limit={limit} must lie between 1 and {MAX_PAGE:,}: page with the cursor")
    page = await store.jobs.page(filter, limit=limit, after=after, order=order)
    summaries = tuple(job_summary(record) for record in page.jobs)
    return JobsPage(jobs=summaries, next=page.next, stopped=page.stopped, looked=page.rows_read)


async def jobs_and_count(
    store: Store,
    filter: Filter,
    *,
    limit: int = 50,
    after: Cursor | None = None,
    order: Order = Order.NEWEST,
) -> tuple[JobsPage, CappedCount]:
    """A page, and how many jobs match in all. No count is made if the first page holds every match,
    or if a bounded read stopped without a match."""
    page = await jobs(store, filter, limit=limit, after=after, order=order)
    if page.stopped and not page.jobs:
        return page, CappedCount(0, True)
    if after is None and (page.stopped or page.next is None):
        return page, CappedCount(len(page.jobs), page.stopped)
    return page, await count(store, filter)


async def count(store: Store, filter: Filter, *, cap: int = COUNT_CAP) -> CappedCount:
    """Count the jobs that match, up to ``cap``."""
    return await store.metrics.count(filter, cap=cap)


async def job(
    store: Store, job_id: str, *, reveal: bool = False, clock: Clock = SYSTEM_CLOCK
) -> JobView:
    """One job in full, with its log lines and why it is not running.

    Without ``reveal`` values under secret-looking names are redacted. NotFound for an unknown id.
    """
    record = await get_record(store, job_id)
    lines, reasons, processes, waits, now = await asyncio.gather(
        store.metrics.logs(record.id),
        why(store, record, clock=clock),
        store.processes.all(),
        job_waits(store, record),
        store_now(store, clock),
    )
    worker = next((process.label for process in processes if process.key == record.owner), None)
    view = _job_view(record, lines, worker=worker, reasons=reasons, reveal=reveal, now=now)
    return replace(view, waits=tuple(wait_view(wait) for wait in sendable(waits)))


async def get_record(store: Store, job_id: str) -> JobRecord:
    """The record of a public id or its last 8 characters; BadOption for a malformed id, NotFound
    for an unknown one."""
    if decode(job_id) is None and not is_short(job_id):
        raise BadOption(
            f"{job_id!r} is not a job id: it has 26 letters and digits, or the last 8 of them"
        )
    record = await store.jobs.get(job_id.upper())
    if record is None:
        raise NotFound(f"there is no job {job_id} in this store: it was deleted, or is elsewhere")
    return record


def _counts_by_queue(counts: Sequence[Count]) -> dict[str, dict[JobStatus, int]]:
    counts_by_queue: dict[str, dict[JobStatus, int]] = {}
    for entry in counts:
        queue_counts = counts_by_queue.setdefault(entry.queue, dict.fromkeys(JobStatus, 0))
        queue_counts[entry.status] += entry.jobs
    return counts_by_queue


def _queue_view(
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
        throttled_until=optional_datetime(gate.until) if gate.closed(now) else None,
        counts=counts,
        lag_s=_seconds_between(oldest, now),
        backoff_enabled=config.backoff_enabled,
        backoff_base_s=config.backoff_base_s,
        backoff_max_s=config.backoff_max_s,
        retain_done_s=config.retain_done_s,
        retain_dead_s=config.retain_dead_s,
        retain_cancelled_s=config.retain_cancelled_s,
        blocks=queue_blocks(name, config, serving, now),
        scopes_closed=closed,
    )


def _worker_view(process: ProcessRecord, now: Instant) -> WorkerView:
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
        beat_age_s=_seconds_between(process.beat_at, now),
        lease_s=process.lease_s,
    )


def _job_view(
    record: JobRecord,
    lines: Sequence[LogLine],
    *,
    worker: str | None,
    reasons: tuple[Reason, ...],
    reveal: bool,
    now: Instant,
) -> JobView:
    options = without_parent(record.options) or {}
    return JobView(
        id=record.id,
        kind=record.kind,
        queue=record.queue,
        status=record.status,
        why=reasons,
        payload=decode_redacted(record.payload, reveal),
        result=None if record.result is None else decode_redacted(record.result, reveal),
        priority=record.priority,
        attempts=record.attempts,
        max_attempts=record.max_attempts,
        crashes=record.crashes,
        throttles=record.throttles,
        enqueued_at=to_datetime(record.enqueued_at),
        run_at=to_datetime(record.run_at),
        started_at=optional_datetime(record.started_at),
        finished_at=optional_datetime(record.finished_at),
        expires_at=optional_datetime(record.expires_at),
        cancel_requested_at=optional_datetime(record.cancel_requested_at),
        timeout_s=record.timeout_s,
        ran_s=_ran_s(record, now),
        progress=record.progress,
        progress_note=_redacted(record.progress_note, reveal),
        last_error=_redacted(record.last_error, reveal),
        errors=tuple(
            ErrorView(
                at=to_datetime(error.at),
                attempt=error.attempt,
                message=_redacted(error.message, reveal) or "",
                traceback=error.traceback,
                group=error.group,
            )
            for error in record.errors
        ),
        logs=tuple(
            LogView(
                at=to_datetime(line.at),
                level=line.level,
                message=_redacted(line.message, reveal) or "",
            )
            for line in lines
        ),
        worker=worker,
        tags=record.tags,
        dedupe_key=record.dedupe_key,
        lane=record.lane,
        limit_key=record.limit_key,
        trace=record.trace,
        options=options if reveal else redact.value(options),
    )


def _redacted(text: str | None, reveal: bool) -> str | None:
    return text if reveal or text is None else prose(text)


def _ran_s(record: JobRecord, now: Instant) -> float | None:
    if record.started_at is None:
        return None
    if record.status is JobStatus.RUNNING:
        return _seconds_between(record.started_at, now)
    if record.finished_at is None:
        return None
    return _seconds_between(record.started_at, record.finished_at)


def decode_redacted(data: bytes, reveal: bool) -> Any:
    """Decode a payload or result; without ``reveal``, secret-looking values are redacted."""
    value = json_payload.decode(data)
    return value if reveal else redact.value(value)


def restore_redacted(value: Any, original: Any) -> Any:
    """Put the original secrets back into an edited value that ``decode_redacted`` returned."""
    if isinstance(value, dict) and isinstance(original, dict):
        fields, original_fields = cast("dict[str, Any]", value), cast("dict[str, Any]", original)
        return {
            name: original_fields[name]
            if name in original_fields and inner == HIDDEN and is_secret_name(name)
            else restore_redacted(inner, original_fields.get(name))
            for name, inner in fields.items()
        }
    if isinstance(value, list) and isinstance(original, list):
        items, original_items = cast("list[Any]", value), cast("list[Any]", original)
        return [
            restore_redacted(item, original_items[index] if index < len(original_items) else None)
            for index, item in enumerate(items)
        ]
    if isinstance(value, str) and isinstance(original, str) and value == prose(original):
        return original
    return cast("Any", value)


def _minute_views(entries: Sequence[Minute], since: Instant, length: int) -> tuple[MinuteView, ...]:
    by_minute: Mapping[Instant, list[Minute]] = {since + n * MINUTE: [] for n in range(length)}
    for entry in entries:
        if entry.at in by_minute:
            by_minute[entry.at].append(entry)
    return tuple(_minute_view(at, minutes) for at, minutes in by_minute.items())


def _minute_view(at: Instant, minutes: Sequence[Minute]) -> MinuteView:
    total = merge_minutes(minutes, at=at, queue="", kind="")
    waited, ran = duration_stats(total.waited), duration_stats(total.ran)
    return MinuteView(
        at=to_datetime(at),
        enqueued=total.enqueued,
        started=total.started,
        done=total.done,
        retried=total.retried,
        dead=total.dead,
        cancelled=total.cancelled,
        throttled=total.throttled,
        mean_run_s=ran.mean_s,
        run_p95_s=ran.p95_s,
        wait_p95_s=waited.p95_s,
    )


def _seconds_between(start: Instant | None, end: Instant) -> float:
    return 0.0 if start is None else round(max(0, end - start) / SECOND, 3)
