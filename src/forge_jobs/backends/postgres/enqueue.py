"""Storing jobs: calls that come together share a commit.

While one statement is on its way, the next batch gathers; nobody waits longer than for that.
Calls with a dedupe key go alone: they may have to wait for other transactions, and nobody else
should wait with them.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final
from weakref import WeakKeyDictionary

from forge_jobs.core.errors import ForgeError, Invalid
from forge_jobs.core.job import Enqueued, NewJob

from . import rows, sqlfiles
from .bell import Bell
from .session import Link, Server

CHUNK: Final = 2_000
_ALONE: Final = 500
_LIMIT_S: Final = 60.0


class _Line:
    """Calls of one event loop that wait for the next commit."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Sequence[NewJob], asyncio.Future[list[Enqueued]]]] = []
        self.task: asyncio.Task[None] | None = None


class Enqueuer:
    """Puts jobs into the database."""

    def __init__(self, server: Server, bell: Bell) -> None:
        self._server = server
        self._bell = bell
        self._sql = sqlfiles.statements("jobs", server.address.schema)["enqueue"]
        self._lines: WeakKeyDictionary[asyncio.AbstractEventLoop, _Line] = WeakKeyDictionary()
        self.tag = 0

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Store jobs in one durable transaction, then wake workers."""
        if not jobs:
            return []
        if len(jobs) > _ALONE or any(job.dedupe_key is not None for job in jobs):
            answers = await self._store(jobs)
            await self._bell.ring(job.queue for job in jobs)
            return answers
        loop = asyncio.get_running_loop()
        line = self._lines.get(loop)
        if line is None:
            line = self._lines[loop] = _Line()
        answer: asyncio.Future[list[Enqueued]] = loop.create_future()
        line.waiting.append((jobs, answer))
        if line.task is None:
            line.task = loop.create_task(self._flush(line))
        stored = await answer
        await self._bell.ring(job.queue for job in jobs)
        return stored

    async def insert(self, link: Link, jobs: Sequence[NewJob], now: int | None) -> list[Enqueued]:
        """Store jobs within a transaction of the caller's."""
        found = await link.fetch(self._sql, now, *rows.columns(jobs))
        return self._in_order(found)

    async def _store(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        now = self._server.present.bind()
        if len(jobs) <= CHUNK or any(job.dedupe_key is not None for job in jobs):
            found = await self._server.ask(self._sql, now, *rows.columns(jobs), limit_s=_LIMIT_S)
            return self._in_order(found)

        async def work(link: Link) -> list[Enqueued]:
            answers: list[Enqueued] = []
            for start in range(0, len(jobs), CHUNK):
                answers += await self.insert(link, jobs[start : start + CHUNK], now)
            return answers

        return await self._server.within(work, limit_s=_LIMIT_S + len(jobs) / 1_000)

    def _in_order(self, found: Sequence[Any]) -> list[Enqueued]:
        tag = self.tag
        if len(found) == 1:
            return [rows.enqueued(found[0], tag)]
        return [rows.enqueued(row, tag) for row in sorted(found, key=_place)]

    async def _flush(self, line: _Line) -> None:
        try:
            while line.waiting:
                await self._commit(_take(line))
        finally:
            line.task = None
            for _, answer in line.waiting:
                answer.cancel()
            line.waiting.clear()

    async def _commit(
        self, calls: Sequence[tuple[Sequence[NewJob], asyncio.Future[list[Enqueued]]]]
    ) -> None:
        try:
            answers = await self._store([job for jobs, _ in calls for job in jobs])
        except Invalid as error:
            if len(calls) == 1:
                _fail(calls[0][1], error)
                return
            # One bad job must not fail its neighbours.
            for call in calls:
                await self._commit([call])
        except ForgeError as error:
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


def _take(line: _Line) -> list[tuple[Sequence[NewJob], asyncio.Future[list[Enqueued]]]]:
    """As many calls as fit into one statement."""
    size = count = 0
    for jobs, _ in line.waiting:
        size += len(jobs)
        if size > CHUNK and count:
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


def _place(row: Any) -> int:
    return row[0]
