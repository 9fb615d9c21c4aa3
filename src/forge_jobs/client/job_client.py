"""What tasks and job handles share: the store, the enqueuer, the result poller, local workers."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from forge_jobs.core.errors import Refused
from forge_jobs.core.job import Enqueued, NewJob
from forge_jobs.kit.clock import Clock
from forge_jobs.store.enqueuer import Enqueuer

from .job import Job
from .result_poller import ResultPoller
from .store_access import StoreAccess

ReadResult = Callable[[bytes], Any]


class InlineMode(Protocol):
    """Runs jobs right after they were stored: the inline mode of tests."""

    def run(self, stored: Sequence[Enqueued]) -> None:
        """Run them before ``enqueue`` returns."""
        ...

    async def arun(self, stored: Sequence[Enqueued]) -> None:
        """Run them before ``aenqueue`` returns."""
        ...

    def check_transaction(self) -> None:
        """Refused for a job that is stored in the caller's transaction: it cannot run before the
        commit."""
        ...


class LocalWorker(NamedTuple):
    """A worker that runs in this process: its loop, and how to stop one of its jobs at once."""

    loop: asyncio.AbstractEventLoop
    request_cancel: Callable[[str], bool]


class JobClient:
    """Stores jobs through the enqueuer and returns their handles.

    ``read`` decodes a job's result; ``tx`` is the caller's own connection with an open transaction,
    None to store the job at once, or in the transaction that the caller has joined.
    """

    __slots__ = ("access", "enqueuer", "inline_mode", "poller", "reader_of", "workers")

    def __init__(self, access: StoreAccess, enqueuer: Enqueuer, clock: Clock) -> None:
        self.access = access
        self.enqueuer = enqueuer
        self.poller = ResultPoller(access, clock)
        self.inline_mode: InlineMode | None = None
        self.workers: list[LocalWorker] = []
        # How the results of a kind are decoded; None for a kind without a task here.
        self.reader_of: Callable[[str], ReadResult | None] = lambda kind: None

    def enqueue(self, job: NewJob, read: ReadResult | None, tx: object = None) -> Job[Any]:
        """Store one job, from synchronous code."""
        if tx is None:
            tx = self.enqueuer.joined()
        if tx is None:
            (stored,) = self.enqueuer.enqueue((job,))
            if self.inline_mode is not None:
                self.inline_mode.run([stored])
                return Job[Any](self, stored.id, read, stored.duplicate).refresh()
        else:
            self._check_transaction()
            (stored,) = self.enqueuer.enqueue_in(tx, (job,))
        return Job(self, stored.id, read, stored.duplicate, stored.status)

    async def aenqueue(self, job: NewJob, read: ReadResult | None, tx: object = None) -> Job[Any]:
        """``enqueue`` for coroutines."""
        if tx is None:
            tx = self.enqueuer.joined()
        if tx is None:
            (stored,) = await self.enqueuer.aenqueue((job,))
            if self.inline_mode is not None:
                await self.inline_mode.arun([stored])
                return await Job[Any](self, stored.id, read, stored.duplicate).arefresh()
        else:
            self._check_transaction()
            (stored,) = await self.enqueuer.aenqueue_in(tx, (job,))
        return Job(self, stored.id, read, stored.duplicate, stored.status)

    def enqueue_many(
        self, jobs: list[NewJob], read: ReadResult | None, tx: object = None
    ) -> list[Job[Any]]:
        """Store jobs in one transaction, order kept."""
        if not jobs:
            return []
        if tx is None:
            tx = self.enqueuer.joined()
        if tx is not None:
            self._check_transaction()
            return self._handles(self.enqueuer.enqueue_in(tx, jobs), read)
        stored = self.enqueuer.enqueue(jobs)
        handles = self._handles(stored, read)
        if self.inline_mode is not None:
            self.inline_mode.run(stored)
            return [handle.refresh() for handle in handles]
        return handles

    async def aenqueue_many(
        self, jobs: list[NewJob], read: ReadResult | None, tx: object = None
    ) -> list[Job[Any]]:
        """``enqueue_many`` for coroutines."""
        if not jobs:
            return []
        if tx is None:
            tx = self.enqueuer.joined()
        if tx is not None:
            self._check_transaction()
            return self._handles(await self.enqueuer.aenqueue_in(tx, jobs), read)
        stored = await self.enqueuer.aenqueue(jobs)
        handles = self._handles(stored, read)
        if self.inline_mode is not None:
            await self.inline_mode.arun(stored)
            return [await handle.arefresh() for handle in handles]
        return handles

    def check_may_block(self, call: str, instead: str) -> None:
        """Refused on an event loop that runs a worker: the caller would wait for a job that this
        very loop has to run."""
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

    def cancel_local(self, job_id: str) -> None:
        """Cancel the job at once if it runs in this process, without waiting until its worker reads
        the request from the store."""
        for worker in self.workers:
            worker.request_cancel(job_id)

    def _check_transaction(self) -> None:
        if self.inline_mode is not None:
            self.inline_mode.check_transaction()

    def _handles(self, stored: Sequence[Enqueued], read: ReadResult | None) -> list[Job[Any]]:
        return [Job(self, item.id, read, item.duplicate, item.status) for item in stored]
