"""A world from its seed to its judgement."""

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
from forge_jobs.store.store import Store
from rigs.simulation.bound import BOUND_QUEUE, FIRST_NUMBER, GOVERNOR, Governor, bound_job
from rigs.simulation.chaos import Climate, Fleet
from rigs.simulation.checkers import OPERATOR, Violation
from rigs.simulation.clocks import SimClock, pass_time
from rigs.simulation.coverage import sightings
from rigs.simulation.dice import Dice
from rigs.simulation.effects import Recorder
from rigs.simulation.faults import CALM, MAX_LATE_S, FaultyStore, Line
from rigs.simulation.final import Final, read_final
from rigs.simulation.handlers import Stage
from rigs.simulation.history import History
from rigs.simulation.loop import AnyTask, Realm, Stuck, VirtualLoop
from rigs.simulation.node import Ground, Node
from rigs.simulation.operators import NORMAL_SLOTS, Operator, Producer
from rigs.simulation.plan import QUEUES
from rigs.simulation.verdict import check_history
from rigs.simulation.watched import watch

_LEASES_S = (3.0, 5.0, 15.0)
_BURIAL_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What makes a world besides its seed. ``bound`` is how many jobs there are besides that limits
    and lanes bind; ``drain_s`` bounds how long it may take to come to rest after the last fault, in
    virtual seconds."""

    jobs: int = 150
    bound: int = 0
    nodes: int = 3
    minutes: float = 2.5
    drain_s: float = 240.0
    make_store: Callable[[SimClock, Dice], MemoryStore] = MemoryStore


@dataclass(frozen=True, slots=True)
class Ended:
    """A world that has ended."""

    seed: int
    options: Options
    history: History
    violations: list[Violation]
    seen: Counter[str]
    virtual_s: float
    steps: int


def simulate(seed: int, options: Options | None = None) -> Ended:
    """Run the world of a seed to its end and judge it."""
    chosen = options or Options()
    world = _World(seed, chosen)
    with quiet_logs():
        final = world.run()
    history = world.ground.history
    return Ended(
        seed,
        chosen,
        history,
        check_history(history, final),
        sightings(history),
        world.ground.loop.time(),
        world.ground.loop.steps,
    )


@contextmanager
def quiet_logs() -> Generator[None, None, None]:
    """A world logs thousands of warnings; that is its purpose, and nobody reads them."""
    log = logging.getLogger("forge_jobs")
    level = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        log.setLevel(level)


def lay_ground(
    seed: int,
    settings: EngineSettings,
    make_store: Callable[[SimClock, Dice], MemoryStore] = MemoryStore,
    *,
    bound: bool = False,
    apart: bool = False,
) -> Ground:
    """A loop, a watched store and an empty history; no actors yet."""
    loop = VirtualLoop(Dice(f"{seed}:order"))
    history = History()

    def now() -> int:
        return round(loop.time() * 1e6)

    recorder = Recorder(history, now)
    store = make_store(SimClock(loop), Dice(f"{seed}:store"))
    watch(store, recorder)
    stage = Stage(history, now)
    return Ground(loop, Realm("wire"), store, history, recorder, stage, settings, bound, apart)


async def remove_nodes(
    ground: Ground, nodes: Sequence[Node], tasks: Sequence[AnyTask] = ()
) -> None:
    """Let the coroutines of dead processes end, now that nobody looks, instead of leaving them to
    the garbage collector."""
    loop = ground.loop
    ended = list(tasks)
    for node in nodes:
        node.line.sever()
        for realm in node.realms():
            loop.thaw(realm)
            ended.extend(realm.tasks)
    until_s = loop.time() + _BURIAL_S
    while loop.time() < until_s and any(not task.done() for task in ended):
        for task in ended:
            task.cancel()
        await pass_time(1.0)


class _World:
    def __init__(self, seed: int, options: Options) -> None:
        self._options = options
        self._seed = seed
        self._troubles: list[str] = []
        self._tasks: list[AnyTask] = []
        self._fleet: Fleet | None = None
        self._dice = dice = Dice(f"{seed}:world")
        settings = EngineSettings(
            lease_s=dice.pick(_LEASES_S),
            grace_s=dice.between(1, 10),
            strict=dice.chance(0.2),
            # A suspect would be run alone in a child process, which has no virtual time.
            isolate_after_crashes=1_000_000,
            min_background_finishes=2,
            budgets=Budgets(missing_delay_s=4.0),
        )
        self.ground = lay_ground(
            seed,
            settings,
            options.make_store,
            bound=options.bound > 0,
            # Dice of their own: what else happens to a seed stays as it was.
            apart=Dice(f"{seed}:apart").chance(0.5),
        )

    def run(self) -> Final:
        loop = self.ground.loop
        try:
            try:
                loop.run_until_complete(self._live())
            except Stuck as error:
                self._troubles.append(str(error))
                self._freeze()
            for node in self._nodes():
                if node.left:
                    self._troubles.extend(node.left_over())
            final = loop.run_until_complete(
                read_final(self.ground.store, [*self._troubles, *loop.troubles])
            )
            self.ground.history.seal()
            loop.run_until_complete(remove_nodes(self.ground, self._nodes(), self._tasks))
            return final
        finally:
            loop.close()

    async def _live(self) -> None:
        ground, options, dice = self.ground, self._options, self._dice
        for queue in (*QUEUES, BOUND_QUEUE) if ground.bound else QUEUES:
            await ground.store.queues.ensure(queue, slots=NORMAL_SLOTS)
            ground.recorder.slotted("world", queue, NORMAL_SLOTS)
        climate = Climate.draw(dice)
        names = [chr(ord("a") + place) for place in range(options.nodes)]
        self._fleet = fleet = Fleet(ground, Dice(f"{self._seed}:chaos"), climate, names)
        lines = [self._line("producer"), self._line(OPERATOR)]
        for line in lines:
            line.weather = climate.weather
        stores = [self._store(line) for line in lines]
        producer = Producer(ground, stores[0], Dice(f"{self._seed}:producer"))
        operator = Operator(ground, stores[1], Dice(f"{self._seed}:operator"), producer)
        raging_s = options.minutes * 60
        parent = self._task(fleet.keep_alive())
        acts = [
            self._task(producer.produce(options.jobs, raging_s * 0.8)),
            self._task(operator.meddle(raging_s)),
            self._task(fleet.rage(raging_s)),
        ]
        governor = None
        if ground.bound:
            lines.append(self._line(GOVERNOR))
            lines[-1].weather = climate.weather
            store, dice = self._store(lines[-1]), Dice(f"{self._seed}:{GOVERNOR}")
            governor = Governor(ground, store, dice)
            bound = Producer(ground, stores[0], dice, make=bound_job, first=FIRST_NUMBER)
            bound.acked = producer.acked
            acts.append(self._task(governor.govern(raging_s)))
            acts.append(self._task(bound.produce(options.bound, raging_s * 0.8)))
        for act in acts:
            await act
        for line in lines:
            line.weather = CALM
        ground.fault("world", "calm")
        await fleet.calm()
        # What an impatient operator gave up may still arrive, and must not undo the restoring.
        await pass_time(MAX_LATE_S + 1)
        await operator.restore()
        if governor is not None:
            await governor.restore()
        await self._rest()
        parent.cancel()
        await fleet.end(timeout_s=30.0)
        await pass_time(1.0)

    async def _rest(self) -> None:
        """Until every job has ended, or the bound has passed."""
        loop = self.ground.loop
        until_s = loop.time() + self._options.drain_s
        while loop.time() < until_s:
            counts = await self.ground.store.metrics.counts()
            if all(count.status in TERMINAL for count in counts):
                return
            await pass_time(1.0)

    def _freeze(self) -> None:
        """Whatever spins must not disturb the reading."""
        self.ground.loop.allow_more_steps()
        for node in self._nodes():
            node.crash()

    def _nodes(self) -> list[Node]:
        return [] if self._fleet is None else self._fleet.all

    def _task(self, work: Coroutine[Any, Any, Any]) -> AnyTask:
        task = self.ground.loop.create_task(work)
        self._tasks.append(task)
        return task

    def _line(self, who: str) -> Line:
        ground = self.ground
        return Line(
            who,
            loop=ground.loop,
            wire=ground.wire,
            history=ground.history,
            dice=Dice(f"{self._seed}:{who}:line"),
        )

    def _store(self, line: Line) -> Store:
        ground = self.ground
        return FaultyStore(ground.store, line, Realm(line.who), ground.recorder)
