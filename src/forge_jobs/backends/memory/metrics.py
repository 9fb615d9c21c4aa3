"""The ledger contract on memory: the books are always up to date, so there is nothing to fold."""

from itertools import islice

from msgspec.structs import replace

from forge_jobs.backends.shared.pagination import is_counted
from forge_jobs.core.audit import AuditEntry
from forge_jobs.core.counters import CappedCount, Count, Minute
from forge_jobs.core.instant import Instant
from forge_jobs.core.job import LogLine
from forge_jobs.core.selection import Filter
from forge_jobs.core.vitals import Vitals

from . import bulk
from .tables import Tables


class MemoryMetrics:
    """What was counted and said; see ``forge_jobs.store.metrics``."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def counts(self) -> list[Count]:
        with self._tables.look():
            return self._tables.books.counts()

    async def count(self, filter: Filter, *, cap: int) -> CappedCount:
        with self._tables.look():
            if is_counted(filter):
                found = sum(bulk.matches(row, filter) for row in self._tables.jobs.values())
                return CappedCount(min(found, cap), found > cap)
            known = bulk.newest(self._tables, filter, limit=cap, counting=True)
            return CappedCount(len(known.rows), known.next is not None)

    async def oldest_due(self) -> dict[str, Instant]:
        with self._tables.look():
            oldest: dict[str, Instant] = {}
            for row in self._tables.lines.pending():
                oldest[row.queue] = min(row.run_at, oldest.get(row.queue, row.run_at))
            return oldest

    async def minutes(
        self, *, since: Instant, until: Instant, queue: str | None = None
    ) -> list[Minute]:
        with self._tables.look():
            return self._tables.books.minutes(since, until, queue)

    async def totals(self) -> list[Minute]:
        with self._tables.look():
            return self._tables.books.totals()

    async def record_vitals(self, vitals: Vitals) -> None:
        with self._tables.change():
            self._tables.books.noted(vitals)

    async def vitals(self, *, since: Instant, until: Instant) -> list[Vitals]:
        with self._tables.look():
            return self._tables.books.vitals(since, until)

    async def logs(self, job_id: str) -> list[LogLine]:
        with self._tables.look():
            row = self._tables.find(job_id)
            return [] if row is None else list(self._tables.logs.get(row.key, ()))

    async def roll_up(self, *, limit: int) -> bool:
        return False

    async def purge_minutes(self, *, before: Instant, limit: int) -> int:
        with self._tables.change():
            books = self._tables.books
            return books.forget(before, limit) + books.forget_vitals(before, limit)

    async def stamp(self) -> str:
        return str(self._tables.changes)

    async def record_action(self, entry: AuditEntry) -> None:
        with self._tables.change():
            self._tables.actions_noted += 1
            self._tables.actions.append(replace(entry, id=self._tables.actions_noted))

    async def actions(self, *, limit: int, after: int | None = None) -> list[AuditEntry]:
        with self._tables.look():
            older = (e for e in reversed(self._tables.actions) if after is None or e.id < after)
            return list(islice(older, max(limit, 0)))

    async def purge_actions(self, *, before: Instant, limit: int) -> int:
        with self._tables.change():
            old = [entry for entry in self._tables.actions if entry.at < before][: max(limit, 0)]
            gone = {entry.id for entry in old}
            self._tables.actions = [e for e in self._tables.actions if e.id not in gone]
            return len(gone)
