"""The numbers by kind and by tag of a row-wise store, from its jobs and minutes."""

from collections import Counter

from forge_jobs.core.counters import KindCount, Minute, by_period
from forge_jobs.core.instant import DAY, Instant
from forge_jobs.core.tag_counts import TagDay

from .storage import Storage


class RowwiseBreakdowns:
    """``BreakdownStore`` row by row; see ``forge_jobs.store.breakdowns``."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    async def counts(self) -> list[KindCount]:
        with self._storage.read():
            rows = self._storage.tables.jobs.values()
            counts = Counter((row.queue, row.kind, row.status) for row in rows)
            return [KindCount(*name, jobs) for name, jobs in sorted(counts.items())]

    async def periods(
        self,
        length: Instant,
        *,
        since: Instant,
        until: Instant,
        queue: str | None = None,
        kind: str | None = None,
        limit: int = 20_000,
    ) -> list[Minute]:
        with self._storage.read():
            minutes = by_period(
                [
                    minute
                    for minute in self._storage.tables.minutes.values()
                    if queue in (None, minute.queue) and kind in (None, minute.kind)
                ],
                length,
            )
            return [one for one in minutes if since <= one.at < until][-max(limit, 0) :]

    async def tag_days(
        self, *, since: Instant, until: Instant, tag: str | None = None
    ) -> list[TagDay]:
        with self._storage.read():
            rows = self._storage.tables.tag_days.items()
            found = [
                row
                for (day, name), row in rows
                if since - since % DAY <= day < until and tag in (None, name)
            ]
            return sorted(found, key=lambda row: (row.day, row.tag))
