"""Handlers enqueue through the store of their worker."""

import asyncio
from collections.abc import Sequence

from forge_jobs.core.errors import BadOption
from forge_jobs.core.job import Enqueued, NewJob
from forge_jobs.kit.hooks import Hooks
from forge_jobs.kit.io_thread import IoPort
from forge_jobs.store.store import Store


class StoreEnqueuer:
    """Synchronous calls go the store's own short way, or over the I/O port where it has none."""

    def __init__(
        self, store: Store, io: IoPort, around: Hooks[NewJob, Enqueued] | None = None
    ) -> None:
        self._store = store
        self._io = io
        self._around = around or Hooks()

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """From synchronous code."""
        return self._around.call(jobs, self._enqueue) if self._around else self._enqueue(jobs)

    async def aenqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """From a coroutine."""
        if self._around:
            return await self._around.acall(jobs, self._store.jobs.enqueue)
        return await self._store.jobs.enqueue(jobs)

    def prepared(self, job: NewJob) -> NewJob:
        """What hooks make of a job that goes along with an ending."""
        return self._around.prepared(job) if self._around else job

    def _enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        if self._store.capabilities.sync_enqueue:
            return self._store.enqueue_sync(jobs)
        answer = self._io.spawn(lambda: self._store.jobs.enqueue(jobs))
        if isinstance(answer, asyncio.Task):
            answer.cancel()
            raise BadOption("this store has no synchronous way in: use await ctx.aenqueue(…)")
        return answer.result()
