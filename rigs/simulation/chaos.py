"""What the world does to its nodes: crashes, stalls, stops, partitions, wrong clocks, shutdowns.

Every seed draws its own climate, so that some worlds know no lost reply and others little else:
faults that never meet alone hide each other.
"""

from dataclasses import dataclass

from rigs.simulation.clocks import pass_time
from rigs.simulation.dice import Dice
from rigs.simulation.faults import Weather
from rigs.simulation.node import Ground, Node

_KINDS = ("crash", "stall", "stop", "cut", "clock", "shutdown")


@dataclass(frozen=True, slots=True)
class Climate:
    """How rough a world is: the weather on the lines, and how often which fault strikes."""

    weather: Weather
    every_s: float
    weights: tuple[float, ...]

    @classmethod
    def draw(cls, dice: Dice) -> "Climate":
        """The climate of one seed."""

        def up_to(max_slots: float) -> float:
            return 0.0 if dice.chance(0.25) else dice.between(0, max_slots)

        weather = Weather(
            unavailable=up_to(0.05),
            lost_request=up_to(0.03),
            lost_reply=up_to(0.06),
            late=up_to(0.03),
            slow=up_to(0.02),
            delay_most_s=dice.pick((0.001, 0.02, 0.2, 2.0)),
            hint_lost=up_to(0.5),
        )
        weights = tuple(0.0 if dice.chance(0.2) else dice.roll() for _ in _KINDS)
        return cls(weather, dice.between(2, 10), weights if sum(weights) else (1.0,) * len(_KINDS))


class Fleet:
    """The nodes of a world: one process per name at a time, booted again when it is gone."""

    def __init__(self, ground: Ground, dice: Dice, climate: Climate, names: list[str]) -> None:
        self._ground = ground
        self._dice = dice
        self._climate = climate
        self._boots = dict.fromkeys(names, 0)
        self._calm = False
        self.current: dict[str, Node] = {}
        self.all: list[Node] = []
        for name in names:
            self._boot(name)

    async def rage(self, until_s: float) -> None:
        """Strike at random until virtual time has reached ``until_s``."""
        loop, dice = self._ground.loop, self._dice
        while True:
            pause_s = dice.between(0.2, 2 * self._climate.every_s)
            if loop.time() + pause_s >= until_s:
                return
            await pass_time(pause_s)
            node = self.current[dice.pick(list(self.current))]
            if not node.gone and not node.frozen:
                self._strike(node, self._kind())

    async def calm(self) -> None:
        """No more faults; everything that stands still goes on, what is gone comes back."""
        self._calm = True
        for node in list(self.current.values()):
            node.line.cut = False
            node.line.weather = Weather()
            node.resume()
            if not node.fresh:
                # The deploy is completed: no process of the older release is left.
                self._ground.loop.create_task(node.shutdown(5.0))
        await pass_time(0.01)

    async def keep_alive(self) -> None:
        """A parent for every process: boots the next one some time after the last is gone."""
        while True:
            await pass_time(0.25)
            for name, node in list(self.current.items()):
                if node.gone:
                    await self._succeed(name, node)

    async def end(self, timeout_s: float) -> None:
        """Shut every node down, all at once."""
        loop = self._ground.loop
        tasks = [loop.create_task(node.shutdown(timeout_s)) for node in self.current.values()]
        for task in tasks:
            await task

    def _strike(self, node: Node, kind: str) -> None:
        loop, dice, lease_s = self._ground.loop, self._dice, self._ground.settings.lease_s
        match kind:
            case "crash":
                node.crash()
            case "stall":
                node.stall()
                loop.call_later(dice.skewed(0.05, 3 * lease_s), node.resume)
            case "stop":
                node.stop()
                loop.call_later(dice.between(0.1, 2.5) * lease_s, node.resume)
            case "cut":
                self._ground.fault(node.who, "cut")
                node.line.cut = True
                loop.call_later(dice.between(0.1, 3 * lease_s), self._mend, node)
            case "clock":
                node.clock.skew_s = dice.between(-3_600, 3_600)
                self._ground.fault(node.who, "clock", f"{node.clock.skew_s:.0f} s off")
            case _:
                loop.create_task(node.shutdown(dice.skewed(0.1, 10)))

    def _mend(self, node: Node) -> None:
        if node.line.cut:
            self._ground.fault(node.who, "mend")
            node.line.cut = False

    def _kind(self) -> str:
        roll = self._dice.roll() * sum(self._climate.weights)
        for weight, kind in zip(self._climate.weights, _KINDS, strict=True):
            if roll < weight:
                return kind
            roll -= weight
        return "crash"

    async def _succeed(self, name: str, last: Node) -> None:
        dice = self._dice
        replaces = None
        if last.handle is not None and dice.chance(0.5):
            replaces = last.handle.host_id
        elif not self._calm:
            await pass_time(dice.skewed(0, 2 * self._ground.settings.lease_s))
        self._boot(name, replaces)

    def _boot(self, name: str, replaces: str | None = None) -> None:
        self._boots[name] += 1
        who = f"{name}{self._boots[name]}"
        fresh = self._calm or self._dice.chance(0.7)
        node = Node(self._ground, who, Dice(f"{self._dice.bits(64)}"), fresh=fresh)
        node.line.weather = Weather() if self._calm else self._climate.weather
        self.current[name] = node
        self.all.append(node)
        node.boot(replaces=replaces)
