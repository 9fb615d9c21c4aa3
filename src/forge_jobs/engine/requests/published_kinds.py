"""What workers have published about kinds, as far as it is known here: their queues and limits.

Handlers ask on their loop and must not wait: they get what is known, and what is older than a few
seconds is read anew meanwhile.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final, TypeAlias

from forge_jobs.core.errors import ForgeError
from forge_jobs.core.job import NewJob
from forge_jobs.core.limit_key import apply_limit
from forge_jobs.core.limits import Limit, task_limit
from forge_jobs.kit.clock import Clock
from forge_jobs.store.store import Store

FRESH_S: Final = 5.0

Ready: TypeAlias = Callable[[], Awaitable[Store]]
Spawn: TypeAlias = Callable[[Callable[[], Coroutine[Any, Any, None]]], object]


class PublishedKinds:
    """Read from the store, kept for a few seconds."""

    def __init__(self, ready: Ready, spawn: Spawn, clock: Clock) -> None:
        self._ready = ready
        self._spawn = spawn
        self._clock = clock
        self._read_at: float | None = None
        self._learning = False
        self.queues: Mapping[str, str] = {}
        self.limits: Mapping[str, Limit] = {}

    @property
    def fresh(self) -> bool:
        """Whether it was read within the last seconds."""
        return self._read_at is not None and 0 <= self._clock.mono() - self._read_at < FRESH_S

    async def learn(self) -> None:
        """Read it now."""
        store = await self._ready()
        queues = await store.queues.kinds()
        limits = {limit.name: limit for limit in await store.limits.all()}
        self.queues, self.limits = queues, limits
        self._read_at = self._clock.mono()

    async def freshened(self) -> "PublishedKinds":
        """Itself, read anew if that is due."""
        if not self.fresh:
            await self.learn()
        return self

    def aside(self) -> "PublishedKinds":
        """Itself as it is; read anew meanwhile if that is due."""
        if not self.fresh and not self._learning:
            self._learning = True
            self._spawn(self._learn_aside)
        return self

    def bound(self, job: NewJob) -> NewJob:
        """The job with what the limits of its task mean for it."""
        return apply_limit(job, self.limits.get(task_limit(job.kind)))

    async def _learn_aside(self) -> None:
        try:
            await self.learn()
        except ForgeError:
            pass  # what was known before is still the best guess
        finally:
            self._learning = False
