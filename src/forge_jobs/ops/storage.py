"""The database as operators watch it: how large it is, and how fast it answered workers."""

import asyncio
from datetime import datetime
from typing import Final

from forge_jobs.core.histogram import merged
from forge_jobs.core.instant import MINUTE, Instant, to_datetime
from forge_jobs.core.vitals import Vitals
from forge_jobs.kit.clock import SYSTEM_CLOCK, Clock
from forge_jobs.store.store import Store

from .metrics import Spans, spans
from .store_time import store_now
from .views import View

# Tables or files by name; the rest is small everywhere.
_PARTS: Final = 6


class Answered(View, frozen=True, kw_only=True):
    """One minute of exchanges between workers and the store."""

    at: datetime
    took: Spans
    errors: int


class Storage(View, frozen=True, kw_only=True):
    """``parts`` are the largest tables or files, in bytes; ``took`` is of the last five minutes."""

    total_bytes: int
    log_bytes: int
    parts: tuple[tuple[str, int], ...]
    took: Spans
    minutes: tuple[Answered, ...]


async def storage(store: Store, *, minutes: int = 30, clock: Clock = SYSTEM_CLOCK) -> Storage:
    """The size now, and the last minutes with the present one."""
    now = await store_now(store, clock)
    until = now - now % MINUTE + MINUTE
    since = until - minutes * MINUTE
    size, told = await asyncio.gather(
        store.maintenance.size(), store.metrics.vitals(since=since, until=until)
    )
    by_minute: dict[Instant, list[Vitals]] = {at: [] for at in range(since, until, MINUTE)}
    for part in told:
        by_minute[part.at // MINUTE * MINUTE].append(part)
    lately = [part.exchange for part in told if part.at >= until - 6 * MINUTE]
    return Storage(
        total_bytes=size.total,
        log_bytes=size.log,
        parts=size.parts[:_PARTS],
        took=spans(merged(lately)),
        minutes=tuple(
            Answered(
                at=to_datetime(at),
                took=spans(merged(part.exchange for part in parts)),
                errors=sum(part.errors for part in parts),
            )
            for at, parts in by_minute.items()
        ),
    )
