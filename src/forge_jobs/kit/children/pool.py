"""``ChildPool``: a pool of warm child processes of one kind.

A request gets an idle child, else a new one, else the next child that is released. After repeated
failures new children are started with exponential back-off, up to ``MAX_RESTART_DELAY_S``.
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
    """The protocol of a pool's children."""

    @property
    def alive(self) -> bool:
        """Whether the child can take a request."""
        ...

    async def shut_down(self) -> None:
        """End an idle child."""
        ...

    async def kill(self) -> None:
        """Kill the child at once."""
        ...

    async def terminate(self, grace_s: float) -> ChildExit | None:
        """End the child during a request."""
        ...


W = TypeVar("W", bound=PooledChild)


class ChildPool(Generic[W]):
    """At most ``size`` children (None: no limit). Belongs to one event loop.

    ``make`` returns a child that is not started yet; ``start(child, on_exit)`` starts it or raises
    ChildUnavailable. A released child for which ``is_worn_out`` is true is shut down. Idle children
    are shut down after ``idle_s`` seconds (None: never).
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
        self._slots = None if size is None else asyncio.Semaphore(size)
        self._idle: dict[W, asyncio.TimerHandle | None] = {}
        self._all: dict[W, None] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._failures = 0
        self._not_before = 0.0
        self._closed = False

    async def acquire(self, *, fresh: bool = False) -> W:
        """A child for one request. ``fresh``: one that has had no request yet.

        Raises ChildUnavailable if it cannot be started. The caller must release the child, even a
        dead one.
        """
        if self._slots is not None:
            await self._slots.acquire()
        try:
            idle = None if fresh else self._take_idle()
            return idle if idle is not None else await self._start_new()
        except BaseException:
            if self._slots is not None:
                self._slots.release()
            raise

    def release(self, child: W, *, keep: bool = True) -> None:
        """Return a child after its request. A live child becomes idle, unless it is worn out or
        ``keep`` is false."""
        if self._slots is not None:
            self._slots.release()
        if not child.alive or self._closed:
            return
        if not keep or self._is_worn_out(child):
            self.spawn(child.shut_down())
            return
        idle_s = self._idle_s
        timer = None
        if idle_s is not None:
            timer = self._loop.call_later(idle_s, self._idle_timeout, child)
        self._idle[child] = timer

    def record_success(self) -> None:
        """A child has answered a request: the next one may start without a delay."""
        self._failures = 0

    def record_failure(self) -> None:
        """A child died or was killed. From the second failure in a row on, the next start is
        delayed."""
        self._failures += 1
        if self._failures > 1:
            wait_s = min(MAX_RESTART_DELAY_S, MIN_RESTART_DELAY_S * 2 ** (self._failures - 2))
            self._not_before = self._clock.mono() + wait_s * (1 + 0.1 * self._entropy.roll())

    async def shut_down_idle(self) -> None:
        """Shut down all idle children and wait until they have exited."""
        idle = list(self._idle)
        for child in idle:
            self._remove_idle(child)
        await asyncio.gather(*(child.shut_down() for child in idle), return_exceptions=True)

    async def close(self) -> None:
        """Kill all children."""
        self._closed = True
        for child in list(self._idle):
            self._remove_idle(child)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(child.kill() for child in list(self._all)))

    def spawn(self, work: Coroutine[Any, Any, object]) -> None:
        """Run work on a child as a background task, which ``close`` cancels."""
        task = self._loop.create_task(_ignore_unavailable(work))
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    def _take_idle(self) -> W | None:
        # Last in, first out: surplus children stay idle and reach idle_s.
        while self._idle:
            child = next(reversed(self._idle))
            self._remove_idle(child)
            if child.alive:
                return child
        return None

    async def _start_new(self) -> W:
        wait_s = self._not_before - self._clock.mono()
        if self._failures > 1 and wait_s > 0:
            await self._clock.sleep(wait_s)
        child = self._make()
        self._all[child] = None
        try:
            await self._start(child, lambda: self._remove(child))
        except ChildUnavailable:
            self._remove(child)
            self.record_failure()
            raise
        except BaseException:
            self._remove(child)
            raise
        return child

    def _idle_timeout(self, child: W) -> None:
        if child in self._idle:
            self._remove_idle(child)
            self.spawn(child.shut_down())

    def _remove_idle(self, child: W) -> None:
        timer = self._idle.pop(child, None)
        if timer is not None:
            timer.cancel()

    def _remove(self, child: W) -> None:
        self._all.pop(child, None)
        self._remove_idle(child)


async def _ignore_unavailable(work: Coroutine[Any, Any, object]) -> None:
    with contextlib.suppress(ChildUnavailable):
        await work
