"""Weeks of cron on a faulty cluster in virtual time: the real service, lease and declarations.

Only cron runs here, so that a month takes seconds. Nodes crash, stall, lose their line and leave,
the coordinator most of all; the store's own clock is set forward and back. In some worlds every
node believes to be the coordinator.
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
from rigs.simulation.chaos import Climate
from rigs.simulation.clocks import SimClock, pass_time
from rigs.simulation.cron_node import CronNode
from rigs.simulation.dice import Dice
from rigs.simulation.faults import CALM
from rigs.simulation.final import read_final
from rigs.simulation.loop import AnyTask
from rigs.simulation.world import lay_ground, quiet_logs, remove_nodes

DAY_S = 86_400.0
_FAULT_EVERY_S = 2_400.0
_AT_LEADER = 0.6
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


TIMETABLE = (
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
    """How long and how many; ``everybody``: no node asks who leads."""

    days: float = 30.0
    nodes: int = 5
    everybody: bool = False
    timetable: Sequence[CronSpec] = TIMETABLE


@dataclass(frozen=True, slots=True)
class Ticked:
    """A fire at the instant of its effect; ``furthest`` is what the store's clock would show had
    nobody set it back."""

    name: str
    fire: Fire
    furthest: Instant


@dataclass(slots=True)
class CronEnded:
    """What is left of a world: every fire in order, and the jobs by their tags."""

    seed: int
    options: CronOptions
    began_at: Instant
    ended_at: Instant = 0
    ticked: list[Ticked] = field(default_factory=list[Ticked])
    jobs: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])
    lost_races: int = 0
    faults: dict[str, int] = field(default_factory=dict[str, int])
    troubles: tuple[str, ...] = ()


def simulate_cron(seed: int, options: CronOptions | None = None) -> CronEnded:
    """Run the world of a seed to its end."""
    with quiet_logs():
        return _CronWorld(seed, options or CronOptions()).run()


class _CronWorld:
    def __init__(self, seed: int, options: CronOptions) -> None:
        self._seed = seed
        self._options = options
        self._dice = Dice(f"{seed}:cron")
        self._store_clock: SimClock | None = None
        self._ground = lay_ground(seed, EngineSettings(), self._make_store)
        assert self._store_clock is not None
        self._clock: SimClock = self._store_clock
        # Any day of the year may be the first: clocks are set on some of them.
        self._clock.skew_s = float(int(self._dice.between(0, 365)) * DAY_S)
        self._furthest_s = self._clock.skew_s
        self._ended = CronEnded(seed, options, self._clock.now())
        self._boots = 0
        self._nodes: list[CronNode] = []
        self._current: list[CronNode] = []
        self._climate = Climate.draw(self._dice)

    def run(self) -> CronEnded:
        loop = self._ground.loop
        try:
            loop.run_until_complete(self._live())
            final = loop.run_until_complete(read_final(self._ground.store, loop.troubles))
            self._ended.jobs = [row.tags for row in final.rows.values()]
            self._ended.troubles = final.troubles
            self._ground.history.seal()
            loop.run_until_complete(remove_nodes(self._ground, self._nodes))
            return self._ended
        finally:
            loop.close()

    async def _live(self) -> None:
        until_s = self._options.days * DAY_S
        await ensure_schedules(self._ground.store, self._options.timetable)
        for _ in range(self._options.nodes):
            self._boot()
        chaos = [self._task(self._rage(until_s)), self._task(self._turn_clock(until_s))]
        for act in chaos:
            await act
        self._clock.skew_s = self._furthest_s
        for node in self._current:
            node.line.weather, node.line.cut = CALM, False
            node.resume()
        await pass_time(3 * CronNode.LEAD_S)
        self._ended.ended_at = self._clock.now()
        for node in self._current:
            await node.shutdown(1.0)

    async def _rage(self, until_s: float) -> None:
        loop, dice = self._ground.loop, self._dice
        while True:
            pause_s = dice.between(1, 2 * _FAULT_EVERY_S)
            if loop.time() + pause_s >= until_s:
                return
            await pass_time(pause_s)
            loop.allow_more_steps()
            self._replace_the_gone()
            node = self._leader() if dice.chance(_AT_LEADER) else dice.pick(self._current)
            if not node.gone and not node.frozen:
                self._strike(node)

    def _strike(self, node: CronNode) -> None:
        loop, dice = self._ground.loop, self._dice
        kind = dice.pick(("crash", "crash", "stall", "cut", "clock", "shutdown"))
        self._ended.faults[kind] = self._ended.faults.get(kind, 0) + 1
        match kind:
            case "crash":
                node.crash()
            case "stall":
                node.stop()
                loop.call_later(dice.skewed(1, 7_200), node.resume)
            case "cut":
                node.line.cut = True
                loop.call_later(dice.skewed(1, 7_200), setattr, node.line, "cut", False)
            case "clock":
                node.clock.skew_s = dice.between(-7_200, 7_200)
            case _:
                self._task(node.shutdown(1.0))

    async def _turn_clock(self, until_s: float) -> None:
        """Somebody sets the clock of the store, by minutes or hours."""
        loop, dice = self._ground.loop, self._dice
        while True:
            pause_s = dice.between(0.1, 4) * DAY_S
            if loop.time() + pause_s >= until_s:
                return
            await pass_time(pause_s)
            self._clock.skew_s += dice.pick(_JUMPS_S)
            self._furthest_s = max(self._furthest_s, self._clock.skew_s)

    def _replace_the_gone(self) -> None:
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
        node = CronNode(self._ground, f"n{self._boots}", dice, fresh=True)
        node.timetable = self._options.timetable
        node.line.weather = self._climate.weather
        self._nodes.append(node)
        self._current.append(node)
        node.boot()

    def _task(self, work: Coroutine[Any, Any, Any]) -> AnyTask:
        return self._ground.loop.create_task(work)

    def _make_store(self, clock: SimClock, dice: Dice) -> MemoryStore:
        self._store_clock = clock
        store = self._memory = MemoryStore(clock, dice)
        fire = store.schedules.fire

        async def fire_and_tell(
            name: str, *, tick: Instant, next_at: Instant | None, new_fires: Sequence[NewFire]
        ) -> list[Fire] | None:
            fires = await fire(name, tick=tick, next_at=next_at, new_fires=new_fires)
            if fires is None:
                self._ended.lost_races += 1
            back_s = self._furthest_s - clock.skew_s
            furthest = clock.now() + round(back_s * SECOND)
            self._ended.ticked.extend(Ticked(name, one, furthest) for one in fires or ())
            return fires

        async def everybody(name: str, key: int, *, ttl_s: float) -> bool:
            return True

        store.schedules.fire = fire_and_tell
        if self._options.everybody:
            store.processes.lead = everybody
        return store
