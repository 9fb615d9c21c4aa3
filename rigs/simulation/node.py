"""One worker process of a simulated world: the real engine on a faulty line.

Its two realms stand for the two threads of a real process: the job loop and the I/O thread that
keeps the lease. A stall freezes the first, a stop both; a crash severs the line and freezes both
for good.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from forge_jobs.config import EngineSettings
from forge_jobs.core.errors import ForgeError
from forge_jobs.engine.runtime import QueueHandle, QueueRuntime
from forge_jobs.store.store import Store
from rigs.simulation.bound import BOUND_QUEUE
from rigs.simulation.clocks import SimClock
from rigs.simulation.dice import Dice
from rigs.simulation.effects import Recorder
from rigs.simulation.faults import FaultyStore, Line
from rigs.simulation.handlers import Stage, registry
from rigs.simulation.history import Fault, History
from rigs.simulation.loop import Realm, VirtualLoop
from rigs.simulation.plan import QUEUES

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ground:
    """What all actors of a world stand on."""

    loop: VirtualLoop
    wire: Realm
    store: Store
    history: History
    recorder: Recorder
    stage: Stage
    settings: EngineSettings
    bound: bool = False
    apart: bool = False

    def now(self) -> int:
        """Virtual microseconds since the world began."""
        return round(self.loop.time() * 1e6)

    def fault(self, who: str, what: str, note: str = "") -> None:
        """Something was done to the world."""
        self.history.add(Fault(self.now(), who, what, note))


class _Io:
    """The I/O thread as a realm of the one loop."""

    def __init__(self, loop: VirtualLoop, realm: Realm) -> None:
        self._loop = loop
        self._realm = realm

    def spawn(self, work: Callable[[], Coroutine[Any, Any, T]]) -> "asyncio.Task[T]":
        return self._loop.create_task(work(), context=self._realm.context())


class Node:
    """A process from its boot to its end; never booted twice."""

    def __init__(self, ground: Ground, who: str, dice: Dice, *, fresh: bool) -> None:
        self.who = who
        self.clock = SimClock(ground.loop, skew_s=dice.between(-600, 600))
        self.line = Line(who, loop=ground.loop, wire=ground.wire, history=ground.history, dice=dice)
        self.gone = self.left = False
        self.handle: QueueHandle | None = None
        self._ground = ground
        self._engine = Realm(f"{who}/engine")
        self._io = Realm(f"{who}/io")
        self._entropy = dice
        self.fresh = fresh

    @property
    def frozen(self) -> bool:
        """Whether its job loop stands still."""
        return self._engine.frozen

    def boot(self, *, replaces: str | None = None) -> None:
        """Start the engine; whoever fails to start is gone, as a process would be."""
        self._ground.fault(self.who, "boot" if replaces is None else "replace", replaces or "")
        self._ground.loop.create_task(self._start(replaces), context=self._engine.context())

    def stall(self) -> None:
        """The job loop is blocked; the I/O thread goes on."""
        self._ground.fault(self.who, "stall")
        self._engine.frozen = True

    def stop(self) -> None:
        """The whole process stands still."""
        self._ground.fault(self.who, "stop")
        self._engine.frozen = self._io.frozen = True

    def resume(self) -> None:
        """Go on after a stall or a stop."""
        if not self.gone and self._engine.frozen:
            self._ground.fault(self.who, "resume")
            self._ground.loop.thaw(self._io)
            self._ground.loop.thaw(self._engine)

    def crash(self) -> None:
        """Gone between two steps: no finaliser runs, nothing more is sent."""
        if not self.gone:
            self._ground.fault(self.who, "crash")
            self._vanish()

    async def shutdown(self, timeout_s: float) -> None:
        """Ask for a graceful end, as a parent would, and wait for the process to be gone."""
        if self.gone:
            return
        if self.handle is None:
            return self.crash()
        self._ground.fault(self.who, "shutdown", f"{timeout_s:.1f} s")
        await self._ground.loop.create_task(
            self._leave(self.handle, timeout_s), context=self._engine.context()
        )

    def left_over(self) -> list[str]:
        """Tasks that outlived a graceful end."""
        tasks = [*self._engine.tasks, *self._io.tasks]
        return [f"{self.who} left {task!r}" for task in tasks if not task.done()]

    def realms(self) -> tuple[Realm, Realm]:
        """For the burial."""
        return self._engine, self._io

    async def _start(self, replaces: str | None) -> None:
        ground = self._ground
        store = FaultyStore(ground.store, self.line, self._io, ground.recorder, apart=ground.apart)
        runtime = (
            QueueRuntime(
                store,
                registry(ground.stage, self.who, fresh=self.fresh, bound=ground.bound),
                settings=ground.settings,
                clock=self.clock,
                entropy=self._entropy,
                io=_Io(ground.loop, self._io),
            )
            .with_queues([*QUEUES, BOUND_QUEUE] if ground.bound else list(QUEUES))
            .with_worker_id(self.who)
        )
        if replaces is not None:
            runtime = runtime.with_replaced(replaces)
        try:
            self.handle = await runtime.start()
        except ForgeError as error:
            ground.fault(self.who, "exit", f"could not start: {error}")
            self._vanish()

    async def _leave(self, handle: QueueHandle, timeout_s: float) -> None:
        await handle.shutdown_graceful(timeout_s)
        if not self.gone:
            self._ground.fault(self.who, "exit")
            self.gone = self.left = True
            self.line.sever()

    def _vanish(self) -> None:
        self.gone = True
        self.line.sever()
        self._engine.frozen = self._io.frozen = True
