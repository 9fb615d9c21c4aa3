"""What limits, lanes and scopes keep a job from starting: the part of ``why`` about them."""

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
from forge_jobs.store.store import Store

from .views import Reason


async def held(store: Store, record: JobRecord) -> Reason:
    """Why a held job waits: its lane or its key."""
    lot = (record.limit_bucket or record.limit_key or "").removeprefix("new:")
    seen = await store.limits.bucket(lot)
    if lot.startswith(LANE):
        ahead = "" if seen.first in (None, record.id) else f" behind job {seen.first}"
        remedy = None if not ahead else f"forge jobs show {seen.first}"
        return Reason(code="lane", text=f"it waits in lane {record.lane!r}{ahead}", remedy=remedy)
    capacity = (
        "its limit" if seen.capacity is None else f"{seen.taken} of {seen.capacity} running or next"
    )
    task = f"task:{record.kind}"
    return Reason(
        code="held",
        text=f"its limit {lot!r} is full ({capacity}); it moves up when a job of that limit ends",
        remedy=f"forge limits set {task} --concurrency {(seen.capacity or 1) * 2}",
    )


async def limited(store: Store, record: JobRecord, now: Instant) -> tuple[Reason, ...]:
    """What keeps a pending job back although its queue is open: caps, rates and closed scopes."""
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
            reasons += await _numbers(store, limit, now)
    return tuple(reasons)


async def _numbers(store: Store, limit: Limit, now: Instant) -> list[Reason]:
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
    """By queue: scopes of its published tasks that a throttle keeps closed."""
    gates = {
        scope: gate for scope, gate in (await store.limits.gates()).items() if gate.closed(now)
    }
    if not gates:
        return {}
    kinds = await store.queues.kinds()
    found: dict[str, dict[str, Reason]] = {}
    for limit in await store.limits.all():
        queue = kinds.get(limit.name.removeprefix(TASK))
        for scope in limit.scopes:
            gate = gates.get(scope)
            if gate is not None and gate.until is not None and queue is not None:
                found.setdefault(queue, {})[scope] = Reason(
                    code="scope_closed",
                    text=f"scope {scope!r} is closed by a throttle",
                    until=to_datetime(gate.until),
                    remedy=f"forge limits clear {scope}",
                )
    return {queue: list(reasons.values()) for queue, reasons in found.items()}
