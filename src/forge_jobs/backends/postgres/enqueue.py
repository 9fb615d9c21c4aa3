"""Storing jobs: calls that come together share a commit.

While one statement is on its way, the next batch gathers; nobody waits longer than for that.
Calls with a dedupe key have a line of their own: they may have to wait for other transactions, and
nobody else should wait with them. A batch that waits is passed by the next, and in the end its
calls go on one by one.
"""

import asyncio
from collections.abc import Sequence
from itertools import repeat
from operator import attrgetter
from typing import Any, Final
from weakref import WeakKeyDictionary

from forge_jobs.core import ids
from forge_jobs.core.errors import ForgeError, Invalid, Unavailable, Unknown
from forge_jobs.core.job import Enqueued, NewJob
from forge_jobs.core.status import JobStatus

from . import rows, sql_files
from .connection import error_mapping
from .connection.driver import Row
from .connection.server import Link, Server
from .notify.notifier import Notifier

# No more than a block of keys has (see the table of jobs).
CHUNK: Final = 2_000
_ALONE: Final = 500
_KEYED: Final = 50
_PASSED_S: Final = 0.1
_FEW: Final = 50
_LIMIT_S: Final = 60.0
_PENDING: Final = JobStatus.PENDING
# Statements that enqueue_and_tell stands in for.
_TELLING: Final = ("enqueue_one", "enqueue_alike")
# Larger payloads lie in a table of their own.
_SMALL: Final = 2_048
# Stands between payloads; JSON has it only escaped.
_BETWEEN: Final = "\x1e"
_shape: Final = attrgetter(
    *(field for field in NewJob.__struct_fields__ if field not in ("payload",))
)
_wishes: Final = attrgetter(
    *(
        field
        for field in NewJob.__struct_fields__
        if field not in ("kind", "queue", "priority", "max_attempts", "payload")
    )
)
_NO_WISHES: Final = _wishes(NewJob(kind="any", queue="any"))

_Call = tuple[Sequence[NewJob], "asyncio.Future[list[Enqueued]]"]
_Lines = WeakKeyDictionary[asyncio.AbstractEventLoop, "_Line"]


class _Line:
    """Calls of one event loop that wait for the next commit.

    A commit takes ``most`` jobs; the next one waits for it, but with ``passed_s`` no longer.
    """

    def __init__(self, most: int, passed_s: float | None) -> None:
        self.most = most
        self.passed_s = passed_s
        self.waiting: list[_Call] = []
        self.busy = False
        self.task: asyncio.Task[None] | None = None
        self.commits: set[asyncio.Task[None]] = set()


class Enqueuer:
    """Puts jobs into the database."""

    def __init__(self, server: Server, bell: Notifier) -> None:
        self._server = server
        self._bell = bell
        self._sql = sql_files.statements("jobs", server.address.schema)
        self._lines: _Lines = WeakKeyDictionary()
        self._keyed_lines: _Lines = WeakKeyDictionary()
        self.tag = 0

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Store jobs in one durable transaction, then wake workers."""
        if not jobs:
            return []
        keyed = any(job.dedupe_key is not None for job in jobs)
        if len(jobs) > (_KEYED if keyed else _ALONE):
            answers, told = await self._store_and_tell(jobs)
        else:
            answers, told = await self._in_line(jobs, keyed=keyed)
        if told:
            self._bell.heard(job.queue for job in jobs)
        else:
            await self._bell.notify(job.queue for job in jobs)
        return answers

    async def insert(self, link: Link, jobs: Sequence[NewJob], now: int | None) -> list[Enqueued]:
        """Store jobs within a transaction of the caller's."""
        if not _is_one_statement(jobs):
            return await self._store_many(link, jobs, now)
        name, values = self._statement(jobs)
        return self._answers(await link.fetch(self._sql[name], now, *values), len(jobs))

    async def _in_line(self, jobs: Sequence[NewJob], *, keyed: bool) -> tuple[list[Enqueued], bool]:
        """With the calls that come meanwhile; the first one does not wait for them. And whether
        workers elsewhere have been told."""
        loop = asyncio.get_running_loop()
        lines = self._keyed_lines if keyed else self._lines
        line = lines.get(loop)
        if line is None:
            line = lines[loop] = _Line(_KEYED, _PASSED_S) if keyed else _Line(CHUNK, None)
        if line.busy:
            answer: asyncio.Future[list[Enqueued]] = loop.create_future()
            line.waiting.append((jobs, answer))
            if line.passed_s is not None and line.task is None and len(line.waiting) == 1:
                loop.call_later(line.passed_s, self._start, line)
            return await answer, False
        line.busy = True
        try:
            return await self._store_and_tell(jobs)
        finally:
            line.busy = line.task is not None
            self._start(line)

    def _start(self, line: _Line) -> None:
        """Store what waits, unless that is going on already."""
        if line.waiting and line.task is None:
            line.busy = True
            line.task = asyncio.get_running_loop().create_task(self._flush(line))

    async def _store_and_tell(self, jobs: Sequence[NewJob]) -> tuple[list[Enqueued], bool]:
        """With the notification in the same round trip, where that is possible; and whether it
        was."""
        if self._server.pooled or not _is_one_statement(jobs):
            return await self._store(jobs), False
        name, values = self._statement(jobs)
        if name not in _TELLING or (said := self._give_turn(jobs)) is None:
            return await self._ask(name, values, len(jobs)), False
        try:
            values = (self._server.address.channel, said, self._server.present.bind(), *values)
            found = await self._server.ask(
                self._sql["enqueue_and_notify"], *values, limit_s=_LIMIT_S
            )
        except Unavailable as error:
            if error_mapping.is_half_done(error):
                place = self._server.address.place
                what = "the job" if len(jobs) == 1 else f"{len(jobs)} jobs"
                raise Unknown(f"{place} was stopped: {what} may be stored") from error.__cause__
            raise
        return self._answers(found, len(jobs)), True

    def _give_turn(self, jobs: Sequence[NewJob]) -> str | None:
        return self._bell.give_turn(jobs[0].queue, len(jobs))

    async def _store(self, jobs: Sequence[NewJob], *, shared: bool = False) -> list[Enqueued]:
        if _is_one_statement(jobs):
            name, values = self._statement(jobs)
            if shared and name == "enqueue_json":
                name = "enqueue_shared"
            return await self._ask(name, values, len(jobs))
        now = self._server.present.bind()
        return await self._server.within(
            lambda link: self._store_many(link, jobs, now), limit_s=_LIMIT_S + len(jobs) / 1_000
        )

    async def _ask(self, name: str, values: Sequence[Any], count: int) -> list[Enqueued]:
        now = self._server.present.bind()
        found = await self._server.ask(self._sql[name], now, *values, limit_s=_LIMIT_S)
        return self._answers(found, count)

    async def _store_many(
        self, link: Link, jobs: Sequence[NewJob], now: int | None
    ) -> list[Enqueued]:
        """Chunk by chunk: while the server stores one, the next is packed and the last unpacked."""
        loop = asyncio.get_running_loop()
        answers: list[Enqueued] = []
        found: Sequence[Row] = ()
        name, values = self._statement(jobs[:CHUNK])
        for start in range(CHUNK, len(jobs) + CHUNK, CHUNK):
            storing = loop.create_task(link.fetch(self._sql[name], now, *values))
            # One turn of the loop sends it.
            await asyncio.wait([storing], timeout=0)
            answers += self._answers(found, CHUNK)
            if start < len(jobs):
                name, values = self._statement(jobs[start : start + CHUNK])
            found = await storing
        return answers + self._answers(found, len(jobs) - len(answers))

    def _statement(self, jobs: Sequence[NewJob]) -> tuple[str, Sequence[Any]]:
        """Which statement stores these jobs, and its arguments."""
        first = jobs[0]
        if _wishes(first) != _NO_WISHES:
            return self._general(jobs)
        shape, payloads = _shape(first), list[bytes]()
        for job in jobs:
            payload = job.payload
            if (job is not first and _shape(job) != shape) or len(payload) > _SMALL:
                return self._general(jobs)
            payloads.append(payload)
        together = _BETWEEN.encode().join(payloads).decode()
        if together.count(_BETWEEN) >= len(jobs) or not all(payloads):
            return self._general(jobs)
        return "enqueue_one" if len(jobs) == 1 else "enqueue_alike", (
            first.kind, first.queue, first.priority, first.max_attempts, together,
        )  # fmt: skip

    def _general(self, jobs: Sequence[NewJob]) -> tuple[str, Sequence[Any]]:
        if len(jobs) <= _FEW:
            return "enqueue_json", (str(self.tag), rows.as_json([rows.plain(job) for job in jobs]))
        return "enqueue", rows.columns(jobs)

    def _answers(self, found: Sequence[Row], count: int) -> list[Enqueued]:
        """In the order of the requests."""
        if not found:
            return []
        tag = self.tag
        if len(found[0]) == 2:
            first, at, pending = found[0][0], found[0][1], _PENDING
            keys = range(first, first + count)
            told = ids.job_ids(keys, at, tag)
            return list(map(Enqueued, keys, told, repeat(False), repeat(pending)))
        return [rows.enqueued(row, tag) for row in sorted(found, key=_position)]

    async def _flush(self, line: _Line) -> None:
        try:
            while line.waiting:
                commit = asyncio.create_task(self._commit(_take(line)))
                line.commits.add(commit)
                commit.add_done_callback(line.commits.discard)
                await asyncio.wait([commit], timeout=line.passed_s)
        finally:
            line.busy = False
            line.task = None
            for _, answer in line.waiting:
                answer.cancel()
            line.waiting.clear()

    async def _commit(self, calls: Sequence[_Call]) -> None:
        try:
            answers = await self._store(
                [job for jobs, _ in calls for job in jobs], shared=len(calls) > 1
            )
        except Invalid as error:
            if len(calls) == 1:
                _fail(calls[0][1], error)
                return
            # One bad job must not fail its neighbours.
            for call in calls:
                await self._commit([call])
        except ForgeError as error:
            if len(calls) > 1 and error_mapping.is_held_up(error):
                # Only one of them has to wait for somebody's key.
                await asyncio.gather(*(self._commit([call]) for call in calls))
                return
            for _, answer in calls:
                _fail(answer, error)
        except BaseException:
            for _, answer in calls:
                answer.cancel()
            raise
        else:
            start = 0
            for jobs, answer in calls:
                if not answer.done():
                    answer.set_result(answers[start : start + len(jobs)])
                start += len(jobs)


def _is_one_statement(jobs: Sequence[NewJob]) -> bool:
    """Jobs with keys stay together: their keys are taken in an order that all callers share."""
    return len(jobs) <= CHUNK or any(job.dedupe_key is not None for job in jobs)


def _take(line: _Line) -> list[_Call]:
    """As many calls as fit into one statement."""
    size = count = 0
    for jobs, _ in line.waiting:
        size += len(jobs)
        if size > line.most and count:
            break
        count += 1
    taken, line.waiting = line.waiting[:count], line.waiting[count:]
    return taken


def _fail(answer: "asyncio.Future[list[Enqueued]]", error: ForgeError) -> None:
    if not answer.done():
        # Each caller gets an error of its own: a shared one would collect all their tracebacks.
        own = type(error)(str(error)) if type(error).__init__ is ForgeError.__init__ else error
        own.__cause__ = error.__cause__
        answer.set_exception(own)


def _position(row: Row) -> int:
    return row[0]
