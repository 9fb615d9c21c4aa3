"""What each queue did in the last minutes: enough for the small picture beside its name."""

from collections.abc import Mapping
from datetime import datetime

from forge_jobs.core.instant import MINUTE, Instant, to_datetime
from forge_jobs.kit.clock import SYSTEM_CLOCK, Clock
from forge_jobs.store.store import Store

from .store_time import store_now
from .views import View


class Flow(View, frozen=True, kw_only=True):
    """One minute of a queue: what ended well, and what went wrong (retried or dead)."""

    at: datetime
    good: int = 0
    bad: int = 0


async def flows(
    store: Store, *, minutes: int = 30, clock: Clock = SYSTEM_CLOCK
) -> Mapping[str, tuple[Flow, ...]]:
    """By queue, oldest minute first, the present one last; a queue that did nothing is absent."""
    now = await store_now(store, clock)
    until = now - now % MINUTE + MINUTE
    since = until - minutes * MINUTE
    seen: dict[str, dict[Instant, list[int]]] = {}
    for part in await store.metrics.minutes(since=since, until=until):
        sums = seen.setdefault(part.queue, {}).setdefault(part.at, [0, 0])
        sums[0] += part.done
        sums[1] += part.retried + part.dead
    return {
        queue: tuple(_flow(at, told.get(at)) for at in range(since, until, MINUTE))
        for queue, told in seen.items()
        if any(good or bad for good, bad in told.values())
    }


def _flow(at: Instant, sums: list[int] | None) -> Flow:
    good, bad = sums or (0, 0)
    return Flow(at=to_datetime(at), good=good, bad=bad)
