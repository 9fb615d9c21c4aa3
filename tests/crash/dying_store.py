"""A store whose worker dies right before or right after one of its writes.

A dead worker reaches the store no more: each of its calls waits for ever.
"""

import asyncio
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Any

import msgspec

from forge_jobs.store.jobs import Exchange, Exchanged
from forge_jobs.store.store import Store


class Moment(StrEnum):
    """When the worker dies: before the write takes effect, or after that without its answer."""

    BEFORE = "before"
    AFTER = "after"


class DyingStore:
    """The store of one worker. ``die_at`` None: it lives. ``writes``: what each write held."""

    def __init__(
        self, inner: Store, die_at: int | None = None, moment: Moment = Moment.AFTER
    ) -> None:
        self.writes: list[str] = []
        self.died = asyncio.Event()
        self.capabilities = msgspec.structs.replace(inner.capabilities, sync_calls=False)
        self.jobs = _Part(self, inner.jobs, exchange=self._exchange)
        self.processes = _Part(self, inner.processes)
        self.queues = _Part(self, inner.queues)
        self.schedules = _Part(self, inner.schedules)
        self.token_buckets = _Part(self, inner.token_buckets)
        self.metrics = _Part(self, inner.metrics)
        self.breakdowns = _Part(self, inner.breakdowns)
        self.limits = _Part(self, inner.limits)
        self.settings = _Part(self, inner.settings)
        self.steps = _Part(self, inner.steps)
        self.events = _Part(self, inner.events)
        self._inner = inner
        self._die_at = die_at
        self._moment = moment
        self._is_dead = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def pass_on(self, call: Callable[..., Awaitable[Any]], *args: Any, **options: Any) -> Any:
        """One call of the worker; a call that is under way at its death gets no answer."""
        if self._is_dead:
            await _for_ever()
        answer = await call(*args, **options)
        if self._is_dead:
            await _for_ever()
        return answer

    async def _exchange(self, request: Exchange) -> Exchanged:
        if self._is_dead:
            await _for_ever()
        held = _held(request)
        if held and self._moment is Moment.BEFORE:
            await self._count(held)
        answer = await self._inner.jobs.exchange(request)
        held += ["claim"] * len(answer.claims)
        if held and self._moment is Moment.AFTER:
            await self._count(held)
        if self._is_dead:
            await _for_ever()
        return answer

    async def _count(self, held: list[str]) -> None:
        self.writes.append(" ".join(held))
        if len(self.writes) == self._die_at:
            self._is_dead = True
            self.died.set()
            await _for_ever()


class _Part:
    """One of the contracts of the store."""

    def __init__(self, store: DyingStore, inner: object, **replaced: Any) -> None:
        self._store = store
        self._inner = inner
        self._replaced = replaced

    def __getattr__(self, name: str) -> Any:
        call = self._replaced.get(name) or getattr(self._inner, name)

        async def passed(*args: Any, **options: Any) -> Any:
            return await self._store.pass_on(call, *args, **options)

        return passed


def _held(request: Exchange) -> list[str]:
    """What an exchange writes, apart from claims."""
    return [
        *(f"step {step.name}" for step in request.steps),
        *(f"wait {check.wait.step}" for check in request.waits),
        *(f"finish {end.event}" for end in request.finish),
        *("release" for _ in request.release),
        *("started" for _ in request.started),
    ]


async def _for_ever() -> None:
    await asyncio.get_running_loop().create_future()
