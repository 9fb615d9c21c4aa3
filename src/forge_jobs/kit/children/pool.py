"""Warm children of one kind: the free ones, how many there may be, and when one is worn out.

A request takes a free child, else a new one, else waits for whoever is free first; it never waits
behind a child of its own. Children that fail to come up again and again are started ever more
slowly, up to ``MAX_RESTART_DELAY_S``.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, Generic, Protocol, TypeVar

from forge_jobs.kit.clock import Clock
from forge_jobs.kit.entropy import Entropy

from .process import ChildExit
from .warm_child import ChildUnavailable

MIN_RESTART_DELAY_S: Final = 0.1
MAX_RESTART_DELAY_S: Final = 10.0


class PooledChild(Protocol):
    """What a pool keeps."""

    @property
    def alive(self) -> bool:
        """Whether it can take a request."""
        ...

    async def shut_down(self) -> None:
        """It is idle and no longer needed."""
        ...

    async def kill(self) -> None:
        """End it at once."""
        ...

    async def terminate(self, grace_s: float) -> ChildExit | None:
        """End it in the middle of a request."""
        ...


W = TypeVar("W", bound=PooledChild)


class ChildPool(Generic[W]):
    """At most ``size`` children (None: as many as are asked for). Belongs to one event loop.

    ``make`` gives a child that is not started yet; ``start(child, on_exit)`` starts it or raises
    NotUp. ``is_worn_out`` is asked when a child is given back. ``idle_s`` None keeps idle ones.
    """

    def __init__(
        self,
        make: Callable[[], W],
        start: Callable[[W, Callable[[], None]], Awaitable[None]],
        *,
        size: int | None,
        is_worn_out: Callable[[W], bool],
        idle_s: float | None,
        clock: Clock,
        entropy: Entropy,
    ) -> None:
        self._make = make
        self._start = start
        self._is_worn_out = is_worn_out
        self._idle_s = idle_s
        self._clock = clock
        self._entropy = entropy
        self._loop = asyncio.get_running_loop()
        self._room = None if size is None else asyncio.Semaphore(size)
        self._idle: dict[W, asyncio.TimerHandle | None] = {}
        self._all: dict[W, None] = {}
        self._chores: dict[asyncio.Task[None], None] = {}
        self._failures = 0
        self._not_before = 0.0
        self._closed = False

    async def acquire(self, *, fresh: bool = False) -> W:
        """A child for one request; ``fresh``: one that has done nothing yet. NotUp when it cannot
        be started. Whoever takes one gives it back, whatever became of it."""
        if self._room is not None:
            await self._room.acquire()
        try:
            free = None if fresh else self._free()
            return free if free is not None else await self._new()
        except BaseException:
            if self._room is not None:
                self._room.release()
            raise

    def release(self, child: W, *, keep: bool = True) -> None:
        """The request is over. A child that still lives is kept for the next one, unless it is
        worn out or nobody wants to keep it."""
        if self._room is not None:
            self._room.release()
        if not child.alive or self._closed:
            return
        if not keep or self._is_worn_out(child):
            self.spawn(child.shut_down())
            return
        idle_s = self._idle_s
        timer = None if idle_s is None else self._loop.call_later(idle_s, self._trim, child)
        self._idle[child] = timer

    def record_success(self) -> None:
        """A child answered: the next one may start at once."""
        self._failures = 0

    def record_failure(self) -> None:
        """A child died or had to be killed: after the second time in a row, wait a little."""
        self._failures += 1
        if self._failures > 1:
            wait_s = min(MAX_RESTART_DELAY_S, MIN_RESTART_DELAY_S * 2 ** (self._failures - 2))
            self._not_before = self._clock.mono() + wait_s * (1 + 0.1 * self._entropy.roll())

    async def shut_down_idle(self) -> None:
        """Let go of all children that do nothing; waits until they are gone."""
        idle = list(self._idle)
        for child in idle:
            self._unlist(child)
        await asyncio.gather(*(child.shut_down() for child in idle), return_exceptions=True)

    async def close(self) -> None:
        """Kill all children."""
        self._closed = True
        for child in list(self._idle):
            self._unlist(child)
        chores = list(self._chores)
        for chore in chores:
            chore.cancel()
        await asyncio.gather(*chores, return_exceptions=True)
        await asyncio.gather(*(child.kill() for child in list(self._all)))

    def spawn(self, chore: Coroutine[Any, Any, object]) -> None:
        """Do something about a child beside the requests."""
        task = self._loop.create_task(_ignore_unavailable(chore))
        self._chores[task] = None
        task.add_done_callback(lambda done: self._chores.pop(done, None))

    def _free(self) -> W | None:
        # The one that was used last is the warmest; the others may grow old and be let go.
        while self._idle:
            child = next(reversed(self._idle))
            self._unlist(child)
            if child.alive:
                return child
        return None

    async def _new(self) -> W:
        wait_s = self._not_before - self._clock.mono()
        if self._failures > 1 and wait_s > 0:
            await self._clock.sleep(wait_s)
        child = self._make()
        self._all[child] = None
        try:
            await self._start(child, lambda: self._forget(child))
        except ChildUnavailable:
            self._forget(child)
            self.record_failure()
            raise
        except BaseException:
            self._forget(child)
            raise
        return child

    def _trim(self, child: W) -> None:
        if child in self._idle:
            self._unlist(child)
            self.spawn(child.shut_down())

    def _unlist(self, child: W) -> None:
        timer = self._idle.pop(child, None)
        if timer is not None:
            timer.cancel()

    def _forget(self, child: W) -> None:
        self._all.pop(child, None)
        self._unlist(child)


async def _ignore_unavailable(chore: Coroutine[Any, Any, object]) -> None:
    with contextlib.suppress(ChildUnavailable):
        await chore
