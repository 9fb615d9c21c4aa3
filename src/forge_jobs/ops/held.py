"""Explains which lane, limit or scope keeps a job from starting; a part of ``why``."""

from typing import Final

from forge_jobs.core.instant import Instant, to_datetime
from forge_jobs.core.job import JobRecord
from forge_jobs.core.limits import (
    LANE,
    TASK,
    Limit,
    next_start_at,
    queue_limit,
    rate_text,
    task_limit,
)
from forge_jobs.core.selection import Filter
from forge_jobs.core.status import JobStatus
from forge_jobs.store.store import Store

from .views import JobSummary, Reason, job_summary

_HOLDERS_READ: Final = 500
_HOLDERS_SHOWN: Final = 20


async def held_reason(store: Store, record: JobRecord) -> Reason:
    """Why a job is held: by its lane or by its limit key."""
    bucket_name = (record.limit_bucket or record.limit_key or "").removeprefix("new:")
    bucket = await store.limits.bucket(bucket_name)
    if bucket_name.startswith(LANE):
        behind = "" if bucket.first in (None, record.id) else f" behind job {bucket.first}"
        remedy = None if not behind else f"forge jobs show {bucket.first}"
        return Reason(code="lane", text=f"it waits in lane {record.lane!r}{behind}", remedy=remedy)
    capacity = (
        "its limit"
        if bucket.capacity is None
        else f"{bucket.taken} of {bucket.capacity} running or next"
    )
    task = f"task:{record.kind}"
    return Reason(
        code="held",
        text=f"its limit {bucket_name!r} is full ({capacity}); "
        "it moves up when a job of that limit ends",
        remedy=f"forge limits set {task} --concurrency {(bucket.capacity or 1) * 2}",
    )


async def holders(store: Store, record: JobRecord) -> tuple[JobSummary, ...]:
    """The jobs that take the slots for which a held job waits, the running ones first, at most 20.

    Looked for among the newest 500 running and pending jobs of its kind, or of its queue for a
    lane.
    """
    if record.status is not JobStatus.HELD:
        return ()
    bucket_name = (record.limit_bucket or record.limit_key or "").removeprefix("new:")
    in_lane = bucket_name.startswith(LANE)
    found: list[JobSummary] = []
    for status in (JobStatus.RUNNING, JobStatus.PENDING):
        wanted = Filter(
            queue=record.queue if in_lane else None,
            kind=None if in_lane else record.kind,
            statuses=(status,),
        )
        page = await store.jobs.page(wanted, limit=_HOLDERS_READ)
        found += [
            job_summary(job)
            for job in page.jobs
            if (job.lane == record.lane if in_lane else job.limit_key == bucket_name)
        ]
    return tuple(found[:_HOLDERS_SHOWN])


async def limit_reasons(store: Store, record: JobRecord, now: Instant) -> tuple[Reason, ...]:
    """Why a pending job of an open queue does not start: full limits, rates, closed scopes."""
    limits = {limit.name: limit for limit in await store.limits.all()}
    gates = await store.limits.gates() if limits else {}
    reasons: list[Reason] = []
    task = limits.get(task_limit(record.kind))
    for scope in () if task is None else task.scopes:
        gate = gates.get(scope)
        if gate is not None and gate.until is not None and gate.closed(now):
            reasons.append(
                Reason(
                    code="scope_closed",
                    text=f"its scope {scope!r} is closed by a throttle",
                    until=to_datetime(gate.until),
                    remedy=f"forge limits clear {scope}",
                )
            )
    for limit in (task, limits.get(queue_limit(record.queue))):
        if limit is not None:
            reasons += await _bound_reasons(store, limit, now)
    return tuple(reasons)


async def _bound_reasons(store: Store, limit: Limit, now: Instant) -> list[Reason]:
    reasons: list[Reason] = []
    if limit.cap is not None:
        taken = (await store.limits.bucket(limit.name)).taken
        if taken >= limit.cap:
            reasons.append(
                Reason(
                    code="limit_full",
                    text=f"{limit.name} runs {taken} of at most {limit.cap} at once",
                    remedy=f"forge limits set {limit.name} --concurrency {max(limit.cap, 1) * 2}",
                )
            )
    at = next_start_at(limit, now)
    if at is not None and limit.rate_per_s is not None:
        reasons.append(
            Reason(
                code="rate",
                text=f"{limit.name} starts no more than {rate_text(limit.rate_per_s)}",
                until=to_datetime(at),
            )
        )
    return reasons


async def closed_scopes(store: Store, now: Instant) -> dict[str, list[Reason]]:
    """Closed scopes that published tasks declare, by the queue of the task."""
    gates = {
        scope: gate for scope, gate in (await store.limits.gates()).items() if gate.closed(now)
    }
    if not gates:
        return {}
    kinds = await store.queues.kinds()
    reasons_by_queue: dict[str, dict[str, Reason]] = {}
    for limit in await store.limits.all():
        queue = kinds.get(limit.name.removeprefix(TASK))
        for scope in limit.scopes:
            gate = gates.get(scope)
            if gate is not None and gate.until is not None and queue is not None:
                reasons_by_queue.setdefault(queue, {})[scope] = Reason(
                    code="scope_closed",
                    text=f"scope {scope!r} is closed by a throttle",
                    until=to_datetime(gate.until),
                    remedy=f"forge limits clear {scope}",
                )
    return {queue: list(reasons.values()) for queue, reasons in reasons_by_queue.items()}
