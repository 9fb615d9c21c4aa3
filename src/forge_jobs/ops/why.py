"""Why is this job not running? An answer for every job that waits, the main reason first."""

import asyncio
from collections.abc import Sequence
from typing import assert_never

from forge_jobs.core.instant import Instant, to_datetime
from forge_jobs.core.job import JobRecord
from forge_jobs.core.selection import Filter
from forge_jobs.core.status import JobStatus
from forge_jobs.kit.clock import SYSTEM_CLOCK, Clock
from forge_jobs.store.processes import ProcessRecord
from forge_jobs.store.queues import QueueConfig
from forge_jobs.store.store import Store

from .held import held, limited
from .store_time import store_now
from .views import Reason

AHEAD_CAP = 10_000


async def why(
    store: Store, record: JobRecord, *, clock: Clock = SYSTEM_CLOCK
) -> tuple[Reason, ...]:
    """What keeps the job from running; for a running or ended one, that it runs or ended."""
    match record.status:
        case JobStatus.DONE | JobStatus.DEAD | JobStatus.CANCELLED:
            return (_ended(record),)
        case JobStatus.RUNNING:
            return _running(record, await store.processes.all())
        case JobStatus.HELD:
            return (await held(store, record),)
        case JobStatus.SCHEDULED | JobStatus.FAILED | JobStatus.PENDING:
            return await _waiting(store, record, await store_now(store, clock))
        case _:
            assert_never(record.status)


def queue_blocks(
    name: str, config: QueueConfig | None, serving: Sequence[ProcessRecord], now: Instant
) -> tuple[Reason, ...]:
    """What keeps every job of a queue from starting; empty when the queue is open and served."""
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


async def _waiting(store: Store, record: JobRecord, now: Instant) -> tuple[Reason, ...]:
    config, processes = await asyncio.gather(store.queues.get(record.queue), store.processes.all())
    serving = [process for process in processes if record.queue in process.queues]
    blocks = queue_blocks(record.queue, config, serving, now)
    if record.status is not JobStatus.PENDING and record.run_at > now:
        return (_not_due(record), *blocks)
    if blocks:
        return blocks
    bounds = await limited(store, record, now)
    if bounds:
        return bounds
    return (await _in_line(store, record, config),)


def _not_due(record: JobRecord) -> Reason:
    remedy = f"forge jobs run-now {record.id}"
    until = to_datetime(record.run_at)
    if record.status is JobStatus.FAILED:
        tries = f"attempt {record.attempts} of {record.max_attempts} failed"
        return Reason(code="retry", text=f"{tries}; it is tried again", until=until, remedy=remedy)
    if record.missing_since is not None:
        text = f"no worker that took it knows the kind {record.kind!r}; it is offered again"
        cure = "start a worker whose app registers this kind"
        return Reason(code="missing_kind", text=text, until=until, remedy=cure)
    if record.throttled_since is not None:
        text = "its handler said that a limit was hit; it is tried again"
        return Reason(code="throttled_job", text=text, until=until, remedy=remedy)
    return Reason(code="scheduled", text="it is scheduled", until=until, remedy=remedy)


async def _in_line(store: Store, record: JobRecord, config: QueueConfig | None) -> Reason:
    ahead = Filter(
        queue=record.queue, statuses=(JobStatus.PENDING,), enqueued_until=record.enqueued_at
    )
    running = Filter(queue=record.queue, statuses=(JobStatus.RUNNING,))
    slots = None if config is None else config.slots
    before, busy = await asyncio.gather(
        store.metrics.count(ahead, cap=AHEAD_CAP),
        store.metrics.count(running, cap=max(slots or 0, 1)),
    )
    others = f"{before.jobs:,}{'+' if before.more else ''}"
    if slots is not None and busy.jobs >= slots:
        return Reason(
            code="busy",
            text=f"all {slots} slots of queue {record.queue!r} are busy; "
            f"{others} pending jobs of the queue are older",
            remedy=f"forge queues set {record.queue} --workers {slots * 2}",
        )
    if before.jobs:
        return Reason(code="in_line", text=f"{others} pending jobs of its queue are older")
    return Reason(code="next", text="nothing is in its way: it is about to start")


def _running(record: JobRecord, processes: Sequence[ProcessRecord]) -> tuple[Reason, ...]:
    owner = next((process for process in processes if process.key == record.owner), None)
    if owner is None:
        text = "its worker is gone; it is taken over within the lease and 5 seconds"
        return (Reason(code="owner_gone", text=text),)
    if record.cancel_requested_at is not None:
        return (Reason(code="stopping", text=f"{owner.label} was asked to stop it"),)
    return (Reason(code="running", text=f"it runs on {owner.label} (pid {owner.pid})"),)


def _ended(record: JobRecord) -> Reason:
    remedy = None if record.status is JobStatus.DONE else f"forge jobs retry {record.id}"
    ended = to_datetime(record.finished_at) if record.finished_at is not None else None
    age = f" at {ended:%Y-%m-%d %H:%M:%S} UTC" if ended is not None else ""
    return Reason(code="ended", text=f"it ended as {record.status}{age}", remedy=remedy)
