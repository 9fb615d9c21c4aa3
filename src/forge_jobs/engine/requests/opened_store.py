"""A store port over a store that is open already: for workers, runtimes and drains."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from forge_jobs.core.errors import BadOption
from forge_jobs.kit.io_thread import IoPort
from forge_jobs.store.store import Store

T = TypeVar("T")


class OpenedStore:
    """Background work and synchronous calls go over ``io``; without one, over the caller's loop."""

    __slots__ = ("_io", "direct", "opened")

    def __init__(self, store: Store, io: IoPort | None = None) -> None:
        self._io = io
        self.opened = store
        self.direct: Store | None = store if store.capabilities.sync_calls else None

    def ready(self) -> Store:
        """The store."""
        return self.opened

    async def aready(self) -> Store:
        """The store."""
        return self.opened

    def unopened(self) -> Store | None:
        """Never needed: the store is open."""
        return self.opened

    def run(self, work: Callable[[Store], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine on the I/O thread and wait for it here. BadOption where ``io`` is the
        caller's own loop, which cannot wait for itself."""
        reply = self.spawn(lambda: work(self.opened))
        if isinstance(reply, asyncio.Task):
            reply.cancel()
            raise BadOption("this store has no synchronous way in: use await ctx.aenqueue(…)")
        return reply.result()

    def spawn(self, work: Callable[[], Coroutine[Any, Any, T]]) -> "Future[T] | asyncio.Task[T]":
        """Start a coroutine in the background."""
        return asyncio.ensure_future(work()) if self._io is None else self._io.spawn(work)
