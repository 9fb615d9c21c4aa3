"""The connection pool: a few connections per process for all its threads and event loops.

A connection belongs to the event loop it was opened on. Each loop has its own connections. At the
maximum, another loop's idle connection is evicted: closed there, so that one can be opened here.
When a loop ends, its connections are closed with it.
"""

import asyncio
import contextlib
import threading
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Final

from .direct import DirectConnection, lendable
from .driver import Driver, close, disown, force_close, next_iteration, resolve, wait_s
from .loop_connections import Eviction, LoopConnections, Waiter

MAX_POOL_SIZE: Final = 3
PER_LOOP: Final = 2
_CLOSE_S: Final = 2.0
# How soon a lent connection that a caller is using is asked for again.
_RECALL_S: Final = 0.01

Connect = Callable[[], Awaitable[Driver]]

# State a forked child inherited from its parent. Referenced for ever, so that the garbage collector
# of the child does not finalize it.
_inherited: Final[list[object]] = []


class PoolClosed(Exception):
    """The pool was closed while a call waited for a connection."""


class Pool:
    """Connections by event loop. ``connect`` opens one on the running loop."""

    def __init__(
        self, connect: Connect, *, max_size: int = MAX_POOL_SIZE, per_loop: int = PER_LOOP
    ) -> None:
        self._connect = connect
        self._max_size = max_size
        self._per_loop = per_loop
        self._guard = threading.Lock()
        self._loops: dict[asyncio.AbstractEventLoop, LoopConnections] = {}
        self._total = 0
        self._waiting: deque[Waiter] = deque()
        # The connection that synchronous callers use, if one is lent.
        self.lent: DirectConnection | None = None
        # Called on a loop before its connections are closed: sends pending notifications.
        self.before_close: Callable[[], Awaitable[None]] | None = None
        self._add_finalizer()

    def acquire_idle(self) -> Driver | None:
        """An idle connection of the running loop, if there is one and no call waits for it."""
        with self._guard:
            own = self._loops.get(asyncio.get_running_loop())
            if own is None or self._waiting:
                return None
            found = self._pop_idle(own)
            if found is not None:
                own.busy.append(found)
            return found

    async def acquire(self) -> tuple[Driver, bool]:
        """A connection of the running loop, and whether it was used before."""
        own = await self._own_connections()
        waited = False
        while True:
            with self._guard:
                found = self._pop_idle(own)
                if found is not None:
                    own.busy.append(found)
                    self._wake()
                    return found, True
                reserved, eviction = self._reserve(own)
                waiter = None if reserved else self._add_waiter(own, first=waited)
                # This call may not have used what it was woken for: another waiter may need it.
                self._wake()
                lent = self.lent
            if waiter is None:
                return await self._open(own, eviction), False
            if lent is not None:
                # RuntimeError: its loop has ended and closes it.
                with contextlib.suppress(RuntimeError):
                    lent.loop.call_soon_threadsafe(self._recall, lent)
            await self._wait(waiter)
            waited = True

    def release(self, driver: Driver, *, broken: bool = False) -> None:
        """Return a connection, on the loop it was acquired on. A broken one is dropped."""
        loop = asyncio.get_running_loop()
        keep = not (broken or driver.is_closed())
        if not keep:
            driver.terminate()
        with self._guard:
            own = self._loops.get(loop)
            if own is not None and driver in own.busy:
                own.busy.remove(driver)
                if keep:
                    own.idle.append(driver)
                else:
                    own.size -= 1
                    self._total -= 1
                self._wake()
                return
        # Acquired before the pool was closed: it is in no count any more.
        driver.terminate()

    def lend(self) -> None:
        """Lend an idle connection of the running loop to synchronous callers, if there is one that
        no call waits for. It is taken back when a call on an event loop needs it."""
        with self._guard:
            own = self._loops.get(asyncio.get_running_loop())
            if own is None or self._waiting:
                return
            self._take_back(own)
            if self.lent is None and (driver := self._pop_idle(own)) is not None:
                own.lent = self.lent = lendable(driver)
                if own.lent is None:
                    own.idle.append(driver)

    async def close(self) -> None:
        """Close the idle connections of all loops; those in use are closed on their release."""
        with self._guard:
            loops = list(self._loops.values())
        here = asyncio.get_running_loop()
        for other in loops:
            if other.loop is here:
                await self._shut_down(other)
            elif other.loop.is_running():
                there = asyncio.run_coroutine_threadsafe(self._shut_down(other), other.loop)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(asyncio.wrap_future(there), _CLOSE_S)
            else:
                self._terminate_all(other)

    def abandon(self) -> None:
        """In a forked child: forget all connections without closing them; they are the parent's."""
        for other in self._loops.values():
            for driver in other.drivers():
                disown(driver)
        _inherited.append((self._loops, self._waiting))
        self.lent = None
        self._guard = threading.Lock()
        self._loops = {}
        self._waiting = deque()
        self._total = 0
        self._finalizer.detach()
        self._add_finalizer()

    def _add_finalizer(self) -> None:
        """Terminate the connections of a store that is garbage-collected without being closed."""
        self._finalizer = weakref.finalize(self, _terminate_leaked, self._loops)
        self._finalizer.atexit = False

    def count(self) -> int:
        """How many connections there are, over all loops."""
        return self._total

    async def _own_connections(self) -> LoopConnections:
        loop = asyncio.get_running_loop()
        with self._guard:
            own = self._loops.get(loop)
            closed: list[LoopConnections] = []
            if own is None:
                closed = [other for other in self._loops.values() if other.loop.is_closed()]
                own = self._loops[loop] = LoopConnections(loop)
        for other in closed:
            self._terminate_all(other)
        if own.closer is None:
            own.closer = _close_with_loop(weakref.ref(self), own)
            await anext(own.closer)
        return own

    async def close_loop(self, own: LoopConnections) -> None:
        """Flush notifications, then close the connections of a loop that ends."""
        try:
            if self.before_close is not None:
                await self.before_close()
        finally:
            await self._close_connections(own)

    def _pop_idle(self, own: LoopConnections) -> Driver | None:
        """An idle connection; the lent one, if there is no other and no caller uses it."""
        if not own.idle:
            self._take_back(own)
        while own.idle:
            driver = own.idle.pop()
            if not driver.is_closed():
                return driver
            own.size -= 1
            self._total -= 1
        return None

    def _take_back(self, own: LoopConnections) -> None:
        """Stop lending the connection of this loop, unless a caller is using it."""
        if own.lent is not None and own.take_back():
            self.lent = None

    def _recall(self, lent: DirectConnection) -> None:
        """Take a lent connection back for a call that waits for one, as soon as no caller uses it;
        runs on its loop."""
        with self._guard:
            own = self._loops.get(lent.loop)
            if own is None or own.lent is not lent or not self._waiting:
                return
            self._take_back(own)
            if own.lent is None:
                self._wake()
            else:
                lent.loop.call_later(_RECALL_S, self._recall, lent)

    async def _end_lending(self, own: LoopConnections) -> None:
        """Take the lent connection back before it is closed. A caller that is using it has
        ``_CLOSE_S`` to finish; then it gets an error."""
        for left in range(int(_CLOSE_S / _RECALL_S), -1, -1):
            with self._guard:
                self._take_back(own)
                lent = own.lent
            if lent is None:
                return
            if left:
                await wait_s(_RECALL_S)
            else:
                lent.shut_down()
                lent.driver.terminate()
                own.lent = self.lent = None

    def _reserve(self, own: LoopConnections) -> tuple[bool, Eviction | None]:
        """Reserve one more connection for this loop. Returns whether there was room, and the
        eviction that makes it, at the maximum."""
        if not self._may_grow(own):
            return False, None
        eviction = None
        if self._total >= self._max_size:
            largest = max((other for other in self._loops.values() if other.idle), key=_size)
            eviction = Eviction(largest, largest.idle.pop())
            largest.evictions.append(eviction)
            largest.size -= 1
            self._total -= 1
        own.size += 1
        self._total += 1
        return True, eviction

    def _may_grow(self, own: LoopConnections) -> bool:
        if self._total < self._max_size:
            return own.size < self._per_loop
        # A loop that has one waits for it: otherwise two loops could evict each other's for ever.
        return own.size == 0 and any(other.idle for other in self._loops.values())

    def _add_waiter(self, own: LoopConnections, *, first: bool) -> Waiter:
        waiter = Waiter(own)
        if first:
            self._waiting.appendleft(waiter)
        else:
            self._waiting.append(waiter)
        return waiter

    async def _wait(self, waiter: Waiter) -> None:
        try:
            await waiter.future
        except asyncio.CancelledError:
            with self._guard:
                if waiter in self._waiting:
                    self._waiting.remove(waiter)
                else:
                    # Woken and cancelled at once: pass the wake-up on to the next waiter.
                    self._wake()
            raise

    async def _open(self, own: LoopConnections, eviction: Eviction | None) -> Driver:
        try:
            if eviction is not None:
                await eviction.wait()
            driver = await self._connect()
        except BaseException:
            with self._guard:
                # Unless the loop was removed meanwhile, with all that it had reserved.
                if self._loops.get(own.loop) is own:
                    own.size -= 1
                    self._total -= 1
                self._wake()
            raise
        with self._guard:
            own.busy.append(driver)
        return driver

    def _wake(self) -> None:
        """Wake the first waiter that can proceed now. Each call that proceeds wakes the next one,
        so that no connection stays idle while a call waits for it."""
        for waiter in list(self._waiting):
            if waiter.own.idle or self._may_grow(waiter.own):
                self._waiting.remove(waiter)
                # RuntimeError: the waiter's loop is closed. Try the next one.
                with contextlib.suppress(RuntimeError):
                    waiter.own.loop.call_soon_threadsafe(resolve, waiter.future)
                    return

    async def _shut_down(self, own: LoopConnections) -> None:
        """Close a loop's connections through its ``closer``, if it has one: an open asynchronous
        generator would be left to the garbage collector."""
        if own.closer is None:
            await self._close_connections(own)
        else:
            # RuntimeError: it runs already, since its loop is ending.
            with contextlib.suppress(RuntimeError):
                await own.closer.aclose()

    async def _close_connections(self, own: LoopConnections) -> None:
        """Close them one after the other; those left when it is cancelled are terminated."""
        left: list[Driver] = []
        try:
            await self._end_lending(own)
            left = self._remove(own)
            while left:
                await close(left[-1])
                left.pop()
        except BaseException:
            for driver in (*left, *self._remove(own)):
                driver.terminate()
            raise
        for eviction in list(own.evictions):
            eviction.start()
            if eviction.task is not None:
                await asyncio.wait([eviction.task])
        # A socket is closed one iteration of the loop after its connection.
        await next_iteration()

    def _remove(self, own: LoopConnections) -> list[Driver]:
        """Remove a loop from the pool and end the wait of its calls. Returns its idle
        connections."""
        with self._guard:
            if self._loops.get(own.loop) is own:
                del self._loops[own.loop]
            idle, own.idle = own.idle, []
            self._total -= own.size
            own.size = 0
            gone = [waiter for waiter in self._waiting if waiter.own is own]
            for waiter in gone:
                self._waiting.remove(waiter)
            self._wake()
        for waiter in gone:
            with contextlib.suppress(RuntimeError):
                own.loop.call_soon_threadsafe(_refuse, waiter.future)
        return idle

    def _terminate_all(self, other: LoopConnections) -> None:
        """Terminate the connections of a loop that does not run, also those in use: no call on that
        loop will release them."""
        if other.lent is not None:
            other.lent.shut_down()
            self.lent = None
        drivers = other.drivers()
        other.evictions, other.busy, other.lent = [], [], None
        self._remove(other)
        for driver in drivers:
            force_close(driver, other.loop)


def _refuse(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_exception(PoolClosed())


def _size(other: LoopConnections) -> int:
    return other.size


async def _close_with_loop(
    pool: "weakref.ref[Pool]", own: LoopConnections
) -> AsyncGenerator[None, None]:
    # ``asyncio.run`` closes asynchronous generators last, when all tasks have ended: connections
    # can still be closed then, and no call needs one any more.
    try:
        yield
    finally:
        alive = pool()
        if alive is not None:
            await alive.close_loop(own)


def _terminate_leaked(loops: dict[asyncio.AbstractEventLoop, LoopConnections]) -> None:
    for other in loops.values():
        drivers = other.drivers()
        try:
            if other.loop.is_running():
                other.loop.call_soon_threadsafe(_terminate, drivers)
                continue
        except RuntimeError:
            pass
        for driver in drivers:
            force_close(driver, other.loop)


def _terminate(drivers: list[Driver]) -> None:
    for driver in drivers:
        driver.terminate()
