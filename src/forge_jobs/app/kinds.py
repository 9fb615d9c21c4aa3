"""Which queue a kind belongs to: the local tasks say it, else what workers have published."""

from collections.abc import Mapping
from typing import Any

from forge_jobs.client.portal import StoreAccess
from forge_jobs.client.task import Task
from forge_jobs.config import DEFAULT_QUEUE
from forge_jobs.core.errors import ForgeError
from forge_jobs.engine.registry import HandlerRegistry
from forge_jobs.kit.clock import Clock

FRESH_S = 5.0


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
        self._clock = clock
        self._published: dict[str, str] = {}
        self._read_at: float | None = None
        self._learning = False

    async def learn(self) -> None:
        """Read what workers have published, so that ``route`` knows it."""
        store = await self._access.aready()
        self._keep(await store.queues.kinds())

    def route(self, kind: str) -> str:
        """The queue of a kind by what is known here: never waits, so that handlers may ask it on
        their loop. What is older than a few seconds is read anew meanwhile."""
        local = self.local(kind)
        if local is not None:
            return local
        if not self._fresh() and not self._learning:
            self._learning = True
            self._access.spawn(self._learn_aside)
        return self._published.get(kind, DEFAULT_QUEUE)

    def find(self, kind: str) -> str:
        """The queue of a kind, from synchronous code."""
        local = self.local(kind)
        if local is not None:
            return local
        if not self._fresh():
            self._keep(self._access.run(lambda store: store.queues.kinds()))
        return self._published.get(kind, DEFAULT_QUEUE)

    async def afind(self, kind: str) -> str:
        """The queue of a kind, from a coroutine."""
        local = self.local(kind)
        if local is not None:
            return local
        if not self._fresh():
            store = await self._access.aready()
            self._keep(await store.queues.kinds())
        return self._published.get(kind, DEFAULT_QUEUE)

    def local(self, kind: str) -> str | None:
        """The queue of a kind that this program knows."""
        task = self._tasks.get(kind)
        if task is not None:
            return task.queue
        handler = self._registry.get(kind)
        return None if handler is None else handler.queue

    async def _learn_aside(self) -> None:
        try:
            await self.learn()
        except ForgeError:
            pass  # what was known before is still the best guess
        finally:
            self._learning = False

    def _fresh(self) -> bool:
        return self._read_at is not None and 0 <= self._clock.mono() - self._read_at < FRESH_S

    def _keep(self, published: dict[str, str]) -> None:
        self._published = published
        self._read_at = self._clock.mono()
