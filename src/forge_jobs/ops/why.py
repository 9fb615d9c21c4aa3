"""Explains why a job is not running: the reasons, the main one first."""

import asyncio
from collections.abc import Sequence
from typing import assert_never

from forge_jobs.core.decide import WAITS_FOR_VERSION
from forge_jobs.core.instant import Instant, to_datetime
from forge_jobs.core.job import JobRecord
from forge_jobs.core.selection import Filter
from forge_jobs.core.status import JobStatus
from forge_jobs.kit.clock import SYSTEM_CLOCK, Clock
from forge_jobs.store.processes import ProcessRecord
from forge_jobs.store.queues import QueueConfig
from forge_jobs.store.store import Store

from .held import held_reason, limit_reasons
from .store_time import store_now
from .views import Reason
from .waits import job_waits, wait_reason

OLDER_JOBS_CAP = 10_000


async def why(
    store: Store, record: JobRecord, *, clock: Clock = SYSTEM_CLOCK
) -> tuple[Reason, ...]:
    """What keeps the job from running; for a running or terminal job, its state."""
    match record.status:
        case JobStatus.DONE | JobStatus.DEAD | JobStatus.CANCELLED:
            return (_ended_reason(record),)
        case JobStatus.RUNNING:
            return _running_reasons(record, await store.processes.all())
        case JobStatus.HELD:
            return (await held_reason(store, record),)
        case JobStatus.SUSPENDED:
            return await _suspended_reasons(store, record, await store_now(store, clock))
        case JobStatus.SCHEDULED | JobStatus.FAILED | JobStatus.PENDING:
            return await _waiting_reasons(store, record, await store_now(store, clock))
        case _:
            assert_never(record.status)


def queue_blocks(
    name: str, config: QueueConfig | None, serving: Sequence[ProcessRecord], now: Instant
) -> tuple[Reason, ...]:
    """What keeps every job of a queue from starting; empty if the queue is open and served."""
    blocks: list[Reason] = []
    if config is not None and config.paused:
        blocks.append(
            Reason(
                code="paused",
                text=f"queue {name!r} is paused",
                remedy=f"forge queues resume {name}",
            )
        )
    if config is not None and config.gate.closed(now) and config.gate.until is not None:
        blocks.append(
            Reason(
                code="throttled",
                text=f"queue {name!r} is throttled",
                until=to_datetime(config.gate.until),
                remedy=f"forge queues unthrottle {name}",
            )
        )
    if config is not None and config.slots == 0:
        blocks.append(
            Reason(
                code="no_slots",
                text=f"queue {name!r} has no slots",
                remedy=f"forge queues set {name} --workers 10",
            )
        )
    if not serving:
        blocks.append(
            Reason(
                code="no_worker",
                text=f"no living worker serves queue {name!r}",
                remedy=f"forge worker APP --queues {name}",
            )
        )
    elif all(process.quiet for process in serving):
        blocks.append(
            Reason(
                code="quiet",
                text=f"every worker of queue {name!r} was asked to take no more jobs",
                remedy=f"forge workers quiet --off {serving[0].host_id}",
            )
        )
    return tuple(blocks)


async def _waiting_reasons(store: Store, record: JobRecord, now: Instant) -> tuple[Reason, ...]:
    config, blocks = await _queue_and_blocks(store, record.queue, now)
    if record.status is not JobStatus.PENDING and record.run_at > now:
        return (_not_due_reason(record), *blocks)
    if blocks:
        return blocks
    limiting = await limit_reasons(store, record, now)
    if limiting:
        return limiting
    return (await _pending_reason(store, record, config),)


async def _suspended_reasons(store: Store, record: JobRecord, now: Instant) -> tuple[Reason, ...]:
    waits, (_, blocks) = await asyncio.gather(
        job_waits(store, record), _queue_and_blocks(store, record.queue, now)
    )
    return (wait_reason(waits), *blocks)


async def _queue_and_blocks(
    store: Store, name: str, now: Instant
) -> tuple[QueueConfig | None, tuple[Reason, ...]]:
    config, processes = await asyncio.gather(store.queues.get(name), store.processes.all())
    serving = [process for process in processes if name in process.queues]
    return config, queue_blocks(name, config, serving, now)


def _not_due_reason(record: JobRecord) -> Reason:
    remedy = f"forge jobs run-now {record.id}"
    until = to_datetime(record.run_at)
    if record.status is JobStatus.FAILED:
        attempt = f"attempt {record.attempts} of {record.max_attempts} failed"
        return Reason(
            code="retry",
            text=f"{attempt}; it waits for its next attempt",
            until=until,
            remedy=remedy,
        )
    if record.missing_since is not None and (record.last_error or "").endswith(WAITS_FOR_VERSION):
        refusal = (record.last_error or "").removesuffix(WAITS_FOR_VERSION)
        text = f"a worker of another version refused it: {refusal}; it waits to be offered again"
        remedy = "start a worker whose version of the task takes these arguments"
        return Reason(code="other_version", text=text, until=until, remedy=remedy)
    if record.missing_since is not None:
        text = (
            f"no worker that took it knows the kind {record.kind!r}; it waits to be offered again"
        )
        remedy = "start a worker whose app registers this kind"
        return Reason(code="missing_kind", text=text, until=until, remedy=remedy)
    if record.throttled_since is not None:
        text = "its handler said that a limit was hit; it waits for its next attempt"
        return Reason(code="throttled_job", text=text, until=until, remedy=remedy)
    return Reason(code="scheduled", text="it is scheduled", until=until, remedy=remedy)


async def _pending_reason(store: Store, record: JobRecord, config: QueueConfig | None) -> Reason:
    older = Filter(
        queue=record.queue, statuses=(JobStatus.PENDING,), enqueued_until=record.enqueued_at
    )
    running = Filter(queue=record.queue, statuses=(JobStatus.RUNNING,))
    slots = None if config is None else config.slots
    older_count, running_count = await asyncio.gather(
        store.metrics.count(older, cap=OLDER_JOBS_CAP),
        store.metrics.count(running, cap=max(slots or 0, 1)),
    )
    older_text = f"{older_count.jobs:,}{'+' if older_count.more else ''}"
    if slots is not None and running_count.jobs >= slots:
        return Reason(
            code="busy",
            text=f"all {slots} slots of queue {record.queue!r} are busy; "
            f"{older_text} pending jobs of the queue are older",
            remedy=f"forge queues set {record.queue} --workers {slots * 2}",
        )
    if older_count.jobs:
        return Reason(code="in_line", text=f"{older_text} pending jobs of its queue are older")
    return Reason(code="next", text="nothing is in its way: it is about to start")


def _running_reasons(record: JobRecord, processes: Sequence[ProcessRecord]) -> tuple[Reason, ...]:
    owner = next((process for process in processes if process.key == record.owner), None)
    if owner is None:
        text = "its worker is gone; it is taken over within the lease and 5 seconds"
        return (Reason(code="owner_gone", text=text),)
    if record.cancel_requested_at is not None:
        return (Reason(code="stopping", text=f"{owner.label} was asked to stop it"),)
    return (Reason(code="running", text=f"it runs on {owner.label} (pid {owner.pid})"),)


def _ended_reason(record: JobRecord) -> Reason:
    remedy = None if record.status is JobStatus.DONE else f"forge jobs retry {record.id}"
    ended_at = to_datetime(record.finished_at) if record.finished_at is not None else None
    ended_text = f" at {ended_at:%Y-%m-%d %H:%M:%S} UTC" if ended_at is not None else ""
    return Reason(code="ended", text=f"it ended as {record.status}{ended_text}", remedy=remedy)
