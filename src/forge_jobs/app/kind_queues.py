"""Which queue a kind belongs to, and what binds its jobs: the local tasks say it, else what workers
have published."""

from collections.abc import Mapping
from typing import Any

from forge_jobs.client.store_access import StoreAccess
from forge_jobs.client.task import Task
from forge_jobs.config import DEFAULT_QUEUE
from forge_jobs.core import names, payload
from forge_jobs.core.job import NewJob
from forge_jobs.engine.requests.published_kinds import PublishedKinds
from forge_jobs.engine.running.registry import HandlerRegistry
from forge_jobs.kit.clock import Clock
from forge_jobs.store.store import Store


class KindQueues:
    """Looks kinds up; what the store says is kept for a few seconds."""

    def __init__(
        self,
        tasks: Mapping[str, Task[..., Any]],
        registry: HandlerRegistry,
        access: StoreAccess,
        clock: Clock,
    ) -> None:
        self._tasks = tasks
        self._registry = registry
        self._access = access
        self._published = PublishedKinds(access.aready, access.spawn, clock)

    async def learn(self) -> None:
        """Read what workers have published, so that ``route`` knows it."""
        await self._published.learn()

    def route(self, kind: str) -> str:
        """The queue of a kind by what is known here: never waits, so that handlers may ask it on
        their loop. What is older than a few seconds is read anew meanwhile."""
        local = self.local(kind)
        if local is not None:
            return local
        return self._published.aside().queues.get(kind, DEFAULT_QUEUE)

    def request(self, kind: str, value: Any) -> NewJob:
        """The request for a job by its kind, as ``forge.enqueue`` makes it but without waiting."""
        task = self._tasks.get(names.kind_name(kind))
        if task is not None:
            return task.bind_payload(value)
        body = payload.encode(value)
        return self._published.bound(NewJob(kind=kind, queue=self.route(kind), payload=body))

    def find(self, kind: str) -> str:
        """The queue of a kind, from synchronous code."""
        local = self.local(kind)
        return local or self._read().queues.get(kind, DEFAULT_QUEUE)

    async def afind(self, kind: str) -> str:
        """The queue of a kind, from a coroutine."""
        local = self.local(kind)
        return local or (await self._published.freshened()).queues.get(kind, DEFAULT_QUEUE)

    def bound(self, job: NewJob) -> NewJob:
        """The job with what the limits of a task that is not known here mean for it."""
        return self._read().bound(job)

    async def abound(self, job: NewJob) -> NewJob:
        """The same from a coroutine."""
        return (await self._published.freshened()).bound(job)

    def local(self, kind: str) -> str | None:
        """The queue of a kind that this program knows."""
        task = self._tasks.get(kind)
        if task is not None:
            return task.queue
        handler = self._registry.get(kind)
        return None if handler is None else handler.queue

    def _read(self) -> PublishedKinds:
        if not self._published.fresh:
            self._access.run(self._learn)
        return self._published

    async def _learn(self, store: Store) -> None:
        await self._published.learn()
