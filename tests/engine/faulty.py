"""A store that loses requests and replies on demand."""

import asyncio
from collections.abc import Callable
from typing import Any

from forge_jobs.store.jobs import Exchange, Exchanged
from forge_jobs.store.store import Store


class FaultyJobs:
    """The jobs of a real store; ``before`` may refuse a call, ``after`` may lose its answer."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.requests: list[Exchange] = []
        self.before: Callable[[Exchange], BaseException | None] = lambda request: None
        self.after: Callable[[Exchange, Exchanged], BaseException | None] = lambda _, __: None
        self.change: Callable[[Exchange, Exchanged], Exchanged] = lambda _, answer: answer
        self.hanging: asyncio.Event | None = None
        self.pause_s = 0.0
        self.under_way: list[Exchange] = []
        self.together: list[tuple[Exchange, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def exchange(self, request: Exchange) -> Exchanged:
        self.requests.append(request)
        self.under_way.append(request)
        self.together.append(tuple(self.under_way))
        try:
            if self.pause_s:
                await asyncio.sleep(self.pause_s)
            return await self._exchange(request)
        finally:
            self.under_way.remove(request)

    async def _exchange(self, request: Exchange) -> Exchanged:
        if self.hanging is not None:
            await self.hanging.wait()
        error = self.before(request)
        if error is not None:
            raise error
        answer = self.change(request, await self._inner.exchange(request))
        error = self.after(request, answer)
        if error is not None:
            raise error
        return answer


class FaultyStore:
    """A real store with faulty jobs."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.jobs = FaultyJobs(inner.jobs)
        self.capabilities = inner.capabilities

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
