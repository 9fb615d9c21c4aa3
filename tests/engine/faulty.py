"""A store that loses requests and replies when a test says so."""

import asyncio
from collections.abc import Callable
from typing import Any

from forge_jobs.store.bundle import Store
from forge_jobs.store.jobs import Exchange, Exchanged


class FaultyJobs:
    """The jobs of a real store; ``before`` may refuse a call, ``after`` may lose its answer."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.requests: list[Exchange] = []
        self.before: Callable[[Exchange], BaseException | None] = lambda request: None
        self.after: Callable[[Exchange, Exchanged], BaseException | None] = lambda _, __: None
        self.hanging: asyncio.Event | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def exchange(self, request: Exchange) -> Exchanged:
        self.requests.append(request)
        if self.hanging is not None:
            await self.hanging.wait()
        error = self.before(request)
        if error is not None:
            raise error
        answer = await self._inner.exchange(request)
        error = self.after(request, answer)
        if error is not None:
            raise error
        return answer


class FaultyStore:
    """A real store with faulty jobs."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.jobs = FaultyJobs(inner.jobs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
