"""An event loop with virtual time and an order of steps that a seed decides.

Nothing here waits: when nothing is ready the clock jumps to the next timer. No selector, no thread,
no executor; whoever tries to use one from the simulated code gets an error instead of a run that
cannot be repeated.

Every callback belongs to a *realm* (the realm of the code that created it). A realm can be frozen:
its callbacks and due timers are set aside until it thaws. A process that crashes is a realm that
never thaws, so that none of its ``finally`` blocks runs.
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
    """The simulation cannot go on: nothing will ever happen again, or the same things for ever."""


class ThreadInSimulation(RuntimeError):
    """Simulated code reached for a thread; its order could not be repeated."""


class Realm:
    """Code that lives, stops and dies together: one thread of a process, or the world itself."""

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
        """Hold the task, so that a frozen one is not collected (which would run its finalisers)."""
        self.tasks.append(task)
        if len(self.tasks) > _TASKS_BEFORE_PRUNING:
            self.tasks = [kept for kept in self.tasks if not kept.done()]


class VirtualLoop(asyncio.BaseEventLoop):
    """The loop; ``dice`` orders the ready steps, ``steps_most`` ends a run that spins."""

    def __init__(self, dice: Dice, *, steps_most: int = 20_000_000) -> None:
        super().__init__()
        self.set_debug(False)
        self.set_task_factory(_make_task)
        self.steps = 0
        self.troubles: list[str] = []
        self.set_exception_handler(_note_trouble)
        self._dice = dice
        self._steps_most = self._steps_left = steps_most
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
        """The same; there is only one thread, and a second one is refused."""
        if threading.get_ident() != self._owner_thread:
            raise ThreadInSimulation(f"{callback!r} was sent from another thread")
        return self.call_soon(callback, *args, context=context)

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
        """After a run that spun: as many steps again."""
        self._steps_left = self._steps_most

    def thaw(self, realm: Realm) -> None:
        """Let a frozen realm go on with everything that was set aside."""
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
        place = self._dice.index(len(steps))
        steps[place], steps[-1] = steps[-1], steps[place]
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
            raise Stuck(f"{self.steps:,} steps by {self._now:.3f} virtual seconds: it spins")
        handle._run()

    def _jump(self) -> None:
        while self._due and self._due[0][2].cancelled():
            heapq.heappop(self._due)
        if not self._due:
            raise Stuck(f"nothing is left to happen at {self._now:.3f} virtual seconds")
        self._now = max(self._now, self._due[0][0])

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """asyncio tells of every cancelled timer; it is skipped when its turn comes."""

    def _write_to_self(self) -> None:
        """asyncio wakes a selector here; there is none."""

    def _process_events(self, event_list: Any) -> None:
        """asyncio hands over what a selector saw; there is none."""


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


def _note_trouble(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    assert isinstance(loop, VirtualLoop)
    loop.troubles.append(f"{context.get('message')}: {context.get('exception')!r}")
