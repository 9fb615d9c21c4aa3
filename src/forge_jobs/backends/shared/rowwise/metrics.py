"""The metrics contract of a row-wise store. Each transaction adds its counters to the tables, so
there is nothing to roll up."""

from itertools import islice

from msgspec.structs import replace

from forge_jobs.backends.shared.pagination import is_counted
from forge_jobs.core.audit import AuditEntry
from forge_jobs.core.counters import CappedCount, Count, Minute, merge_minutes, sum_totals
from forge_jobs.core.instant import DAY, Instant
from forge_jobs.core.job import LogLine
from forge_jobs.core.selection import Filter
from forge_jobs.core.status import JobStatus
from forge_jobs.core.vitals import LIFETIME, Vitals, lifetime_part, merge_vitals
from forge_jobs.store.metrics import MAX_HELD_READ

from . import search
from .storage import Storage
from .tables import Tables


class RowwiseMetrics:
    """``MetricsStore`` row by row; see ``forge_jobs.store.metrics``."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    @property
    def _tables(self) -> Tables:
        return self._storage.tables

    async def counts(self) -> list[Count]:
        with self._storage.read():
            counts = sorted(self._tables.counts.items())
            return [Count(queue, JobStatus(status), jobs) for (queue, status), jobs in counts]

    async def count(self, filter: Filter, *, cap: int) -> CappedCount:
        with self._storage.read():
            if is_counted(filter):
                found = sum(search.matches(row, filter) for row in self._tables.jobs.values())
                return CappedCount(min(found, cap), found > cap)
            known = search.find_rows(self._tables, filter, limit=cap, counting=True)
            return CappedCount(len(known.rows), known.next is not None)

    async def oldest_due(self) -> dict[str, Instant]:
        with self._storage.read():
            index, jobs = self._tables.index, self._tables.jobs
            oldest = {
                queue: min(
                    jobs[key].run_at
                    for track in index.tracks(queue)
                    for key in index.pending(queue, track)
                )
                for queue in index.pending_queues()
            }
            for key in islice(index.first_held(), MAX_HELD_READ):
                queue, run_at = jobs[key].queue, jobs[key].run_at
                oldest[queue] = min(oldest.get(queue, run_at), run_at)
            return oldest

    async def minutes(
        self, *, since: Instant, until: Instant, queue: str | None = None
    ) -> list[Minute]:
        with self._storage.read():
            return [
                minute
                for (at, name, _), minute in sorted(self._tables.minutes.items(), key=_by_name)
                if since <= at < until and queue in (None, name)
            ]

    async def totals(self) -> list[Minute]:
        with self._storage.read():
            return sum_totals([*self._tables.purged.values(), *self._tables.minutes.values()])

    async def record_vitals(self, vitals: Vitals) -> None:
        with self._storage.write():
            for part in (vitals, lifetime_part(vitals)):
                name = (part.at, part.host_id)
                known = self._tables.vitals.get(name)
                self._tables.vitals[name] = part if known is None else merge_vitals([known, part])

    async def vitals(self, *, since: Instant, until: Instant) -> list[Vitals]:
        with self._storage.read():
            return [
                vitals
                for (at, _), vitals in sorted(self._tables.vitals.items(), key=_by_name)
                if since <= at < until
            ]

    async def logs(self, job_id: str) -> list[LogLine]:
        with self._storage.read():
            row = self._tables.find(job_id)
            return [] if row is None else list(self._tables.logs.get(row.key, ()))

    async def roll_up(self, *, limit: int) -> bool:
        return False

    async def purge_minutes(self, *, before: Instant, limit: int) -> int:
        with self._storage.write():
            tables, kept = self._tables, max(limit, 0)
            minutes = sorted(name for name in tables.minutes if name[0] < before)[:kept]
            for name in minutes:
                _add_total(tables, tables.minutes.pop(name))
            vitals = sorted(name for name in tables.vitals if LIFETIME < name[0] < before)[:kept]
            for name in vitals:
                del tables.vitals[name]
            for day, tag in [name for name in tables.tag_days if name[0] <= before - DAY][:kept]:
                del tables.tag_days[day, tag]
            return len(minutes) + len(vitals)

    async def stamp(self) -> str:
        with self._storage.read():
            return str(self._tables.meta.get("changes", 0))

    async def record_action(self, entry: AuditEntry) -> None:
        with self._storage.write():
            key = self._tables.next_key("action")
            self._tables.actions[key] = replace(entry, id=key)

    async def actions(self, *, limit: int, after: int | None = None) -> list[AuditEntry]:
        with self._storage.read():
            keys = sorted(self._tables.actions, reverse=True)
            older = (self._tables.actions[key] for key in keys if after is None or key < after)
            return list(islice(older, max(limit, 0)))

    async def purge_actions(self, *, before: Instant, limit: int) -> int:
        with self._storage.write():
            actions = self._tables.actions
            old = sorted(key for key, entry in actions.items() if entry.at < before)
            for key in old[: max(limit, 0)]:
                del actions[key]
            return min(len(old), max(limit, 0))


def _by_name(item: tuple[tuple[object, ...], object]) -> tuple[object, ...]:
    return item[0]


def _add_total(tables: Tables, minute: Minute) -> None:
    name = (minute.queue, minute.kind)
    known = tables.purged.get(name)
    parts = [minute] if known is None else [known, minute]
    tables.purged[name] = merge_minutes(parts, at=0, queue=minute.queue, kind=minute.kind)
