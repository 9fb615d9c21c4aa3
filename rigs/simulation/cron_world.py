"""Simulates weeks of cron on a faulty cluster: the real service, leadership and declarations.

Only cron runs here, so that a month takes seconds. Nodes crash, stall, lose their connection and
shut down, the leader most often; the store's own clock jumps forward and back. In some simulations
every node acts as leader.
"""

from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from forge_jobs.backends.memory.store import MemoryStore
from forge_jobs.config import EngineSettings
from forge_jobs.core.instant import SECOND, Instant
from forge_jobs.core.schedule import CronSpec, Missed, Overlap
from forge_jobs.engine.requests.declared_schedules import ensure_schedules
from forge_jobs.engine.services.leadership import LEAD
from forge_jobs.store.schedules import Fire, NewFire
from rigs.simulation.chaos import FailureProfile
from rigs.simulation.clocks import SimClock, pass_time
from rigs.simulation.cron_node import CronNode
from rigs.simulation.dice import Dice
from rigs.simulation.faults import NO_FAULTS
from rigs.simulation.final import read_final
from rigs.simulation.loop import AnyTask
from rigs.simulation.world import logs_disabled, make_context, remove_nodes

DAY_S = 86_400.0
_FAULT_EVERY_S = 2_400.0
_LEADER_SHARE = 0.6
_JUMPS_S = (-3_600.0, -300.0, -20.0, 45.0, 900.0, 7_200.0)


def _spec(name: str, expression: str, zone: str, missed: Missed, jitter_s: float = 0) -> CronSpec:
    return CronSpec(
        name=name,
        expression=expression,
        kind=name,
        zone=zone,
        missed=missed,
        missed_limit=1_000,
        overlap=Overlap.ALLOW,
        jitter_s=jitter_s,
    )


SCHEDULES = (
    _spec("quarter", "*/15 * * * *", "UTC", Missed.ALL),
    _spec("hourly", "@hourly", "Asia/Kolkata", Missed.ALL),
    _spec("burst", "*/20 * 3 * * *", "UTC", Missed.ALL),
    _spec("morning", "0 9 * * mon-fri", "Europe/Paris", Missed.ALL),
    _spec("night", "30 2 * * *", "America/New_York", Missed.ALL),
    _spec("half", "*/30 1-2 * * *", "Australia/Lord_Howe", Missed.ALL),
    _spec("first", "0 0 1 * *", "UTC", Missed.ALL),
    _spec("spread", "7 * * * *", "UTC", Missed.ALL, 300),
    _spec("collapsing", "*/10 * * * *", "Europe/Paris", Missed.ONCE),
    _spec("forgetful", "*/5 * * * *", "UTC", Missed.SKIP),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CronOptions:
    """The size of a simulation; ``all_lead``: every node acts as leader."""

    days: float = 30.0
    nodes: int = 5
    all_lead: bool = False
    schedules: Sequence[CronSpec] = SCHEDULES


@dataclass(frozen=True, slots=True)
class FiredTick:
    """A fired tick at the instant of its effect; ``furthest``: the store clock without the backward
    jumps."""

    name: str
    fire: Fire
    furthest: Instant


@dataclass(slots=True)
class CronResult:
    """The result of a simulation: every fired tick in order, and the jobs by their tags."""

    seed: int
    options: CronOptions
    began_at: Instant
    ended_at: Instant = 0
    fired: list[FiredTick] = field(default_factory=list[FiredTick])
    jobs: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])
    lost_races: int = 0
    faults: dict[str, int] = field(default_factory=dict[str, int])
    errors: tuple[str, ...] = ()


def simulate_cron(seed: int, options: CronOptions | None = None) -> CronResult:
    """Run the simulation of a seed."""
    with logs_disabled():
        return _CronWorld(seed, options or CronOptions()).run()


class _CronWorld:
    def __init__(self, seed: int, options: CronOptions) -> None:
        self._seed = seed
        self._options = options
        self._dice = Dice(f"{seed}:cron")
        self._store_clock: SimClock | None = None
        self._sim = make_context(seed, EngineSettings(), self._make_store)
        assert self._store_clock is not None
        self._clock: SimClock = self._store_clock
        # Start on any day of the year: some have a daylight saving change.
        self._clock.skew_s = float(int(self._dice.between(0, 365)) * DAY_S)
        self._furthest_s = self._clock.skew_s
        self._result = CronResult(seed, options, self._clock.now())
        self._boots = 0
        self._nodes: list[CronNode] = []
        self._current: list[CronNode] = []
        self._profile = FailureProfile.draw(self._dice)

    def run(self) -> CronResult:
        loop = self._sim.loop
        try:
            loop.run_until_complete(self._live())
            final = loop.run_until_complete(read_final(self._sim.store, loop.errors))
            self._result.jobs = [row.tags for row in final.rows.values()]
            self._result.errors = final.errors
            self._sim.history.seal()
            loop.run_until_complete(remove_nodes(self._sim, self._nodes))
            return self._result
        finally:
            loop.close()

    async def _live(self) -> None:
        until_s = self._options.days * DAY_S
        await ensure_schedules(self._sim.store, self._options.schedules)
        for _ in range(self._options.nodes):
            self._boot()
        chaos = [self._task(self._inject_faults(until_s)), self._task(self._jump_clock(until_s))]
        for task in chaos:
            await task
        self._clock.skew_s = self._furthest_s
        for node in self._current:
            node.connection.rates, node.connection.cut = NO_FAULTS, False
            node.resume()
        await pass_time(3 * CronNode.LEAD_S)
        self._result.ended_at = self._clock.now()
        for node in self._current:
            await node.shutdown(1.0)

    async def _inject_faults(self, until_s: float) -> None:
        loop, dice = self._sim.loop, self._dice
        while True:
            pause_s = dice.between(1, 2 * _FAULT_EVERY_S)
            if loop.time() + pause_s >= until_s:
                return
            await pass_time(pause_s)
            loop.allow_more_steps()
            self._replace_exited()
            node = self._leader() if dice.chance(_LEADER_SHARE) else dice.pick(self._current)
            if not node.gone and not node.frozen:
                self._inject(node)

    def _inject(self, node: CronNode) -> None:
        loop, dice = self._sim.loop, self._dice
        kind = dice.pick(("crash", "crash", "stall", "cut", "clock", "shutdown"))
        self._result.faults[kind] = self._result.faults.get(kind, 0) + 1
        match kind:
            case "crash":
                node.crash()
            case "stall":
                node.stop()
                loop.call_later(dice.skewed(1, 7_200), node.resume)
            case "cut":
                node.connection.cut = True
                loop.call_later(dice.skewed(1, 7_200), setattr, node.connection, "cut", False)
            case "clock":
                node.clock.skew_s = dice.between(-7_200, 7_200)
            case _:
                self._task(node.shutdown(1.0))

    async def _jump_clock(self, until_s: float) -> None:
        """Change the store clock by minutes or hours."""
        loop, dice = self._sim.loop, self._dice
        while True:
            pause_s = dice.between(0.1, 4) * DAY_S
            if loop.time() + pause_s >= until_s:
                return
            await pass_time(pause_s)
            self._clock.skew_s += dice.pick(_JUMPS_S)
            self._furthest_s = max(self._furthest_s, self._clock.skew_s)

    def _replace_exited(self) -> None:
        for node in [node for node in self._current if node.gone]:
            self._current.remove(node)
            self._boot()

    def _leader(self) -> CronNode:
        tables = self._memory._storage.tables  # pyright: ignore[reportPrivateUsage]
        lead = tables.leaderships.get(LEAD)
        for node in self._current:
            if lead is not None and node.key == lead.process:
                return node
        return self._dice.pick(self._current)

    def _boot(self) -> None:
        self._boots += 1
        dice = Dice(f"{self._dice.bits(64)}")
        node = CronNode(self._sim, f"n{self._boots}", dice, fresh=True)
        node.schedules = self._options.schedules
        node.connection.rates = self._profile.rates
        self._nodes.append(node)
        self._current.append(node)
        node.boot()

    def _task(self, work: Coroutine[Any, Any, Any]) -> AnyTask:
        return self._sim.loop.create_task(work)

    def _make_store(self, clock: SimClock, dice: Dice) -> MemoryStore:
        self._store_clock = clock
        store = self._memory = MemoryStore(clock, dice)
        fire = store.schedules.fire

        async def fire_and_record(
            name: str, *, tick: Instant, next_at: Instant | None, new_fires: Sequence[NewFire]
        ) -> list[Fire] | None:
            fires = await fire(name, tick=tick, next_at=next_at, new_fires=new_fires)
            if fires is None:
                self._result.lost_races += 1
            back_s = self._furthest_s - clock.skew_s
            furthest = clock.now() + round(back_s * SECOND)
            self._result.fired.extend(FiredTick(name, one, furthest) for one in fires or ())
            return fires

        async def all_lead(name: str, key: int, *, ttl_s: float) -> bool:
            return True

        store.schedules.fire = fire_and_record
        if self._options.all_lead:
            store.processes.lead = all_lead
        return store
