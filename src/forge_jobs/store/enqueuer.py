"""The one way by which a process stores jobs: hooks, synchronous, awaited, or in a transaction.

Tasks, job handles, handlers inside workers, plain calls and the pull queue all go through
``Enqueuer``. They differ only in how they reach their store, which is what ``StorePort`` says.
"""

import sys
from asyncio import Task
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

from forge_jobs.core.job import Enqueued, NewJob
from forge_jobs.core.parent import Via, with_parents
from forge_jobs.kit.hooks import Hooks
from forge_jobs.kit.log import current_job_id

from .joined import JoinedBlock, joined_transaction
from .store import Store

T = TypeVar("T")
EnqueueHooks = Hooks[NewJob, Enqueued]


class StorePort(Protocol):
    """How the callers of a process reach their store, from any thread or event loop."""

    @property
    def opened(self) -> Store | None:
        """The store once it is open; None before that."""
        ...

    @property
    def direct(self) -> Store | None:
        """The open store, if it can be written on the calling thread (``enqueue_sync``)."""
        ...

    def ready(self) -> Store:
        """The open store, for synchronous code; opens it on first use."""
        ...

    async def aready(self) -> Store:
        """The open store, for coroutines; opens it on first use."""
        ...

    def unopened(self) -> Store | None:
        """The store, not necessarily open, if it can join a transaction like that: opening could
        wait for the very transaction. None if it must be open."""
        ...

    def run(self, work: Callable[[Store], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine on another thread's loop and wait for it, from synchronous code."""
        ...

    def spawn(self, work: Callable[[], Coroutine[Any, Any, T]]) -> "Future[T] | Task[T]":
        """Start a coroutine in the background."""
        ...


class Enqueuer:
    """Stores new jobs and calls the ``around_enqueue`` hooks; safe for many threads and loops. Jobs
    that a handler enqueues are linked to its job.

    Every method returns once the jobs are durable, except ``prepare``, which stores nothing.
    """

    __slots__ = ("_hooks", "_port")

    def __init__(self, port: StorePort, hooks: EnqueueHooks | None = None) -> None:
        self._port = port
        self._hooks: EnqueueHooks = Hooks() if hooks is None else hooks

    def join(self, transaction: T) -> JoinedBlock[T]:
        """A block whose enqueues are part of this transaction."""
        return JoinedBlock(self._hooks, transaction)

    def joined(self) -> object:
        """The transaction that an enqueue would join here; None outside of such a block."""
        return joined_transaction(self._hooks)

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Store jobs in one transaction, from synchronous code; the replies line up with them."""
        joined = joined_transaction(self._hooks)
        if joined is not None:
            return self.enqueue_in(joined, jobs)
        jobs = _linked(jobs)
        if self._hooks.hooks:
            return self._hooks.call(jobs, self._enqueue)
        direct = self._port.direct
        if direct is not None and not sys.is_finalizing():
            return direct.enqueue_sync(jobs)
        return self._enqueue(jobs)

    async def aenqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """``enqueue`` for coroutines; concurrent calls may share a commit."""
        joined = joined_transaction(self._hooks)
        if joined is not None:
            return await self.aenqueue_in(joined, jobs)
        jobs = _linked(jobs)
        store = self._port.opened or await self._port.aready()
        if self._hooks.hooks:
            return await self._hooks.acall(jobs, store.jobs.enqueue)
        return await store.jobs.enqueue(jobs)

    def enqueue_in(self, transaction: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Store jobs inside the caller's own transaction: they exist once it commits."""
        jobs = _linked(jobs)
        store = self._port.opened or self._port.unopened() or self._port.ready()
        if self._hooks.hooks:
            return self._hooks.call(jobs, lambda changed: store.enqueue_in(transaction, changed))
        return store.enqueue_in(transaction, jobs)

    async def aenqueue_in(self, transaction: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """``enqueue_in`` for coroutines; also takes connections that must be awaited."""
        jobs = _linked(jobs)
        store = self._port.opened or self._port.unopened() or await self._port.aready()
        if self._hooks.hooks:
            return await self._hooks.acall(
                jobs, lambda changed: store.aenqueue_in(transaction, changed)
            )
        return await store.aenqueue_in(transaction, jobs)

    def prepare(self, job: NewJob) -> NewJob:
        """The job as the hooks change it, for a job that another write stores: the finish of its
        parent, or a schedule's tick. No hook sees the reply."""
        return self._hooks.prepared(job) if self._hooks.hooks else job

    def _enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        store = self._port.ready()
        if store.capabilities.sync_calls:
            return store.enqueue_sync(jobs)
        stored = store.try_enqueue_sync(jobs)
        if stored is not None:
            return stored
        return self._port.run(lambda store: store.jobs.enqueue(jobs))


def _linked(jobs: Sequence[NewJob]) -> Sequence[NewJob]:
    """The jobs with a link to the job whose handler enqueues them, if one does."""
    parent = current_job_id()
    return jobs if parent is None else with_parents(jobs, parent, Via.HANDLER)
