"""Runs the simulation of a seed and checks its history."""

import gc
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from forge_jobs.backends.memory.store import MemoryStore
from forge_jobs.config import EngineSettings
from forge_jobs.core.decide import Budgets
from forge_jobs.core.status import TERMINAL
from forge_jobs.engine import worker_process
from forge_jobs.engine.liveness.usage import Usage
from forge_jobs.store.store import Store
from rigs.simulation.all_checkers import check_history
from rigs.simulation.bound import (
    BOUND_QUEUE,
    FIRST_NUMBER,
    LIMIT_OPERATOR,
    LimitOperator,
    bound_job,
)
from rigs.simulation.chaos import FailureProfile, Fleet
from rigs.simulation.checkers import OPERATOR, Violation
from rigs.simulation.clocks import SimClock, pass_time
from rigs.simulation.coverage import count_events
from rigs.simulation.dice import Dice
from rigs.simulation.effects import Recorder
from rigs.simulation.faults import MAX_LATE_S, NO_FAULTS, FaultyConnection, FaultyStore
from rigs.simulation.final import FinalState, read_final
from rigs.simulation.handlers import RunTracker
from rigs.simulation.history import History
from rigs.simulation.loop import AnyTask, Realm, Stuck, VirtualLoop
from rigs.simulation.node import Node, SimContext
from rigs.simulation.operators import NORMAL_SLOTS, Operator, Producer
from rigs.simulation.plan import QUEUES
from rigs.simulation.recording_store import record_changes
from rigs.simulation.service_errors import service_errors
from rigs.simulation.workflow_operator import WorkflowOperator

_LEASES_S = (3.0, 5.0, 15.0)
_CLEANUP_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The size of a simulation. ``workflows``: the number of jobs with steps; ``bound``: of
    additional jobs with limits and lanes; ``drain_s``: within how many virtual seconds after the
    last fault every job must be terminal."""

    jobs: int = 150
    workflows: int = 25
    bound: int = 0
    nodes: int = 3
    minutes: float = 2.5
    drain_s: float = 240.0
    make_store: Callable[[SimClock, Dice], MemoryStore] = MemoryStore


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """The result of a simulation."""

    seed: int
    options: Options
    history: History
    violations: list[Violation]
    seen: Counter[str]
    virtual_s: float
    steps: int


def simulate(seed: int, options: Options | None = None) -> SimulationResult:
    """Run the simulation of a seed and check it."""
    chosen = options or Options()
    world = _World(seed, chosen)
    with logs_disabled(), service_errors() as errors, collections_paused(), machine_hidden():
        final = world.run()
    history = world.sim.history
    failed = [Violation("service", None, text) for text in dict.fromkeys(errors)]
    return SimulationResult(
        seed,
        chosen,
        history,
        [*check_history(history, final), *failed],
        count_events(history),
        world.sim.loop.time(),
        world.sim.loop.steps,
    )


@contextmanager
def logs_disabled() -> Generator[None, None, None]:
    """Disable the logs: injected faults cause thousands of expected warnings."""
    log = logging.getLogger("forge_jobs")
    level = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        log.setLevel(level)


@contextmanager
def collections_paused() -> Generator[None, None, None]:
    """No collection of reference cycles meanwhile: an eighth of the time, and no finaliser runs at
    an instant that other objects of this process decide."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def machine_hidden() -> Generator[None, None, None]:
    """The engine reads no figures of this machine, which no virtual time has."""
    real = worker_process.read_usage
    worker_process.read_usage = Usage
    try:
        yield
    finally:
        worker_process.read_usage = real


def make_context(
    seed: int,
    settings: EngineSettings,
    make_store: Callable[[SimClock, Dice], MemoryStore] = MemoryStore,
    *,
    bound: bool = False,
    server_side: bool = False,
) -> SimContext:
    """A loop, a recorded store and an empty history, without actors."""
    loop = VirtualLoop(Dice(f"{seed}:order"))
    history = History()

    def now() -> int:
        return round(loop.time() * 1e6)

    recorder = Recorder(history, now)
    store = make_store(SimClock(loop), Dice(f"{seed}:store"))
    record_changes(store, recorder)
    runs = RunTracker(history, now)
    return SimContext(
        loop, Realm("wire"), store, history, recorder, runs, settings, bound, server_side
    )


async def remove_nodes(
    sim: SimContext, nodes: Sequence[Node], tasks: Sequence[AnyTask] = ()
) -> None:
    """Cancel the coroutines of ended processes instead of leaving them to garbage collection."""
    loop = sim.loop
    ended = list(tasks)
    for node in nodes:
        node.connection.disconnect()
        for realm in node.realms():
            loop.thaw(realm)
            ended.extend(realm.tasks)
    until_s = loop.time() + _CLEANUP_S
    while loop.time() < until_s and any(not task.done() for task in ended):
        for task in ended:
            task.cancel()
        await pass_time(1.0)


class _World:
    def __init__(self, seed: int, options: Options) -> None:
        self._options = options
        self._seed = seed
        self._errors: list[str] = []
        self._tasks: list[AnyTask] = []
        self._fleet: Fleet | None = None
        self._dice = dice = Dice(f"{seed}:world")
        settings = EngineSettings(
            lease_s=dice.pick(_LEASES_S),
            grace_s=dice.between(1, 10),
            strict=dice.chance(0.2),
            # An isolated job would run in a child process, which has no virtual time.
            isolate_after_crashes=1_000_000,
            min_background_finishes=2,
            budgets=Budgets(missing_delay_s=4.0),
        )
        self.sim = make_context(
            seed,
            settings,
            options.make_store,
            bound=options.bound > 0,
            # A generator of its own, so that the other draws of a seed do not change.
            server_side=Dice(f"{seed}:apart").chance(0.5),
        )

    def run(self) -> FinalState:
        loop = self.sim.loop
        try:
            try:
                loop.run_until_complete(self._live())
            except Stuck as error:
                self._errors.append(str(error))
                self._freeze()
            for node in self._nodes():
                if node.left:
                    self._errors.extend(node.unfinished_tasks())
            final = loop.run_until_complete(
                read_final(self.sim.store, [*self._errors, *loop.errors])
            )
            self.sim.history.seal()
            loop.run_until_complete(remove_nodes(self.sim, self._nodes(), self._tasks))
            return final
        finally:
            loop.close()

    async def _live(self) -> None:
        sim, options, dice = self.sim, self._options, self._dice
        for queue in (*QUEUES, BOUND_QUEUE) if sim.bound else QUEUES:
            await sim.store.queues.ensure(queue, slots=NORMAL_SLOTS)
            sim.recorder.slots_changed("world", queue, NORMAL_SLOTS)
        profile = FailureProfile.draw(dice)
        names = [chr(ord("a") + place) for place in range(options.nodes)]
        self._fleet = fleet = Fleet(sim, Dice(f"{self._seed}:chaos"), profile, names)
        connections = [self._connection("producer"), self._connection(OPERATOR)]
        for connection in connections:
            connection.rates = profile.rates
        stores = [self._store(connection) for connection in connections]
        producer = Producer(sim, stores[0], Dice(f"{self._seed}:producer"))
        operator = Operator(sim, stores[1], Dice(f"{self._seed}:operator"), producer)
        faults_s = options.minutes * 60
        parent = self._task(fleet.restart_nodes())
        tasks = [
            self._task(producer.produce(options.jobs, faults_s * 0.8)),
            self._task(operator.act_at_random(faults_s)),
            self._task(fleet.inject_faults(faults_s)),
        ]
        # A connection of its own, so that the other draws of a seed do not change.
        connections.append(self._connection(OPERATOR, "workflows"))
        connections[-1].rates = profile.rates
        workflow_operator = WorkflowOperator(
            sim, self._store(connections[-1]), Dice(f"{self._seed}:workflows")
        )
        tasks += [self._task(work) for work in workflow_operator.work(options.workflows, faults_s)]
        limit_operator = None
        if sim.bound:
            connections.append(self._connection(LIMIT_OPERATOR))
            connections[-1].rates = profile.rates
            store, dice = self._store(connections[-1]), Dice(f"{self._seed}:{LIMIT_OPERATOR}")
            limit_operator = LimitOperator(sim, store, dice)
            bound = Producer(sim, stores[0], dice, make=bound_job, first=FIRST_NUMBER)
            bound.acked = producer.acked
            tasks.append(self._task(limit_operator.change_limits(faults_s)))
            tasks.append(self._task(bound.produce(options.bound, faults_s * 0.8)))
        for task in tasks:
            await task
        for connection in connections:
            connection.rates = NO_FAULTS
        sim.fault("world", "calm")
        await fleet.stop_faults()
        # Late calls of the operator may still arrive, and must not undo the restoring.
        await pass_time(MAX_LATE_S + 1)
        await operator.restore()
        if limit_operator is not None:
            await limit_operator.restore()
        answers = self._task(workflow_operator.answer_waits())
        await self._wait_until_terminal()
        answers.cancel()
        parent.cancel()
        await fleet.end(timeout_s=30.0)
        await pass_time(1.0)

    async def _wait_until_terminal(self) -> None:
        """Wait until every job is terminal, at most ``drain_s``."""
        loop = self.sim.loop
        until_s = loop.time() + self._options.drain_s
        while loop.time() < until_s:
            counts = await self.sim.store.metrics.counts()
            if all(count.status in TERMINAL for count in counts):
                return
            await pass_time(1.0)

    def _freeze(self) -> None:
        """Stop all nodes, so that a tight loop does not disturb reading the final state."""
        self.sim.loop.allow_more_steps()
        for node in self._nodes():
            node.crash()

    def _nodes(self) -> list[Node]:
        return [] if self._fleet is None else self._fleet.all

    def _task(self, work: Coroutine[Any, Any, Any]) -> AnyTask:
        task = self.sim.loop.create_task(work)
        self._tasks.append(task)
        return task

    def _connection(self, who: str, name: str = "") -> FaultyConnection:
        sim = self.sim
        return FaultyConnection(
            who,
            loop=sim.loop,
            wire=sim.wire,
            history=sim.history,
            dice=Dice(f"{self._seed}:{name or who}:line"),
        )

    def _store(self, connection: FaultyConnection) -> Store:
        sim = self.sim
        return FaultyStore(sim.store, connection, Realm(connection.who), sim.recorder)
