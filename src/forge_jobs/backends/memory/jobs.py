"""The job contract on memory: each method is one transaction over the tables."""

from collections.abc import Sequence
from functools import partial

from forge_jobs.core.instant import SECOND, Instant
from forge_jobs.core.job import Claim, Enqueued, JobRecord, NewJob
from forge_jobs.core.selection import Acted, Cursor, Filter, Page, Selection
from forge_jobs.core.status import Event, JobStatus
from forge_jobs.store.jobs import (
    Exchange,
    Exchanged,
    Owned,
    Peek,
    Promoted,
    Reaped,
    Retention,
)

from . import bulk, claims, dedupe_keys, exchange, transitions
from .rows import Row
from .tables import Tables


class MemoryJobs:
    """``JobStore`` on memory; see ``forge_jobs.store.jobs`` for what each method promises."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        return self.enqueue_sync(jobs)

    def enqueue_sync(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        with self._tables.write() as now:
            return [transitions.insert(self._tables, job, now) for job in jobs]

    async def exchange(self, request: Exchange) -> Exchanged:
        return self.exchange_sync(request)

    def exchange_sync(self, request: Exchange) -> Exchanged:
        with self._tables.write() as now:
            return exchange.exchange(self._tables, request, now)

    async def owned(self, owner: int) -> list[Owned]:
        with self._tables.read():
            rows = [self._tables.jobs[key] for key in self._tables.index.running.get(owner, ())]
            return [Owned(Claim(row.key, row.epoch), row.exchange, row.started) for row in rows]

    async def reap(self, *, crash_note: str, limit: int) -> Reaped:
        with self._tables.write() as now:
            for process in self._tables.processes.values():
                process.dead = not process.alive(now)
            lost = sorted(
                key
                for owner, held in self._tables.index.running.items()
                if not self._tables.alive(owner, now)
                for key in held
            )
            ends = [
                claims.reap(self._tables, self._tables.jobs[key], crash_note, now)
                for key in lost[:limit]
            ]
            return Reaped(
                ends.count(JobStatus.PENDING),
                ends.count(JobStatus.DEAD),
                ends.count(JobStatus.CANCELLED),
                len(lost) > limit,
            )

    async def promote(self, *, limit: int) -> Promoted:
        with self._tables.write() as now:
            return exchange.promote(self._tables, now, limit=limit)

    async def unhold(self, limit_key: str, *, limit: int) -> int:
        with self._tables.write() as now:
            oldest = self._tables.index.limit_buckets.waiting(limit_key)[: max(limit, 0)]
            for row in oldest:
                transitions.transition(self._tables, row, Event.UNHOLD, JobStatus.PENDING, now)
            return len(oldest)

    async def cancel(
        self, selection: Selection, *, reason: str, limit: int, after: Cursor | None = None
    ) -> Acted:
        with self._tables.write() as now:
            action = partial(_cancel, self._tables, reason, now)
            return bulk.act(self._tables, selection, action, limit=limit, after=after)

    async def retry(
        self, selection: Selection, *, limit: int, after: Cursor | None = None
    ) -> Acted:
        with self._tables.write() as now:
            action = partial(bulk.retry, self._tables, now=now)
            return bulk.act(self._tables, selection, action, limit=limit, after=after)

    async def run_now(
        self, selection: Selection, *, limit: int, after: Cursor | None = None
    ) -> Acted:
        with self._tables.write() as now:
            action = partial(bulk.run_now, self._tables, now=now)
            return bulk.act(self._tables, selection, action, limit=limit, after=after)

    async def delete(
        self, selection: Selection, *, limit: int, after: Cursor | None = None
    ) -> Acted:
        with self._tables.write() as now:
            action = partial(bulk.delete, self._tables, now=now)
            return bulk.act(self._tables, selection, action, limit=limit, after=after)

    async def purge(self, keep: Retention, *, limit: int) -> int:
        tables = self._tables
        with tables.write() as now:
            dedupe_keys.purge_lapsed(tables, now)
            old: list[Row] = []
            for row in tables.index.ended(partial(self._latest, keep, now)):
                if len(old) >= limit:
                    break
                if not dedupe_keys.is_held(tables, row, now):
                    old.append(row)
            for row in old:
                transitions.remove(tables, row, now)
            return len(old)

    async def get(self, job_id: str) -> JobRecord | None:
        with self._tables.read():
            row = self._tables.find(job_id)
            return None if row is None else row.record()

    async def page(self, filter: Filter, *, limit: int, after: Cursor | None = None) -> Page:
        with self._tables.read():
            found = bulk.find_rows(self._tables, filter, limit=limit, after=after)
            jobs = tuple(row.record() for row in found.rows)
            return Page(jobs, found.next, found.stopped, found.rows_read)

    async def peek(self, job_ids: Sequence[str]) -> list[Peek | None]:
        with self._tables.read():
            rows = [self._tables.find(job_id) for job_id in job_ids]
            return [
                None if row is None else Peek(row.status, row.result, row.last_error)
                for row in rows
            ]

    def _latest(
        self, keep: Retention, now: Instant, queue: str, status: JobStatus
    ) -> Instant | None:
        if keep.queue not in (None, queue):
            return None
        config = self._tables.queues.get(queue) if keep.queue is None else None
        if status is JobStatus.DONE:
            kept_s = keep.done_s if config is None else config.retain_done_s
        elif status is JobStatus.DEAD:
            kept_s = keep.dead_s if config is None else config.retain_dead_s
        else:
            kept_s = keep.cancelled_s if config is None else config.retain_cancelled_s
        return None if kept_s is None else now - round(kept_s * SECOND)


def _cancel(tables: Tables, reason: str, now: Instant, row: Row) -> bulk.Effect:
    return bulk.cancel(tables, row, reason, now)
