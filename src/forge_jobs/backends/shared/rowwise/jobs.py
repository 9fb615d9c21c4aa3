"""The job contract of a row-wise store: each method is one transaction over its tables."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice

from msgspec import structs

from forge_jobs.backends.shared.tracebacks import with_tracebacks
from forge_jobs.core.errors import BadOption
from forge_jobs.core.instant import SECOND, Instant, due_at
from forge_jobs.core.job import Claim, Enqueued, JobRecord, NewJob
from forge_jobs.core.selection import Acted, BulkAction, Cursor, Filter, Order, Page, Selection
from forge_jobs.core.status import JobStatus
from forge_jobs.store.job_upkeep import Promoted, Reaped
from forge_jobs.store.jobs import DeclaredClaim, Exchange, Exchanged, Owned, Peek, Retention

from . import actions, finish, limit_buckets, promotion, routing, search, steps, transitions
from .exchange import exchange
from .storage import Storage
from .transaction import Transaction


class RowwiseJobs:
    """``JobStore`` row by row; see ``forge_jobs.store.jobs`` for what each method promises."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        return self.enqueue_sync(jobs)

    def enqueue_sync(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        with self._storage.write() as tx:
            return tx.insert(jobs)

    async def exchange(self, request: Exchange) -> Exchanged:
        return self.exchange_sync(request)

    def exchange_sync(self, request: Exchange) -> Exchanged:
        with self._storage.write() as tx:
            return exchange(tx, request)

    async def declare(self, owner: int, claims: Sequence[DeclaredClaim]) -> None:
        with self._storage.write() as tx:
            rows = tx.load([one.claim.key for one in claims])
            for one in claims:
                row = finish.claimed_row(rows, owner, one.claim)
                if row is not None:
                    row.declare(one.job)
            tx.store(list(rows.values()))

    async def route(self, queues: Mapping[str, str], *, limit: int) -> int:
        index = self._storage.tables.index
        with self._storage.write() as tx:
            keys = list(islice(chain.from_iterable(map(index.unrouted, queues)), limit))
            return routing.route(tx, tx.load(keys).values(), queues)

    async def owned(self, owner: int) -> list[Owned]:
        tables = self._storage.tables
        with self._storage.read():
            rows = [tables.jobs[key] for key in tables.index.running(owner)]
            return [
                Owned(Claim(row.key, row.epoch), row.exchange, row.started_at is not None)
                for row in rows
            ]

    async def reap(self, *, crash_note: str, limit: int) -> Reaped:
        with self._storage.write() as tx:
            return _reap(tx, crash_note, limit)

    async def promote(self, *, limit: int) -> Promoted:
        with self._storage.write() as tx:
            return promotion.promote(tx, limit=limit)

    async def unhold(self, limit_key: str, *, limit: int) -> int:
        with self._storage.write() as tx:
            return limit_buckets.unhold(tx, limit_key, max(limit, 0))

    async def act(
        self,
        action: BulkAction,
        selection: Selection,
        *,
        reason: str = "",
        delay_s: float = 0.0,
        run_at: Instant | None = None,
        limit: int,
        after: Cursor | None = None,
    ) -> Acted:
        if selection.ids and selection.filter is not None:
            raise BadOption("a selection takes ids or a filter, not both")
        tables = self._storage.tables
        with self._storage.write() as tx:
            missing, following = 0, None
            if selection.filter is None:
                found = [tables.find(public_id) for public_id in dict.fromkeys(selection.ids)]
                missing = found.count(None)
                keys = [row.key for row in found if row is not None]
            else:
                page = search.find_rows(tables, selection.filter, limit=limit, after=after)
                keys, following = [row.key for row in page.rows], page.next
            return actions.act(
                tx,
                action,
                reason,
                keys,
                tx.load(keys),
                run_at=due_at(tx.now, delay_s=delay_s, run_at=run_at),
                missing=missing,
                following=following,
            )

    async def purge(self, keep: Retention, *, limit: int) -> int:
        with self._storage.write() as tx:
            _delete_expired_keys(tx)
            tx.steps.purge()
            old = tx.load(list(islice(_past_retention(tx, keep), max(limit, 0))))
            transitions.delete(tx, list(old.values()))
            return len(old)

    async def get(self, job_id: str) -> JobRecord | None:
        with self._storage.read():
            tables = self._storage.tables
            row = tables.find(job_id)
            if row is None:
                return None
            return with_tracebacks(row.record(), tables.tracebacks.get(row.key, ()))

    async def page(
        self,
        filter: Filter,
        *,
        limit: int,
        after: Cursor | None = None,
        order: Order = Order.NEWEST,
    ) -> Page:
        with self._storage.read():
            found = search.page_of_rows(
                self._storage.tables, filter, limit=limit, after=after, order=order
            )
            jobs = tuple(row.record() for row in found.rows)
            return Page(jobs, found.next, found.stopped, found.rows_read)

    async def peek(self, job_ids: Sequence[str]) -> list[Peek | None]:
        with self._storage.read():
            rows = [self._storage.tables.find(job_id) for job_id in job_ids]
            return [
                None if row is None else Peek(row.status, row.result, row.last_error)
                for row in rows
            ]


def _reap(tx: Transaction, crash_note: str, limit: int) -> Reaped:
    tables = tx.tables
    for key, process in list(tables.processes.items()):
        if not process.dead and not process.alive(tx.now):
            tables.processes[key] = structs.replace(process, dead=True)
    orphans = sorted(
        key
        for owner in tables.index.owners()
        if not tables.alive(owner, tx.now)
        for key in tables.index.running(owner)
    )
    rows = list(tx.load(orphans[:limit]).values())
    steps.mark_found(tx, rows)
    targets = [finish.reap(tx, row, crash_note) for row in rows]
    tx.store(rows)
    return Reaped(
        targets.count(JobStatus.PENDING),
        targets.count(JobStatus.DEAD),
        targets.count(JobStatus.CANCELLED),
        len(orphans) > limit,
    )


def _delete_expired_keys(tx: Transaction) -> None:
    entries = tx.tables.dedupe_entries
    for name, entry in list(entries.items()):
        if entry.until is not None and entry.until <= tx.now:
            del entries[name]


def _past_retention(tx: Transaction, keep: Retention) -> Iterator[int]:
    """Terminal jobs past their retention that hold no dedupe key."""
    tables = tx.tables
    for queue, status in tables.index.ended_groups():
        latest = _latest(tx, keep, queue, status)
        for key in tables.index.ended(queue, status, latest) if latest is not None else ():
            row = tables.jobs[key]
            holder = row.dedupe_key and tx.key_holder(row.kind, row.dedupe_key)
            if not holder or holder.key != key:
                yield key


def _latest(tx: Transaction, keep: Retention, queue: str, status: JobStatus) -> Instant | None:
    """Jobs that ended at this instant or earlier are past their retention; None if none are."""
    if keep.queue not in (None, queue):
        return None
    config = tx.tables.queues.get(queue) if keep.queue is None else None
    if status is JobStatus.DONE:
        kept_s = keep.done_s if config is None else config.retain_done_s
    elif status is JobStatus.DEAD:
        kept_s = keep.dead_s if config is None else config.retain_dead_s
    else:
        kept_s = keep.cancelled_s if config is None else config.retain_cancelled_s
    return None if kept_s is None else tx.now - round(kept_s * SECOND)
