"""Connections, a few per process, however many threads and event loops call.

A connection belongs to the event loop it was made on. Each loop has its own small set; what it does
not need can be taken over by another loop (the connection is closed there and opened here). When a
loop ends, its connections are closed with it.
"""

import asyncio
import contextlib
import socket
import threading
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Final

from .driver import Driver

MOST: Final = 3
PER_LOOP: Final = 2
_CLOSE_S: Final = 2.0

Connect = Callable[[], Awaitable[Driver]]
Ending = Callable[[], Awaitable[None]]

# What a forked child must neither use nor close: both would disturb its parent.
_abandoned: Final[list[object]] = []


class _Set:
    """What one event loop holds: idle connections, and how many there are in all."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.idle: list[Driver] = []
        self.busy: list[Driver] = []
        self.held = 0
        self.waiting: deque[asyncio.Future[None]] = deque()
        self.endings: list[Ending] = []
        self.keeper: AsyncGenerator[None, None] | None = None


class Pool:
    """Gives connections out and takes them back; ``connect`` makes one on the running loop."""

    def __init__(self, connect: Connect, *, most: int = MOST, per_loop: int = PER_LOOP) -> None:
        self._connect = connect
        self._most = most
        self._per_loop = per_loop
        self._guard = threading.Lock()
        self._sets: dict[asyncio.AbstractEventLoop, _Set] = {}
        self._total = 0
        self._strangers: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()

    async def take(self) -> tuple[Driver, bool]:
        """A connection of the running loop, and whether it was used before."""
        mine = await self._mine()
        while True:
            with self._guard:
                found = self._idle(mine)
                if found is not None:
                    mine.busy.append(found)
                    return found, True
                made = self._permit(mine)
                waiter = None if made else self._wait(mine)
            if waiter is None:
                return await self._make(mine), False
            await self._woken(mine, waiter)

    def give_back(self, driver: Driver, *, broken: bool = False) -> None:
        """Return a connection on the loop it was taken on. A broken one is dropped."""
        loop = asyncio.get_running_loop()
        with self._guard:
            mine = self._sets.get(loop)
            # Taken before the pool was closed: it counts nowhere any more.
            known = mine is not None and driver in mine.busy
            keep = known and not (broken or self._strangers or driver.is_closed())
            if mine is not None and known:
                mine.busy.remove(driver)
                if keep:
                    mine.idle.append(driver)
                else:
                    mine.held -= 1
                    self._total -= 1
                self._wake(mine)
        if not keep:
            driver.terminate()

    async def on_end(self, ending: Ending) -> None:
        """Call ``ending`` when the running loop ends or the pool is closed."""
        (await self._mine()).endings.append(ending)

    def forget_end(self, ending: Ending) -> None:
        """Take ``on_end`` back."""
        with self._guard:
            for mine in self._sets.values():
                if ending in mine.endings:
                    mine.endings.remove(ending)

    async def close(self) -> None:
        """Close what is idle, on every loop; what is in use is closed when it comes back."""
        with self._guard:
            sets = list(self._sets.values())
        here = asyncio.get_running_loop()
        for held in sets:
            if held.loop is here:
                await self._end(held)
            elif held.loop.is_running():
                there = asyncio.run_coroutine_threadsafe(self._end(held), held.loop)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(asyncio.wrap_future(there), _CLOSE_S)
            else:
                self._drop(held)

    def abandon(self) -> None:
        """In a forked child: forget everything without touching it."""
        _abandoned.append((self._sets, self._strangers))
        self._guard = threading.Lock()
        self._sets = {}
        self._strangers = deque()
        self._total = 0

    def count(self) -> int:
        """How many connections there are, over all loops."""
        return self._total

    async def _mine(self) -> _Set:
        loop = asyncio.get_running_loop()
        with self._guard:
            mine = self._sets.get(loop)
            if mine is None:
                mine = self._sets[loop] = _Set(loop)
                over = [held for other, held in self._sets.items() if other.is_closed()]
            else:
                over = []
        for held in over:
            self._drop(held)
        if mine.keeper is None:
            mine.keeper = self._keep(mine)
            await anext(mine.keeper)
        return mine

    async def _keep(self, mine: _Set) -> AsyncGenerator[None, None]:
        # A loop that ends in good order closes its asynchronous generators last: the one moment at
        # which connections can still be closed and nobody needs them any more.
        try:
            yield
        finally:
            await self._end(mine)

    def _idle(self, mine: _Set) -> Driver | None:
        while mine.idle:
            driver = mine.idle.pop()
            if not driver.is_closed():
                return driver
            mine.held -= 1
            self._total -= 1
        return None

    def _permit(self, mine: _Set) -> bool:
        """Room for one more connection of this loop, if need be taken from another loop."""
        if mine.held >= self._per_loop:
            return False
        if self._total >= self._most and not self._take_over(mine):
            return False
        mine.held += 1
        self._total += 1
        return True

    def _take_over(self, mine: _Set) -> bool:
        for held in self._sets.values():
            if held is not mine and held.idle:
                driver = held.idle.pop()
                held.held -= 1
                self._total -= 1
                with contextlib.suppress(RuntimeError):
                    held.loop.call_soon_threadsafe(driver.terminate)
                return True
        return False

    def _wait(self, mine: _Set) -> asyncio.Future[None]:
        waiter = mine.loop.create_future()
        if mine.held:
            mine.waiting.append(waiter)
        else:
            self._strangers.append((mine.loop, waiter))
        return waiter

    async def _woken(self, mine: _Set, waiter: asyncio.Future[None]) -> None:
        try:
            await waiter
        except asyncio.CancelledError:
            with self._guard:
                if waiter in mine.waiting:
                    mine.waiting.remove(waiter)
                elif (mine.loop, waiter) in self._strangers:
                    self._strangers.remove((mine.loop, waiter))
                else:
                    # Woken and cancelled at once: somebody else must hear it.
                    self._wake(mine)
            raise

    async def _make(self, mine: _Set) -> Driver:
        try:
            driver = await self._connect()
        except BaseException:
            with self._guard:
                mine.held -= 1
                self._total -= 1
                self._wake(mine)
            raise
        with self._guard:
            mine.busy.append(driver)
        return driver

    def _wake(self, mine: _Set) -> None:
        """Let whoever waits look again: other loops first, they hold nothing."""
        while self._strangers:
            loop, waiter = self._strangers.popleft()
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_set, waiter)
                return
        while mine.waiting:
            waiter = mine.waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    async def _end(self, mine: _Set) -> None:
        endings, mine.endings = mine.endings, []
        for ending in endings:
            with contextlib.suppress(Exception):
                await ending()
        for driver in self._drop(mine):
            try:
                await driver.close(timeout=_CLOSE_S)
            except Exception:
                driver.terminate()

    def _drop(self, mine: _Set) -> list[Driver]:
        with self._guard:
            if self._sets.get(mine.loop) is mine:
                del self._sets[mine.loop]
            idle, mine.idle, mine.busy = mine.idle, [], []
            self._total -= mine.held
            mine.held = 0
            waiting = [*mine.waiting]
            mine.waiting.clear()
        for waiter in waiting:
            waiter.cancel()
        if mine.loop.is_closed():
            for driver in idle:
                _shut(driver)
            return []
        return idle


def _set(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _shut(driver: Driver) -> None:
    """End a connection whose loop was closed over it: nothing of the loop can be used any more."""
    _abandoned.append(driver)
    transport = getattr(driver, "_transport", None)
    if transport is not None:
        with contextlib.suppress(Exception):
            transport.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
