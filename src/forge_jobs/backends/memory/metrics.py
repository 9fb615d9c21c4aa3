"""The metrics contract on memory: counters are updated in place, so there is nothing to roll up."""

from itertools import islice

from msgspec.structs import replace

from forge_jobs.backends.shared.pagination import in_counters
from forge_jobs.core.audit import AuditEntry
from forge_jobs.core.counters import CappedCount, Count, Minute
from forge_jobs.core.instant import Instant
from forge_jobs.core.job import LogLine
from forge_jobs.core.selection import Filter
from forge_jobs.core.vitals import Vitals

from . import bulk
from .tables import Tables


class MemoryMetrics:
    """``MetricsStore`` on memory; see ``forge_jobs.store.metrics``."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def counts(self) -> list[Count]:
        with self._tables.read():
            return self._tables.counters.counts()

    async def count(self, filter: Filter, *, cap: int) -> CappedCount:
        with self._tables.read():
            if in_counters(filter):
                found = sum(bulk.matches(row, filter) for row in self._tables.jobs.values())
                return CappedCount(min(found, cap), found > cap)
            known = bulk.find_rows(self._tables, filter, limit=cap, counting=True)
            return CappedCount(len(known.rows), known.next is not None)

    async def oldest_due(self) -> dict[str, Instant]:
        with self._tables.read():
            oldest: dict[str, Instant] = {}
            for row in self._tables.index.pending():
                oldest[row.queue] = min(row.run_at, oldest.get(row.queue, row.run_at))
            return oldest

    async def minutes(
        self, *, since: Instant, until: Instant, queue: str | None = None
    ) -> list[Minute]:
        with self._tables.read():
            return self._tables.counters.minutes(since, until, queue)

    async def totals(self) -> list[Minute]:
        with self._tables.read():
            return self._tables.counters.totals()

    async def record_vitals(self, vitals: Vitals) -> None:
        with self._tables.write():
            self._tables.counters.add_vitals(vitals)

    async def vitals(self, *, since: Instant, until: Instant) -> list[Vitals]:
        with self._tables.read():
            return self._tables.counters.vitals(since, until)

    async def logs(self, job_id: str) -> list[LogLine]:
        with self._tables.read():
            row = self._tables.find(job_id)
            return [] if row is None else list(self._tables.logs.get(row.key, ()))

    async def roll_up(self, *, limit: int) -> bool:
        return False

    async def purge_minutes(self, *, before: Instant, limit: int) -> int:
        with self._tables.write():
            counters = self._tables.counters
            return counters.purge_minutes(before, limit) + counters.purge_vitals(before, limit)

    async def stamp(self) -> str:
        return str(self._tables.changes)

    async def record_action(self, entry: AuditEntry) -> None:
        with self._tables.write():
            self._tables.last_action += 1
            self._tables.actions.append(replace(entry, id=self._tables.last_action))

    async def actions(self, *, limit: int, after: int | None = None) -> list[AuditEntry]:
        with self._tables.read():
            older = (e for e in reversed(self._tables.actions) if after is None or e.id < after)
            return list(islice(older, max(limit, 0)))

    async def purge_actions(self, *, before: Instant, limit: int) -> int:
        with self._tables.write():
            old = [entry for entry in self._tables.actions if entry.at < before][: max(limit, 0)]
            gone = {entry.id for entry in old}
            self._tables.actions = [e for e in self._tables.actions if e.id not in gone]
            return len(gone)
