"""Size of the database and its latency as workers measured it, for the health page."""

import asyncio
from datetime import datetime
from typing import Final

from forge_jobs.core.histogram import merged
from forge_jobs.core.instant import MINUTE, Instant, to_datetime
from forge_jobs.core.vitals import Vitals
from forge_jobs.kit.clock import SYSTEM_CLOCK, Clock
from forge_jobs.store.store import Store

from .metrics import DurationStats, duration_stats
from .store_time import store_now
from .views import View

# The largest tables or files; the others are small.
_MAX_PARTS: Final = 6


class StoreMinute(View, frozen=True, kw_only=True):
    """One minute of exchanges between workers and the store."""

    at: datetime
    took: DurationStats
    errors: int


class StorageView(View, frozen=True, kw_only=True):
    """``parts`` are the largest tables or files in bytes; ``took`` covers the last five minutes."""

    total_bytes: int
    log_bytes: int
    parts: tuple[tuple[str, int], ...]
    took: DurationStats
    minutes: tuple[StoreMinute, ...]


async def read_storage(
    store: Store, *, minutes: int = 30, clock: Clock = SYSTEM_CLOCK
) -> StorageView:
    """The current size, and the last minutes including the current one."""
    now = await store_now(store, clock)
    until = now - now % MINUTE + MINUTE
    since = until - minutes * MINUTE
    size, samples = await asyncio.gather(
        store.maintenance.size(), store.metrics.vitals(since=since, until=until)
    )
    samples_by_minute: dict[Instant, list[Vitals]] = {at: [] for at in range(since, until, MINUTE)}
    for sample in samples:
        samples_by_minute[sample.at // MINUTE * MINUTE].append(sample)
    recent = [sample.exchange for sample in samples if sample.at >= until - 6 * MINUTE]
    return StorageView(
        total_bytes=size.total,
        log_bytes=size.log,
        parts=size.parts[:_MAX_PARTS],
        took=duration_stats(merged(recent)),
        minutes=tuple(
            StoreMinute(
                at=to_datetime(at),
                took=duration_stats(merged(sample.exchange for sample in minute_samples)),
                errors=sum(sample.errors for sample in minute_samples),
            )
            for at, minute_samples in samples_by_minute.items()
        ),
    )
