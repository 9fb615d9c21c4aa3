"""Successes and failures of each queue in the last minutes, for its sparkline."""

from collections.abc import Mapping
from datetime import datetime

from forge_jobs.core.instant import MINUTE, Instant, to_datetime
from forge_jobs.kit.clock import SYSTEM_CLOCK, Clock
from forge_jobs.store.store import Store

from .store_time import store_now
from .views import View


class QueueMinute(View, frozen=True, kw_only=True):
    """One minute of a queue; ``failed`` counts retried and dead jobs."""

    at: datetime
    succeeded: int = 0
    failed: int = 0


async def queue_activity(
    store: Store, *, minutes: int = 30, clock: Clock = SYSTEM_CLOCK
) -> Mapping[str, tuple[QueueMinute, ...]]:
    """By queue, oldest minute first, the current one last; idle queues are absent."""
    now = await store_now(store, clock)
    until = now - now % MINUTE + MINUTE
    since = until - minutes * MINUTE
    sums_by_queue: dict[str, dict[Instant, list[int]]] = {}
    for entry in await store.metrics.minutes(since=since, until=until):
        sums = sums_by_queue.setdefault(entry.queue, {}).setdefault(entry.at, [0, 0])
        sums[0] += entry.done
        sums[1] += entry.retried + entry.dead
    return {
        queue: tuple(
            _queue_minute(at, sums_by_minute.get(at)) for at in range(since, until, MINUTE)
        )
        for queue, sums_by_minute in sums_by_queue.items()
        if any(succeeded or failed for succeeded, failed in sums_by_minute.values())
    }


def _queue_minute(at: Instant, sums: list[int] | None) -> QueueMinute:
    succeeded, failed = sums or (0, 0)
    return QueueMinute(at=to_datetime(at), succeeded=succeeded, failed=failed)
