"""An event loop with virtual time and a seeded order of steps.

It never waits: when nothing is ready, the clock jumps to the next timer. It has no selector, thread
or executor; simulated code that uses one gets an error, since the run could not be repeated.

Every callback belongs to a *realm* (the realm of the code that created it), which stands for one
thread of a process. A realm can be frozen: its callbacks and due timers are kept until it thaws. A
crashed process is a realm that never thaws, so that none of its ``finally`` blocks runs.
"""

import asyncio
import heapq
import threading
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeAlias

from rigs.simulation.dice import Dice

STEP_S = 0.000_002
_CURRENT: "ContextVar[Realm | None]" = ContextVar("realm", default=None)
_TASKS_BEFORE_PRUNING = 256

AnyTask: TypeAlias = "asyncio.Task[Any]"


class Stuck(RuntimeError):
    """The simulation cannot continue: no callback is left, or it loops without progress."""


class ThreadInSimulation(RuntimeError):
    """Simulated code used a thread, whose order could not be repeated."""


class Realm:
    """Code that is frozen and ended together: one thread of a process, or the simulation itself."""

    __slots__ = ("frozen", "name", "parked", "shared", "tasks")

    def __init__(self, name: str) -> None:
        self.name = name
        self.frozen = False
        self.parked: list[asyncio.Handle] = []
        self.tasks: list[AnyTask] = []
        self.shared = copy_context()
        self.shared.run(_CURRENT.set, self)

    def context(self) -> Context:
        """A fresh context for a task of this realm; plain callbacks may use the shared one."""
        return self.shared.copy()

    def keep(self, task: AnyTask) -> None:
        """Keep a reference: garbage collection of a frozen task would run its finalisers."""
        self.tasks.append(task)
        if len(self.tasks) > _TASKS_BEFORE_PRUNING:
            self.tasks = [kept for kept in self.tasks if not kept.done()]


class VirtualLoop(asyncio.BaseEventLoop):
    """The loop; ``dice`` orders the ready steps, ``max_steps`` ends a run that spins."""

    def __init__(self, dice: Dice, *, max_steps: int = 20_000_000) -> None:
        super().__init__()
        self.set_debug(False)
        self.set_task_factory(_make_task)
        self.steps = 0
        self.errors: list[str] = []
        self.set_exception_handler(_record_error)
        self._dice = dice
        self._max_steps = self._steps_left = max_steps
        self._now = 0.0
        self._queued = 0
        self._due: list[tuple[float, int, asyncio.TimerHandle, Realm | None]] = []
        self._steps: list[tuple[asyncio.Handle, Realm | None]] = []
        self._owner_thread = threading.get_ident()

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._now

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Run the callback at this virtual instant, in an order the seed decides."""
        realm = _CURRENT.get() if context is None else context.get(_CURRENT, None)
        handle = asyncio.Handle(callback, args, self, context)
        self._steps.append((handle, realm))
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """``call_soon``; calls from another thread are refused."""
        if threading.get_ident() != self._owner_thread:
            raise ThreadInSimulation(f"{callback!r} was sent from another thread")
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:  # fmt: skip
        """Run the callback after so many virtual seconds."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:  # fmt: skip
        """Run the callback when virtual time has reached ``when``."""
        realm = _CURRENT.get() if context is None else context.get(_CURRENT, None)
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._queued += 1
        heapq.heappush(self._due, (when, self._queued, handle, realm))
        return handle

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        """Refused."""
        raise ThreadInSimulation(f"{func!r} was sent to an executor")

    def allow_more_steps(self) -> None:
        """Reset the step limit, after a run that exceeded it."""
        self._steps_left = self._max_steps

    def thaw(self, realm: Realm) -> None:
        """Resume a frozen realm with its kept callbacks."""
        realm.frozen = False
        self._steps.extend((handle, realm) for handle in realm.parked)
        realm.parked.clear()

    def _run_once(self) -> None:
        if not self._steps:
            self._jump()
        due = self._due
        while due and due[0][0] <= self._now:
            _, _, handle, realm = heapq.heappop(due)
            self._steps.append((handle, realm))
        steps = self._steps
        index = int(self._dice.roll() * len(steps))
        steps[index], steps[-1] = steps[-1], steps[index]
        handle, realm = steps.pop()
        if handle.cancelled():
            return
        if realm is not None and realm.frozen:
            realm.parked.append(handle)
            return
        self.steps += 1
        self._now += STEP_S
        self._steps_left -= 1
        if self._steps_left < 0:
            raise Stuck(f"{self.steps:,} steps by {self._now:.3f} virtual seconds: a tight loop")
        handle._run()

    def _jump(self) -> None:
        while self._due and self._due[0][2].cancelled():
            heapq.heappop(self._due)
        if not self._due:
            raise Stuck(f"no callback is left at {self._now:.3f} virtual seconds")
        self._now = max(self._now, self._due[0][0])

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Called by asyncio for every cancelled timer; it is skipped when it is due."""

    def _write_to_self(self) -> None:
        """asyncio wakes a selector here; there is none."""

    def _process_events(self, event_list: Any) -> None:
        """Called by asyncio with the events of a selector; there is none."""


def _make_task(
    loop: asyncio.AbstractEventLoop,
    coro: "Coroutine[Any, Any, Any] | Generator[Any, None, Any]",
    **options: Any,
) -> AnyTask:
    task: AnyTask = asyncio.Task(coro, loop=loop, **options)
    context: Context | None = options.get("context")
    realm = _CURRENT.get() if context is None else context.get(_CURRENT, None)
    if realm is not None:
        realm.keep(task)
    return task


def _record_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    assert isinstance(loop, VirtualLoop)
    loop.errors.append(f"{context.get('message')}: {context.get('exception')!r}")
