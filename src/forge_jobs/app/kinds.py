"""Which queue a kind belongs to: the local tasks say it, else what workers have published."""

from collections.abc import Mapping
from typing import Any

from forge_jobs.client.portal import StoreAccess
from forge_jobs.client.task import Task
from forge_jobs.config import DEFAULT_QUEUE
from forge_jobs.core.bound import bounds
from forge_jobs.core.errors import ForgeError
from forge_jobs.core.limits import Limit, task_limit
from forge_jobs.engine.registry import HandlerRegistry
from forge_jobs.kit.clock import Clock
from forge_jobs.store.bundle import Store

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
        self._limits: dict[str, Limit] = {}
        self._read_at: float | None = None
        self._learning = False

    async def learn(self) -> None:
        """Read what workers have published, so that ``route`` knows it."""
        store = await self._access.aready()
        self._keep(await _published(store))

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
            self._keep(self._access.run(_published))
        return self._published.get(kind, DEFAULT_QUEUE)

    async def afind(self, kind: str) -> str:
        """The queue of a kind, from a coroutine."""
        local = self.local(kind)
        if local is not None:
            return local
        if not self._fresh():
            self._keep(await _published(await self._access.aready()))
        return self._published.get(kind, DEFAULT_QUEUE)

    def bounds(self, kind: str, payload: bytes) -> dict[str, Any]:
        """What the limits of a task that is not known here mean for one of its jobs."""
        if not self._fresh():
            self._keep(self._access.run(_published))
        return bounds(kind, self._limits.get(task_limit(kind)), payload)

    async def abounds(self, kind: str, payload: bytes) -> dict[str, Any]:
        """The same from a coroutine."""
        if not self._fresh():
            self._keep(await _published(await self._access.aready()))
        return bounds(kind, self._limits.get(task_limit(kind)), payload)

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

    def _keep(self, published: tuple[dict[str, str], dict[str, Limit]]) -> None:
        self._published, self._limits = published
        self._read_at = self._clock.mono()


async def _published(store: Store) -> tuple[dict[str, str], dict[str, Limit]]:
    """The queues of kinds, and the limits of tasks."""
    kinds = await store.queues.kinds()
    return kinds, {limit.name: limit for limit in await store.limits.all()}
