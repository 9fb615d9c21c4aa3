"""What the pool knows of each event loop: its connections, evictions and waiting calls."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from concurrent.futures import Future
from typing import Final

from .direct import DirectConnection
from .driver import Driver, close, force_close

# A loop that has not closed an evicted connection by then is blocked, perhaps by the very call that
# waits for the eviction.
_EVICT_S: Final = 0.25


class LoopConnections:
    """The connections of one event loop. ``size`` also counts those that are being opened, and the
    one that is ``lent`` to synchronous callers."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.idle: list[Driver] = []
        self.busy: list[Driver] = []
        self.evictions: list[Eviction] = []
        self.lent: DirectConnection | None = None
        self.size = 0
        self.closer: AsyncGenerator[None, None] | None = None

    def drivers(self) -> list[Driver]:
        """All connections that are open."""
        lent = [] if self.lent is None else [self.lent.driver]
        return [*self.idle, *self.busy, *lent, *(one.driver for one in self.evictions)]

    def take_back(self) -> bool:
        """Stop lending, if no caller is using the lent connection; on its own loop. Returns whether
        nothing is lent now. A connection that was left during a call is terminated."""
        lent = self.lent
        if lent is None:
            return True
        if not lent.end():
            return False
        self.lent = None
        if lent.clean:
            lent.resume()
        else:
            lent.driver.terminate()
        # A terminated one is removed from the counts by whoever finds it here.
        self.idle.append(lent.driver)
        return True


class Eviction:
    """The closing of an idle connection because another loop needs one and waits for ``done``."""

    def __init__(self, connections: LoopConnections, driver: Driver) -> None:
        self.connections = connections
        self.driver = driver
        self.done: Future[None] = Future()
        self.task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Close the connection; called on its own loop. Idempotent."""
        if self in self.connections.evictions and self.task is None:
            self.task = self.connections.loop.create_task(self._run())

    async def _run(self) -> None:
        try:
            await close(self.driver)
        finally:
            self._remove()
            self.done.set_result(None)

    def _remove(self) -> None:
        if self in self.connections.evictions:
            self.connections.evictions.remove(self)

    async def wait(self) -> None:
        """Wait until the connection is closed; called on the loop that needs one. A loop that does
        not run, or does not close it in time, has it closed by force."""
        loop = self.connections.loop
        with contextlib.suppress(RuntimeError):
            if loop.is_running():
                loop.call_soon_threadsafe(self.start)
                await asyncio.wait([asyncio.wrap_future(self.done)], timeout=_EVICT_S)
        if not self.driver.is_closed():
            if not loop.is_running():
                self._remove()
            force_close(self.driver, loop)


class Waiter:
    """A call that waits for a connection."""

    __slots__ = ("future", "own")

    def __init__(self, own: LoopConnections) -> None:
        self.own = own
        self.future: asyncio.Future[None] = own.loop.create_future()
