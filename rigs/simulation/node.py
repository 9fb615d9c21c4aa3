"""One worker process of the simulation: the real engine on a faulty connection.

Its two realms stand for the two threads of a real process: the job loop and the I/O thread that
sends heartbeats. A stall freezes the first, a stop both. A crash closes the connection and freezes
both permanently.
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
from rigs.simulation.faults import FaultyConnection, FaultyStore
from rigs.simulation.handlers import RunTracker, registry
from rigs.simulation.history import NEWER, OLDER, Fault, History
from rigs.simulation.loop import Realm, VirtualLoop
from rigs.simulation.plan import QUEUES

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SimContext:
    """The parts that all actors of a simulation share."""

    loop: VirtualLoop
    wire: Realm
    store: Store
    history: History
    recorder: Recorder
    runs: RunTracker
    settings: EngineSettings
    bound: bool = False
    server_side: bool = False

    def now(self) -> int:
        """Virtual microseconds since the start of the simulation."""
        return round(self.loop.time() * 1e6)

    def fault(self, who: str, what: str, note: str = "") -> None:
        """Record a fault or an operator action."""
        self.history.add(Fault(self.now(), who, what, note))


class _SimIoThread:
    """The I/O thread as a realm of the one loop."""

    def __init__(self, loop: VirtualLoop, realm: Realm) -> None:
        self._loop = loop
        self._realm = realm

    def spawn(self, work: Callable[[], Coroutine[Any, Any, T]]) -> "asyncio.Task[T]":
        return self._loop.create_task(work(), context=self._realm.context())


class Node:
    """A process from its start to its end; never started twice."""

    def __init__(self, sim: SimContext, who: str, dice: Dice, *, fresh: bool) -> None:
        self.who = who
        self.clock = SimClock(sim.loop, skew_s=dice.between(-600, 600))
        self.connection = FaultyConnection(
            who, loop=sim.loop, wire=sim.wire, history=sim.history, dice=dice
        )
        self.gone = self.left = False
        self.handle: QueueHandle | None = None
        self._sim = sim
        self._engine = Realm(f"{who}/engine")
        self._io = Realm(f"{who}/io")
        self._entropy = dice
        self.fresh = fresh

    @property
    def frozen(self) -> bool:
        """Whether its job loop is frozen."""
        return self._engine.frozen

    def boot(self, *, replaces: str | None = None) -> None:
        """Start the engine; a node that fails to start ends, as a process would."""
        self._sim.fault(self.who, "boot" if replaces is None else "replace", replaces or "")
        self._sim.fault(self.who, NEWER if self.fresh else OLDER)
        self._sim.loop.create_task(self._start(replaces), context=self._engine.context())

    def stall(self) -> None:
        """Block the job loop; the I/O thread continues."""
        self._sim.fault(self.who, "stall")
        self._engine.frozen = True

    def stop(self) -> None:
        """Freeze the whole process (SIGSTOP)."""
        self._sim.fault(self.who, "stop")
        self._engine.frozen = self._io.frozen = True

    def resume(self) -> None:
        """Continue after a stall or a stop."""
        if not self.gone and self._engine.frozen:
            self._sim.fault(self.who, "resume")
            self._sim.loop.thaw(self._io)
            self._sim.loop.thaw(self._engine)

    def crash(self) -> None:
        """End between two steps: no finaliser runs, nothing more is sent."""
        if not self.gone:
            self._sim.fault(self.who, "crash")
            self._vanish()

    async def shutdown(self, timeout_s: float) -> None:
        """Request a graceful shutdown, as a parent would, and wait for the process to end."""
        if self.gone:
            return
        if self.handle is None:
            return self.crash()
        self._sim.fault(self.who, "shutdown", f"{timeout_s:.1f} s")
        await self._sim.loop.create_task(
            self._leave(self.handle, timeout_s), context=self._engine.context()
        )

    def unfinished_tasks(self) -> list[str]:
        """Tasks that were not done after a graceful shutdown."""
        tasks = [*self._engine.tasks, *self._io.tasks]
        return [f"{self.who} left {task!r}" for task in tasks if not task.done()]

    def realms(self) -> tuple[Realm, Realm]:
        """The realms of the process, for the cleanup."""
        return self._engine, self._io

    async def _start(self, replaces: str | None) -> None:
        sim = self._sim
        store = FaultyStore(
            sim.store, self.connection, self._io, sim.recorder, server_side=sim.server_side
        )
        runtime = (
            QueueRuntime(
                store,
                registry(sim.runs, self.who, fresh=self.fresh, bound=sim.bound),
                settings=sim.settings,
                clock=self.clock,
                entropy=self._entropy,
                io=_SimIoThread(sim.loop, self._io),
            )
            .with_queues([*QUEUES, BOUND_QUEUE] if sim.bound else list(QUEUES))
            .with_worker_id(self.who)
        )
        if replaces is not None:
            runtime = runtime.with_replaced(replaces)
        try:
            self.handle = await runtime.start()
        except ForgeError as error:
            sim.fault(self.who, "exit", f"could not start: {error}")
            self._vanish()

    async def _leave(self, handle: QueueHandle, timeout_s: float) -> None:
        await handle.shutdown_graceful(timeout_s)
        if not self.gone:
            self._sim.fault(self.who, "exit")
            self.gone = self.left = True
            self.connection.disconnect()

    def _vanish(self) -> None:
        self.gone = True
        self.connection.disconnect()
        self._engine.frozen = self._io.frozen = True
