"""The job contract on SQLite: each method runs an operation on the writer or a query."""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from forge_jobs.backends.shared.rowwise import (
    actions,
    finish,
    limit_buckets,
    routing,
    steps,
    transitions,
)
from forge_jobs.core.errors import BadOption
from forge_jobs.core.instant import SECOND, Instant, due_at
from forge_jobs.core.job import Enqueued, JobRecord, NewJob
from forge_jobs.core.selection import Acted, BulkAction, Cursor, Filter, Order, Page, Selection
from forge_jobs.core.status import TERMINAL, JobStatus
from forge_jobs.kit.clock import Clock
from forge_jobs.store.job_upkeep import Promoted, Reaped
from forge_jobs.store.jobs import DeclaredClaim, Exchange, Exchanged, Owned, Peek, Retention

from . import enqueue, processes, promotion, queries
from .counters import Execute
from .enqueue import Enqueue
from .exchange import ExchangeOperation
from .io.reader import Reader
from .io.transaction import KEYS_SQL, ROWS_SQL, Tx
from .io.writer import Writer
from .json_text import as_json, read_keys
from .os import liveness_file
from .os.database_file import DatabaseFile
from .os.liveness_file import LivenessFiles
from .steps import SQL as STEPS_SQL

_NOTHING_REAPED: Final = Reaped()


class SqliteJobs:
    """Stores jobs; see ``forge_jobs.store.jobs`` for the contract of each method."""

    def __init__(
        self,
        database: DatabaseFile,
        writer: Writer,
        reader: Reader,
        liveness: LivenessFiles,
        clock: Clock,
        next_now: Callable[[Instant], Instant],
    ) -> None:
        self._database = database
        self._writer = writer
        self._reader = reader
        self._liveness = liveness
        self._clock = clock
        self._next_now = next_now
        self._slow_keys: set[int] = set()
        self.tag = 0

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        if len(jobs) == 1:
            return await self._writer.call_alone(Enqueue(jobs), self._enqueue_inline)
        return await self._writer.call(Enqueue(jobs), durable=True)

    def _enqueue_inline(self, operation: Enqueue) -> list[Enqueued] | None:
        """The same on the event loop's thread; None, without effect, if the job has options or
        other writers are busy."""
        now = self._next_now(self._clock.now())
        stored = enqueue.insert_on_loop(self._writer, operation.jobs[0], now, self.tag)
        return None if stored is None else [stored]

    def enqueue_sync(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """The same on the calling thread."""
        if len(jobs) == 1:
            now = self._next_now(self._clock.now())
            stored = enqueue.insert_single(self._writer, jobs[0], now, self.tag)
            if stored is not None:
                return [stored]
        return self._writer.call_here(Enqueue(jobs), durable=True)

    async def exchange(self, request: Exchange) -> Exchanged:
        operation = ExchangeOperation(
            request, is_alive=self._liveness.is_alive, slow_keys=self._slow_keys
        )
        return await self._writer.call_soon(operation, durable=operation.durable)

    def exchange_sync(self, request: Exchange) -> Exchanged:
        """The same on the calling thread, for programs without an event loop."""
        operation = ExchangeOperation(
            request, is_alive=self._liveness.is_alive, slow_keys=self._slow_keys
        )
        return self._writer.call_now(operation, durable=operation.durable)

    async def declare(self, owner: int, claims: Sequence[DeclaredClaim]) -> None:
        await self._writer.call(partial(_declare, owner, claims), durable=True)

    async def route(self, queues: Mapping[str, str], *, limit: int) -> int:
        find = partial(_unrouted, list(queues), limit)
        if not await self._reader.call(lambda connection: find(connection.execute)):
            return 0
        return await self._writer.call(lambda tx: _route(tx, find(tx.execute), queues))

    async def owned(self, owner: int) -> list[Owned]:
        return await self._reader.call(partial(queries.owned, owner=owner))

    async def reap(self, *, crash_note: str, limit: int) -> Reaped:
        if not await self._reader.call(self._has_orphans):
            return _NOTHING_REAPED
        return await self._writer.call(partial(self._reap, crash_note, limit), durable=True)

    async def promote(self, *, limit: int) -> Promoted:
        next_due = await self._reader.call(lambda connection: _next_due(connection.execute))
        if next_due is None or next_due > self._clock.now():
            return Promoted(next_due=next_due)
        return await self._writer.call(partial(_promote, limit))

    async def unhold(self, limit_key: str, *, limit: int) -> int:
        return await self._writer.call(
            lambda tx: limit_buckets.unhold(tx, limit_key, max(limit, 0))
        )

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
        return await self._writer.call(
            lambda tx: _act(
                tx,
                action,
                selection,
                reason=reason,
                run_at=due_at(tx.now, delay_s=delay_s, run_at=run_at),
                limit=limit,
                after=after,
            )
        )

    async def purge(self, keep: Retention, *, limit: int) -> int:
        now = self._clock.now()
        old, any_key = await self._reader.call(partial(_past_retention, keep, limit, now))
        if old == "[]" and not any_key:
            return 0
        return await self._writer.call(partial(_purge, old))

    async def get(self, job_id: str) -> JobRecord | None:
        return await self._reader.call(lambda connection: queries.get(connection, job_id, self.tag))

    async def page(
        self,
        filter: Filter,
        *,
        limit: int,
        after: Cursor | None = None,
        order: Order = Order.NEWEST,
    ) -> Page:
        return await self._reader.call(
            lambda connection: queries.page(
                connection, filter, limit=limit, after=after, tag=self.tag, order=order
            )
        )

    async def peek(self, job_ids: Sequence[str]) -> list[Peek | None]:
        return await self._reader.call(
            lambda connection: queries.peek(connection, job_ids, self.tag)
        )

    # ---------------------------------------------------------------- reaping

    def _has_orphans(self, connection: sqlite3.Connection) -> bool:
        presumed_alive = connection.execute(processes.SQL["presumed_alive"]).fetchall()
        if processes.find_dead(self._liveness, presumed_alive, self._clock.now()):
            return True
        alive = as_json([key for key, _ in presumed_alive])
        return bool(connection.execute(queries.SQL["any_orphan"], (alive,)).fetchone()[0])

    def _reap(self, crash_note: str, limit: int, tx: Tx) -> Reaped:
        presumed_alive = tx.execute(processes.SQL["presumed_alive"]).fetchall()
        dead = processes.find_dead(self._liveness, presumed_alive, tx.now)
        if dead:
            tx.execute(processes.SQL["mark_dead"], (as_json([key for key, _ in dead]), tx.now))
            for key, host_id in dead:
                tx.after_commit.append(
                    partial(liveness_file.remove_file, self._database, host_id, key)
                )
        dead_keys = {key for key, _ in dead}
        alive = as_json([key for key, _ in presumed_alive if key not in dead_keys])
        (found,) = tx.row(ROWS_SQL["orphans"], (alive, limit + 1))
        orphans = read_keys(found)
        rows = tx.load(orphans[:limit])
        steps.mark_found(tx, list(rows.values()))
        statuses = [finish.reap(tx, row, crash_note) for row in rows.values()]
        tx.store(list(rows.values()))
        return Reaped(
            statuses.count(JobStatus.PENDING),
            statuses.count(JobStatus.DEAD),
            statuses.count(JobStatus.CANCELLED),
            len(orphans) > limit,
        )


def _declare(owner: int, claims: Sequence[DeclaredClaim], tx: Tx) -> None:
    rows = tx.load([one.claim.key for one in claims])
    found = [(finish.claimed_row(rows, owner, one.claim), one.job) for one in claims]
    changed = [row for row, job in found if row is not None and row.declare(job)]
    tx.store(changed)
    tx.store_declared(changed)


def _unrouted(kinds: Sequence[str], limit: int, execute: Execute) -> list[int]:
    return [key for (key,) in execute(ROWS_SQL["unrouted"], (as_json(kinds), limit)).fetchall()]


def _route(tx: Tx, keys: Sequence[int], queues: Mapping[str, str]) -> int:
    rows = tx.load(keys)
    moved = routing.route(tx, rows.values(), queues)
    tx.store_routed(list(rows.values()))
    return moved


def _act(
    tx: Tx,
    action: BulkAction,
    selection: Selection,
    *,
    reason: str,
    run_at: Instant,
    limit: int,
    after: Cursor | None,
) -> Acted:
    """Apply an action to the selected jobs. A filter is scanned in descending order of keys, at
    most ``limit`` matching rows per call: each call makes progress, whatever the rows are, and none
    sees jobs that were enqueued after the first."""
    missing, following = 0, None
    if selection.filter is None:
        found_keys = queries.keys_of(tx.execute, tuple(dict.fromkeys(selection.ids)), tx.tag)
        keys = [key for key in found_keys if key is not None]
        missing = len(found_keys) - len(keys)
    else:
        found = queries.newest(tx.execute, selection.filter, limit=limit, after=after, tag=tx.tag)
        keys, following = found.keys, queries.cursor(found, tx.tag)
    rows = tx.load(keys) if keys else {}
    return actions.act(
        tx, action, reason, keys, rows, run_at=run_at, missing=missing, following=following
    )


def _next_due(execute: Execute) -> Instant | None:
    times = [due for _, due in execute(ROWS_SQL["due_queues"]).fetchall()]
    times.append(execute(ROWS_SQL["first_expiry"]).fetchone()[0])
    return min((time for time in times if time is not None), default=None)


def _promote(limit: int, tx: Tx) -> Promoted:
    tx.ingest()
    (keys,) = tx.row(ROWS_SQL["expired"], (tx.now, limit))
    expired = list(tx.load_text(keys).values()) if keys != "[]" else []
    transitions.expire(tx, expired)
    promoted = 0
    for queue, due in tx.execute(ROWS_SQL["due_queues"]).fetchall():
        if due <= tx.now and len(expired) + promoted < limit:
            promoted += promotion.promote(tx, queue, limit - len(expired) - promoted)
    next_due = _next_due(tx.execute)
    return Promoted(promoted, len(expired), next_due, next_due is not None and next_due <= tx.now)


def _past_retention(
    keep: Retention, limit: int, now: Instant, connection: sqlite3.Connection
) -> tuple[str, bool]:
    execute = connection.execute
    any_key = bool(
        execute(queries.SQL["any_expired_key"], (now,)).fetchone()[0]
        or execute(STEPS_SQL["any_ended_event"], (now,)).fetchone()[0]
    )
    (of_queues_s,) = execute(queries.SQL["shortest_retention"]).fetchone()
    retentions = [keep.done_s, keep.dead_s, keep.cancelled_s, of_queues_s]
    shortest_s = min((span for span in retentions if span is not None), default=None)
    if shortest_s is None or limit <= 0:
        return "[]", any_key
    (old,) = execute(
        queries.SQL["past_retention"],
        (
            now, _first_key_after(execute, now - round(shortest_s * SECOND)), keep.done_s,
            keep.dead_s, keep.cancelled_s, limit, keep.queue,
        ),
    ).fetchone()  # fmt: skip
    return old, any_key


def _first_key_after(execute: Execute, moment: Instant) -> int:
    """The first key of the jobs enqueued after that moment, by binary search."""
    low, high = execute(queries.SQL["key_range"]).fetchone()
    if low is None:
        return 0
    high += 1
    while low < high:
        middle = (low + high) // 2
        key, enqueued_at = execute(queries.SQL["at_or_after"], (middle,)).fetchone()
        if enqueued_at > moment:
            high = middle
        else:
            low = key + 1
    return low


def _purge(old: str, tx: Tx) -> int:
    tx.execute(KEYS_SQL["delete_expired_keys"], (tx.now,))
    tx.steps.purge()
    if old == "[]":
        return 0
    # One of them may have been retried since it was read.
    rows = [row for row in tx.load_text(old).values() if row.status in TERMINAL]
    transitions.delete(tx, rows)
    return len(rows)
