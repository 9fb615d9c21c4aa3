"""Enqueues jobs by group commit: concurrent calls share a statement and its commit.

While one statement runs, new calls collect in the next batch; a call that finds none running does
not wait. Calls with a dedupe key are batched apart, because they may have to wait for other
transactions. Such a batch blocks the next for 0.1 s at most, and after a lock timeout each of its
calls is repeated separately.
"""

import asyncio
from collections.abc import Sequence
from itertools import repeat
from operator import attrgetter
from typing import Any, Final
from weakref import WeakKeyDictionary

from msgspec import structs

from forge_jobs.core import ids
from forge_jobs.core.errors import ForgeError, Invalid, Unknown
from forge_jobs.core.job import Enqueued, NewJob
from forge_jobs.core.parent import is_link
from forge_jobs.core.status import JobStatus

from . import rows, sql_files
from .connection import error_mapping
from .connection.driver import Row
from .connection.server import Link, Server
from .direct_enqueue import MAY_BE_STORED, DirectEnqueuer, procedure_of
from .notify.notifier import Notifier

# Jobs per statement: at most as many as a block of keys has (see the table ``jobs``).
CHUNK: Final = 2_000
# Calls with more jobs than this are not batched with others.
_MAX_BATCHED: Final = 500
_MAX_BATCHED_KEYED: Final = 50
# How long a batch of calls with dedupe keys may block the next one.
_KEYED_WAIT_S: Final = 0.1
# Up to this many jobs go as one JSON array, more as arrays of columns.
_MAX_JSON_JOBS: Final = 50
_LIMIT_S: Final = 60.0
_PENDING: Final = JobStatus.PENDING
# Statements that another one can replace, which notifies too.
_WITH_NOTIFY: Final = {
    "enqueue_one": "enqueue_and_notify",
    "enqueue_alike": "enqueue_and_notify",
    "enqueue_children": "enqueue_children_and_notify",
}
# Bytes. Larger payloads are stored in a table of their own.
_MAX_INLINE_PAYLOAD: Final = 2_048
# Separates payloads; JSON contains this character only escaped.
_SEPARATOR: Final = "\x1e"
_shape: Final = attrgetter(
    *(field for field in NewJob.__struct_fields__ if field not in ("payload",))
)
_options: Final = attrgetter(
    *(
        field
        for field in NewJob.__struct_fields__
        if field not in ("kind", "queue", "priority", "max_attempts", "payload")
    )
)
_NO_OPTIONS: Final = _options(NewJob(kind="any", queue="any"))
# Statements that a synchronous caller sends on its own thread.
_DIRECT: Final = ("enqueue_one", "enqueue_children")

_Call = tuple[Sequence[NewJob], "asyncio.Future[list[Enqueued]]"]
_Batches = WeakKeyDictionary[asyncio.AbstractEventLoop, "_Batch"]


class _Batch:
    """The calls of one event loop that wait for the next commit.

    A commit takes up to ``max_jobs`` jobs. The next one starts after it, or with ``max_wait_s`` at
    the latest that long after its start.
    """

    def __init__(self, max_jobs: int, max_wait_s: float | None) -> None:
        self.max_jobs = max_jobs
        self.max_wait_s = max_wait_s
        self.waiting: list[_Call] = []
        self.busy = False
        self.task: asyncio.Task[None] | None = None
        self.commits: set[asyncio.Task[None]] = set()

    def live_calls(self) -> bool:
        """Whether a call waits; drops those that were cancelled. When an event loop ends it cancels
        them all, once: a commit that were started for them then would be left in the middle."""
        self.waiting = [call for call in self.waiting if not call[1].done()]
        return bool(self.waiting)


class Enqueuer:
    """Stores new jobs and wakes workers."""

    def __init__(self, server: Server, notifier: Notifier) -> None:
        self._server = server
        self._notifier = notifier
        self._sql = sql_files.statements("jobs", server.address.schema)
        self._batches: _Batches = WeakKeyDictionary()
        self._keyed_batches: _Batches = WeakKeyDictionary()
        self._direct = DirectEnqueuer(server, notifier, self._sql, _LIMIT_S)
        # The jobs of a synchronous caller that had no connection of its own.
        self._wanted_by: Sequence[NewJob] | None = None
        self.tag = 0

    def try_enqueue_sync(self, jobs: Sequence[NewJob]) -> list[Enqueued] | None:
        """Store one job without options on the calling thread, over a connection that is lent for
        that. None, without an effect, if there is none or it is in use: then ``enqueue`` stores
        the same ``jobs``, and lends a connection for the next call."""
        lent = self._server.pool.lent
        if len(jobs) != 1 or self._server.pooled or not self._server.opened:
            return None
        name, values = self._statement(jobs)
        if name not in _DIRECT:
            return None
        if lent is None:
            self._wanted_by = jobs
            return None
        if not lent.is_free():
            return None
        with lent.lock:
            found = self._direct.store(lent, jobs[0].queue, name, _WITH_NOTIFY[name], values)
        if found is None:
            self._wanted_by = jobs
            return None
        key, at = found
        return [Enqueued(key, ids.job_id(key, at, self.tag), False, _PENDING)]

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Store jobs in one durable transaction, then wake workers."""
        if not jobs:
            return []
        try:
            return await self._enqueue(jobs)
        finally:
            if self._wanted_by is jobs:
                # This runs on the I/O thread for a synchronous caller.
                self._wanted_by = None
                self._server.pool.lend()

    async def _enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        keyed = any(job.dedupe_key is not None for job in jobs)
        if len(jobs) > (_MAX_BATCHED_KEYED if keyed else _MAX_BATCHED):
            replies, notified = await self._store_and_notify(jobs)
        else:
            replies, notified = await self._store_batched(jobs, keyed=keyed)
        if notified:
            self._notifier.notify_local(job.queue for job in jobs)
        else:
            await self._notifier.notify(job.queue for job in jobs)
        return replies

    async def insert(self, link: Link, jobs: Sequence[NewJob], now: int | None) -> list[Enqueued]:
        """Store jobs in the caller's transaction."""
        if not _is_one_statement(jobs):
            return await self._store_many(link, jobs, now)
        name, values = self._statement(jobs)
        return self._replies(await link.fetch(self._sql[name], now, *values), len(jobs))

    async def _store_batched(
        self, jobs: Sequence[NewJob], *, keyed: bool
    ) -> tuple[list[Enqueued], bool]:
        """Store jobs at once if no commit runs, else with the next batch. Also returns whether
        other processes were notified."""
        loop = asyncio.get_running_loop()
        batches = self._keyed_batches if keyed else self._batches
        batch = batches.get(loop)
        if batch is None:
            batch = batches[loop] = (
                _Batch(_MAX_BATCHED_KEYED, _KEYED_WAIT_S) if keyed else _Batch(CHUNK, None)
            )
        if batch.busy:
            reply: asyncio.Future[list[Enqueued]] = loop.create_future()
            batch.waiting.append((jobs, reply))
            if batch.max_wait_s is not None and batch.task is None and len(batch.waiting) == 1:
                loop.call_later(batch.max_wait_s, self._start, batch)
            return await reply, False
        batch.busy = True
        try:
            return await self._store_and_notify(jobs)
        finally:
            batch.busy = batch.task is not None
            self._start(batch)

    def _start(self, batch: _Batch) -> None:
        """Start storing the waiting calls, unless that is running already."""
        if batch.task is None and batch.live_calls():
            batch.busy = True
            batch.task = asyncio.get_running_loop().create_task(self._flush(batch))

    async def _store_and_notify(self, jobs: Sequence[NewJob]) -> tuple[list[Enqueued], bool]:
        """Store jobs and notify in the same round trip, where that is possible. Also returns
        whether it was."""
        if self._server.pooled or not _is_one_statement(jobs):
            return await self._store(jobs), False
        name, values = self._statement(jobs)
        if name not in _WITH_NOTIFY or (text := self._notification(jobs)) is None:
            return await self._ask(name, values, len(jobs)), False
        try:
            values = (self._server.address.channel, text, self._server.store_clock.bind(), *values)
            found = await self._server.ask(self._sql[_WITH_NOTIFY[name]], *values, limit_s=_LIMIT_S)
        except ForgeError as error:
            if error_mapping.may_follow_commit(error, procedure_of(_WITH_NOTIFY[name])):
                what = MAY_BE_STORED if len(jobs) == 1 else f"{len(jobs)} jobs may be stored"
                raise Unknown(f"{error}; {what}") from error.__cause__
            raise
        return self._replies(found, len(jobs)), True

    def _notification(self, jobs: Sequence[NewJob]) -> str | None:
        return self._notifier.inline_text(jobs[0].queue, len(jobs))

    async def _store(self, jobs: Sequence[NewJob], *, shared: bool = False) -> list[Enqueued]:
        if _is_one_statement(jobs):
            name, values = self._statement(jobs)
            if shared and name == "enqueue_json":
                name = "enqueue_shared"
            return await self._ask(name, values, len(jobs))
        now = self._server.store_clock.bind()
        return await self._server.within(
            lambda link: self._store_many(link, jobs, now), limit_s=_LIMIT_S + len(jobs) / 1_000
        )

    async def _ask(self, name: str, values: Sequence[Any], count: int) -> list[Enqueued]:
        now = self._server.store_clock.bind()
        found = await self._server.ask(self._sql[name], now, *values, limit_s=_LIMIT_S)
        return self._replies(found, count)

    async def _store_many(
        self, link: Link, jobs: Sequence[NewJob], now: int | None
    ) -> list[Enqueued]:
        """Store jobs in chunks: while the server stores one, the next is encoded and the previous
        reply decoded."""
        loop = asyncio.get_running_loop()
        replies: list[Enqueued] = []
        found: Sequence[Row] = ()
        name, values = self._statement(jobs[:CHUNK])
        for start in range(CHUNK, len(jobs) + CHUNK, CHUNK):
            storing = loop.create_task(link.fetch(self._sql[name], now, *values))
            # One iteration of the event loop sends the statement.
            await asyncio.wait([storing], timeout=0)
            replies += self._replies(found, CHUNK)
            if start < len(jobs):
                name, values = self._statement(jobs[start : start + CHUNK])
            found = await storing
        return replies + self._replies(found, len(jobs) - len(replies))

    def _statement(self, jobs: Sequence[NewJob]) -> tuple[str, Sequence[Any]]:
        """The statement that stores these jobs, and its arguments: a short one for jobs that differ
        only in small payloads."""
        first = jobs[0]
        link = first.options
        if link is None:
            if _options(first) != _NO_OPTIONS:
                return self._general(jobs)
        elif not is_link(link) or _options(structs.replace(first, options=None)) != _NO_OPTIONS:
            return self._general(jobs)
        shape, payloads = _shape(first), list[bytes]()
        for job in jobs:
            payload = job.payload
            if (job is not first and _shape(job) != shape) or len(payload) > _MAX_INLINE_PAYLOAD:
                return self._general(jobs)
            payloads.append(payload)
        joined = _SEPARATOR.encode().join(payloads).decode()
        if joined.count(_SEPARATOR) >= len(jobs) or not all(payloads):
            return self._general(jobs)
        values = (first.kind, first.queue, first.priority, first.max_attempts, joined)
        if link is not None:
            return "enqueue_children", (*values, rows.as_json(link))
        return "enqueue_one" if len(jobs) == 1 else "enqueue_alike", values

    def _general(self, jobs: Sequence[NewJob]) -> tuple[str, Sequence[Any]]:
        if len(jobs) <= _MAX_JSON_JOBS:
            return "enqueue_json", (str(self.tag), rows.as_json([rows.plain(job) for job in jobs]))
        return "enqueue", rows.columns(jobs)

    def _replies(self, found: Sequence[Row], count: int) -> list[Enqueued]:
        """The replies, in the order of the jobs."""
        if not found:
            return []
        tag = self.tag
        if len(found[0]) == 2:
            first, at, pending = found[0][0], found[0][1], _PENDING
            keys = range(first, first + count)
            job_ids = ids.job_ids(keys, at, tag)
            return list(map(Enqueued, keys, job_ids, repeat(False), repeat(pending)))
        return [rows.enqueued(row, tag) for row in sorted(found, key=_ordinal)]

    async def _flush(self, batch: _Batch) -> None:
        try:
            while batch.live_calls():
                commit = asyncio.create_task(self._commit(_take(batch)))
                batch.commits.add(commit)
                commit.add_done_callback(batch.commits.discard)
                await asyncio.wait([commit], timeout=batch.max_wait_s)
        finally:
            batch.busy = False
            batch.task = None
            for _, reply in batch.waiting:
                reply.cancel()
            batch.waiting.clear()

    async def _commit(self, calls: Sequence[_Call]) -> None:
        try:
            replies = await self._store(
                [job for jobs, _ in calls for job in jobs], shared=len(calls) > 1
            )
        except Invalid as error:
            if len(calls) == 1:
                _fail(calls[0][1], error)
                return
            # One invalid job must not fail the other calls of the batch.
            for call in calls:
                await self._commit([call])
        except ForgeError as error:
            if len(calls) > 1 and error_mapping.is_lock_timeout(error):
                # Perhaps only one of them waits for a dedupe key: run them apart.
                await asyncio.gather(*(self._commit([call]) for call in calls))
                return
            for _, reply in calls:
                _fail(reply, error)
        except BaseException:
            for _, reply in calls:
                reply.cancel()
            raise
        else:
            start = 0
            for jobs, reply in calls:
                if not reply.done():
                    reply.set_result(replies[start : start + len(jobs)])
                start += len(jobs)


def _is_one_statement(jobs: Sequence[NewJob]) -> bool:
    """Jobs with dedupe keys are never split: one statement locks the keys in order, and two calls
    that lock in the same order cannot deadlock."""
    return len(jobs) <= CHUNK or any(job.dedupe_key is not None for job in jobs)


def _take(batch: _Batch) -> list[_Call]:
    """Remove from the batch as many calls as fit into one statement."""
    size = count = 0
    for jobs, _ in batch.waiting:
        size += len(jobs)
        if size > batch.max_jobs and count:
            break
        count += 1
    taken, batch.waiting = batch.waiting[:count], batch.waiting[count:]
    return taken


def _fail(reply: "asyncio.Future[list[Enqueued]]", error: ForgeError) -> None:
    if not reply.done():
        # Each caller gets its own error object: a shared one would collect all their tracebacks.
        own = type(error)(str(error)) if type(error).__init__ is ForgeError.__init__ else error
        own.__cause__ = error.__cause__
        reply.set_exception(own)


def _ordinal(row: Row) -> int:
    return row[0]
