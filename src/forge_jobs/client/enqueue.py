"""Everything tasks and job handles share to reach the store."""

import asyncio
from collections.abc import Callable, Sequence
from sys import is_finalizing
from typing import Any, NamedTuple, Protocol, TypeVar

from forge_jobs.core.errors import Refused
from forge_jobs.core.job import Enqueued, NewJob
from forge_jobs.kit.clock import Clock
from forge_jobs.store.store import Store

from .job import Job
from .result_poller import ResultPoller
from .store_access import StoreAccess
from .transaction import aenqueue_in, enqueue_in

R = TypeVar("R")
Read = Callable[[bytes], Any]


class InlineMode(Protocol):
    """Runs jobs right after they were stored: the inline mode of tests."""

    def run(self, stored: Sequence[Enqueued]) -> None:
        """Run them before ``enqueue`` returns."""
        ...

    async def arun(self, stored: Sequence[Enqueued]) -> None:
        """Run them before ``aenqueue`` returns."""
        ...


class LocalWorker(NamedTuple):
    """A worker that runs in this process: its loop, and how to stop one of its jobs at once."""

    loop: asyncio.AbstractEventLoop
    request_cancel: Callable[[str], bool]


class JobEnqueuer:
    """Stores jobs and makes their handles."""

    __slots__ = ("access", "at_once", "poller", "workers")

    def __init__(self, access: StoreAccess, clock: Clock) -> None:
        self.access = access
        self.poller = ResultPoller(access, clock)
        self.at_once: InlineMode | None = None
        self.workers: list[LocalWorker] = []

    def send(self, job: NewJob, read: Read | None, tx: object = None) -> Job[Any]:
        """Store one job, from synchronous code."""
        if tx is None:
            direct = self.access.direct
            if direct is not None and not self.access.around and not is_finalizing():
                (stored,) = direct.enqueue_sync((job,))
            else:
                (stored,) = self.access.enqueue((job,))
            if self.at_once is not None:
                self.at_once.run([stored])
                return Job[Any](self, stored.id, read, stored.duplicate).refresh()
        else:
            (stored,) = self._within(self.access.ready(), tx, (job,))
        return Job(self, stored.id, read, stored.duplicate, stored.status)

    async def asend(self, job: NewJob, read: Read | None, tx: object = None) -> Job[Any]:
        """Store one job, from a coroutine."""
        if tx is None:
            (stored,) = await self.access.aenqueue((job,))
            if self.at_once is not None:
                await self.at_once.arun([stored])
                return await Job[Any](self, stored.id, read, stored.duplicate).arefresh()
        else:
            (stored,) = await self._awithin(await self.access.aready(), tx, (job,))
        return Job(self, stored.id, read, stored.duplicate, stored.status)

    def send_many(self, jobs: list[NewJob], read: Read | None, tx: object = None) -> list[Job[Any]]:
        """Store jobs in one commit, order kept."""
        if not jobs:
            return []
        if tx is not None:
            return self._handles(self._within(self.access.ready(), tx, jobs), read)
        stored = self.access.enqueue(jobs)
        handles = self._handles(stored, read)
        if self.at_once is not None:
            self.at_once.run(stored)
            return [handle.refresh() for handle in handles]
        return handles

    async def asend_many(
        self, jobs: list[NewJob], read: Read | None, tx: object = None
    ) -> list[Job[Any]]:
        """The same from a coroutine."""
        if not jobs:
            return []
        if tx is not None:
            return self._handles(await self._awithin(await self.access.aready(), tx, jobs), read)
        stored = await self.access.aenqueue(jobs)
        handles = self._handles(stored, read)
        if self.at_once is not None:
            await self.at_once.arun(stored)
            return [await handle.arefresh() for handle in handles]
        return handles

    def check_may_block(self, call: str, instead: str) -> None:
        """Refuse to wait on the very loop that would have to do the work."""
        if not self.workers:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        if any(worker.loop is loop for worker in self.workers):
            raise Refused(
                f"{call} would block the event loop that runs this worker and never return: "
                f"use {instead}"
            )

    def stop_here(self, job_id: str) -> None:
        """If the job runs in this process, end it now instead of when the store is read next."""
        for worker in self.workers:
            worker.request_cancel(job_id)

    def _within(self, store: Store, tx: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        around = self.access.around
        if not around:
            return enqueue_in(store, tx, jobs)
        return around.call(jobs, lambda changed: enqueue_in(store, tx, changed))

    async def _awithin(self, store: Store, tx: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        around = self.access.around
        if not around:
            return await aenqueue_in(store, tx, jobs)
        return await around.acall(jobs, lambda changed: aenqueue_in(store, tx, changed))

    def _handles(self, stored: Sequence[Enqueued], read: Read | None) -> list[Job[Any]]:
        return [Job(self, item.id, read, item.duplicate, item.status) for item in stored]
