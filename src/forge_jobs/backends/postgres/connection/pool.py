"""Connections, a few per process, however many threads and event loops call.

A connection belongs to the event loop it was made on. Each loop has its own small set; what it does
not need can be taken over by another loop (the connection is closed there and opened here). When a
loop ends, its connections are closed with it.
"""

import asyncio
import contextlib
import threading
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import Future
from typing import Final

from .driver import Driver, cut, disown, flush_news, turn

MAX_POOL_SIZE: Final = 3
PER_LOOP: Final = 2
_CLOSE_S: Final = 2.0
# A loop that does not let go of an idle connection by then is blocked, perhaps by who waits here.
_PART_S: Final = 0.25

Connect = Callable[[], Awaitable[Driver]]

# What a forked child got from its parent and must leave alone.
_parents: Final[list[object]] = []


class _Set:
    """What one event loop holds: idle connections, those in use, and how many there are in all
    (with those that are being made)."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.idle: list[Driver] = []
        self.busy: list[Driver] = []
        self.parting: list[_Parting] = []
        self.held = 0
        self.keeper: AsyncGenerator[None, None] | None = None


class _Parting:
    """An idle connection that goes, because another loop needs its place and waits for ``over``."""

    def __init__(self, held: "_Set", driver: Driver) -> None:
        self.held = held
        self.driver = driver
        self.over: Future[None] = Future()
        self.task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """On the loop of the connection."""
        if self in self.held.parting and self.task is None:
            self.task = self.held.loop.create_task(self.finish())

    async def finish(self) -> None:
        try:
            await _close(self.driver)
        finally:
            self.gone()
            self.over.set_result(None)

    def gone(self) -> None:
        if self in self.held.parting:
            self.held.parting.remove(self)

    async def wait(self) -> None:
        """On the loop that needs the place."""
        loop = self.held.loop
        with contextlib.suppress(RuntimeError):
            if loop.is_running():
                loop.call_soon_threadsafe(self.begin)
                await asyncio.wait([asyncio.wrap_future(self.over)], timeout=_PART_S)
        if not self.driver.is_closed():
            if not loop.is_running():
                self.gone()
            cut(self.driver, loop)


class _Waiter:
    """A call that found nothing free."""

    __slots__ = ("future", "mine")

    def __init__(self, mine: _Set) -> None:
        self.mine = mine
        self.future: asyncio.Future[None] = mine.loop.create_future()


class Pool:
    """Gives connections out and takes them back; ``connect`` makes one on the running loop."""

    def __init__(
        self, connect: Connect, *, most: int = MAX_POOL_SIZE, per_loop: int = PER_LOOP
    ) -> None:
        self._connect = connect
        self._most = most
        self._per_loop = per_loop
        self._guard = threading.Lock()
        self._sets: dict[asyncio.AbstractEventLoop, _Set] = {}
        self._total = 0
        self._waiting: deque[_Waiter] = deque()
        # What a loop has to say before its connections are closed.
        self.farewell: Callable[[], Awaitable[None]] | None = None
        self._watch()

    def take_idle(self) -> Driver | None:
        """An idle connection of the running loop, if there is one and nobody waits for it."""
        with self._guard:
            mine = self._sets.get(asyncio.get_running_loop())
            if mine is None or not mine.idle or self._waiting:
                return None
            found = self._idle(mine)
            if found is not None:
                mine.busy.append(found)
            return found

    async def take(self) -> tuple[Driver, bool]:
        """A connection of the running loop, and whether it was used before."""
        mine = await self._mine()
        waited = False
        while True:
            with self._guard:
                found = self._idle(mine)
                if found is not None:
                    mine.busy.append(found)
                    self._wake()
                    return found, True
                room, spare = self._room(mine)
                waiter = None if room else self._wait(mine, first=waited)
                # What a call was woken for it may not have needed, or no longer be allowed.
                self._wake()
            if waiter is None:
                return await self._make(mine, spare), False
            await self._woken(waiter)
            waited = True

    def give_back(self, driver: Driver, *, broken: bool = False) -> None:
        """Return a connection on the loop it was taken on. A broken one is dropped."""
        loop = asyncio.get_running_loop()
        keep = not (broken or driver.is_closed())
        if not keep:
            driver.terminate()
        with self._guard:
            mine = self._sets.get(loop)
            if mine is not None and driver in mine.busy:
                mine.busy.remove(driver)
                if keep:
                    mine.idle.append(driver)
                else:
                    mine.held -= 1
                    self._total -= 1
                self._wake()
                return
        # Taken before the pool was closed: it counts nowhere any more.
        driver.terminate()

    async def close(self) -> None:
        """Close what is idle, on every loop; what is in use is closed when it comes back."""
        with self._guard:
            sets = list(self._sets.values())
        here = asyncio.get_running_loop()
        for held in sets:
            if held.loop is here:
                await self._finish(held)
            elif held.loop.is_running():
                there = asyncio.run_coroutine_threadsafe(self._finish(held), held.loop)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(asyncio.wrap_future(there), _CLOSE_S)
            else:
                self._bury(held)

    def abandon(self) -> None:
        """In a forked child: forget everything without touching it."""
        for held in self._sets.values():
            for driver in (*held.idle, *held.busy, *(gone.driver for gone in held.parting)):
                disown(driver)
        _parents.append((self._sets, self._waiting))
        self._guard = threading.Lock()
        self._sets = {}
        self._waiting = deque()
        self._total = 0
        self._finalizer.detach()
        self._watch()

    def _watch(self) -> None:
        """A store that is dropped without being closed takes its connections along."""
        self._finalizer = weakref.finalize(self, _release, self._sets)
        self._finalizer.atexit = False

    def count(self) -> int:
        """How many connections there are, over all loops."""
        return self._total

    async def _mine(self) -> _Set:
        loop = asyncio.get_running_loop()
        with self._guard:
            mine = self._sets.get(loop)
            over: list[_Set] = []
            if mine is None:
                over = [held for other, held in self._sets.items() if other.is_closed()]
                mine = self._sets[loop] = _Set(loop)
        for held in over:
            self._bury(held)
        if mine.keeper is None:
            mine.keeper = _keep(weakref.ref(self), mine)
            await anext(mine.keeper)
        return mine

    async def leave(self, mine: _Set) -> None:
        """The loop of this set ends."""
        try:
            if self.farewell is not None:
                await self.farewell()
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

    def _room(self, mine: _Set) -> tuple[bool, _Parting | None]:
        """Whether this loop may have one more connection, and whose idle one has to go for it."""
        if not self._may_grow(mine):
            return False, None
        spare = None
        if self._total >= self._most:
            rich = max((held for held in self._sets.values() if held.idle), key=_wealth)
            spare = _Parting(rich, rich.idle.pop())
            rich.parting.append(spare)
            rich.held -= 1
            self._total -= 1
        mine.held += 1
        self._total += 1
        return True, spare

    def _may_grow(self, mine: _Set) -> bool:
        if self._total < self._most:
            return mine.held < self._per_loop
        # A loop that has one waits for it: two that took from each other would do little else.
        return mine.held == 0 and any(held.idle for held in self._sets.values())

    def _wait(self, mine: _Set, *, first: bool) -> _Waiter:
        waiter = _Waiter(mine)
        if first:
            self._waiting.appendleft(waiter)
        else:
            self._waiting.append(waiter)
        return waiter

    async def _woken(self, waiter: _Waiter) -> None:
        try:
            await waiter.future
        except asyncio.CancelledError:
            with self._guard:
                if waiter in self._waiting:
                    self._waiting.remove(waiter)
                else:
                    # Woken and cancelled at once: somebody else must hear it.
                    self._wake()
            raise

    async def _make(self, mine: _Set, spare: _Parting | None) -> Driver:
        try:
            if spare is not None:
                await spare.wait()
            driver = await self._connect()
        except BaseException:
            with self._guard:
                mine.held -= 1
                self._total -= 1
                self._wake()
            raise
        with self._guard:
            mine.busy.append(driver)
        return driver

    def _wake(self) -> None:
        """Let the first who could go on now look again. Who looks wakes the next, so that nothing
        stays idle that somebody waits for."""
        for waiter in list(self._waiting):
            if waiter.mine.idle or self._may_grow(waiter.mine):
                self._waiting.remove(waiter)
                # A loop that was closed hears nothing: the next one may.
                with contextlib.suppress(RuntimeError):
                    waiter.mine.loop.call_soon_threadsafe(flush_news, waiter.future)
                    return

    async def _finish(self, mine: _Set) -> None:
        """``_end`` through the keeper, which then is not left to the garbage collector."""
        if mine.keeper is None:
            await self._end(mine)
        else:
            await mine.keeper.aclose()

    async def _end(self, mine: _Set) -> None:
        for driver in self._drop(mine):
            await _close(driver)
        for parting in list(mine.parting):
            parting.begin()
            if parting.task is not None:
                await asyncio.wait([parting.task])
        # A socket is closed one turn of the loop after its connection.
        await turn()

    def _drop(self, mine: _Set) -> list[Driver]:
        with self._guard:
            if self._sets.get(mine.loop) is mine:
                del self._sets[mine.loop]
            idle, mine.idle = mine.idle, []
            self._total -= mine.held
            mine.held = 0
            gone = [waiter for waiter in self._waiting if waiter.mine is mine]
            for waiter in gone:
                self._waiting.remove(waiter)
            self._wake()
        for waiter in gone:
            with contextlib.suppress(RuntimeError):
                mine.loop.call_soon_threadsafe(waiter.future.cancel)
        return idle

    def _bury(self, held: _Set) -> None:
        """End everything of a loop that does not run: nobody will give anything back there."""
        parting, held.parting = held.parting, []
        busy, held.busy = held.busy, []
        for driver in (*self._drop(held), *busy, *(gone.driver for gone in parting)):
            cut(driver, held.loop)


def _wealth(held: _Set) -> int:
    return held.held


async def _keep(pool: "weakref.ref[Pool]", mine: _Set) -> AsyncGenerator[None, None]:
    # A loop that ends in good order closes its asynchronous generators last: the one moment at
    # which connections can still be closed and nobody needs them any more.
    try:
        yield
    finally:
        owner = pool()
        if owner is not None:
            await owner.leave(mine)


def _release(sets: dict[asyncio.AbstractEventLoop, _Set]) -> None:
    for held in sets.values():
        drivers = [*held.idle, *held.busy, *(gone.driver for gone in held.parting)]
        try:
            if held.loop.is_running():
                held.loop.call_soon_threadsafe(_terminate, drivers)
                continue
        except RuntimeError:
            pass
        for driver in drivers:
            cut(driver, held.loop)


def _terminate(drivers: list[Driver]) -> None:
    for driver in drivers:
        driver.terminate()


async def _close(driver: Driver) -> None:
    try:
        await driver.close(timeout=_CLOSE_S)
    except Exception:
        driver.terminate()
    except BaseException:
        driver.terminate()
        raise
