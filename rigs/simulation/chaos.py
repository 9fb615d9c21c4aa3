"""Injects faults into nodes: crashes, stalls, stops, partitions, wrong clocks, shutdowns.

Every seed draws its own fault profile, so that some simulations have no lost reply and others
little else: faults that always occur together can hide each other.
"""

from dataclasses import dataclass

from rigs.simulation.clocks import pass_time
from rigs.simulation.dice import Dice
from rigs.simulation.faults import FailureRates
from rigs.simulation.node import Node, SimContext

_KINDS = ("crash", "stall", "stop", "cut", "clock", "shutdown")


@dataclass(frozen=True, slots=True)
class FailureProfile:
    """The faults of one seed: rates per call, mean time between faults, and weights by kind."""

    rates: FailureRates
    every_s: float
    weights: tuple[float, ...]

    @classmethod
    def draw(cls, dice: Dice) -> "FailureProfile":
        """Draw the profile of one seed."""

        def up_to(max_slots: float) -> float:
            return 0.0 if dice.chance(0.25) else dice.between(0, max_slots)

        rates = FailureRates(
            unavailable=up_to(0.05),
            lost_request=up_to(0.03),
            lost_reply=up_to(0.06),
            late=up_to(0.03),
            slow=up_to(0.02),
            max_delay_s=dice.pick((0.001, 0.02, 0.2, 2.0)),
            notify_lost=up_to(0.5),
        )
        weights = tuple(0.0 if dice.chance(0.2) else dice.roll() for _ in _KINDS)
        return cls(rates, dice.between(2, 10), weights if sum(weights) else (1.0,) * len(_KINDS))


class Fleet:
    """The nodes of a simulation: one process per name at a time, restarted after it ended."""

    def __init__(
        self, sim: SimContext, dice: Dice, profile: FailureProfile, names: list[str]
    ) -> None:
        self._sim = sim
        self._dice = dice
        self._profile = profile
        self._boots = dict.fromkeys(names, 0)
        self._faults_stopped = False
        self.current: dict[str, Node] = {}
        self.all: list[Node] = []
        for name in names:
            self._boot(name)

    async def inject_faults(self, until_s: float) -> None:
        """Inject random faults until the virtual time ``until_s``."""
        loop, dice = self._sim.loop, self._dice
        while True:
            pause_s = dice.between(0.2, 2 * self._profile.every_s)
            if loop.time() + pause_s >= until_s:
                return
            await pass_time(pause_s)
            node = self.current[dice.pick(list(self.current))]
            if not node.gone and not node.frozen:
                self._inject(node, self._kind())

    async def stop_faults(self) -> None:
        """End all faults: resume frozen nodes and restore connections."""
        self._faults_stopped = True
        for node in list(self.current.values()):
            node.connection.cut = False
            node.connection.rates = FailureRates()
            node.resume()
            if not node.fresh:
                # The deployment completes: processes of the older release shut down.
                self._sim.loop.create_task(node.shutdown(5.0))
        await pass_time(0.01)

    async def restart_nodes(self) -> None:
        """Act as parent process: boot a new process some time after one ended."""
        while True:
            await pass_time(0.25)
            for name, node in list(self.current.items()):
                if node.gone:
                    await self._boot_successor(name, node)

    async def end(self, timeout_s: float) -> None:
        """Shut every node down, all at once."""
        loop = self._sim.loop
        tasks = [loop.create_task(node.shutdown(timeout_s)) for node in self.current.values()]
        for task in tasks:
            await task

    def _inject(self, node: Node, kind: str) -> None:
        loop, dice, lease_s = self._sim.loop, self._dice, self._sim.settings.lease_s
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
                self._sim.fault(node.who, "cut")
                node.connection.cut = True
                loop.call_later(dice.between(0.1, 3 * lease_s), self._reconnect, node)
            case "clock":
                node.clock.skew_s = dice.between(-3_600, 3_600)
                self._sim.fault(node.who, "clock", f"{node.clock.skew_s:.0f} s off")
            case _:
                loop.create_task(node.shutdown(dice.skewed(0.1, 10)))

    def _reconnect(self, node: Node) -> None:
        if node.connection.cut:
            self._sim.fault(node.who, "mend")
            node.connection.cut = False

    def _kind(self) -> str:
        roll = self._dice.roll() * sum(self._profile.weights)
        for weight, kind in zip(self._profile.weights, _KINDS, strict=True):
            if roll < weight:
                return kind
            roll -= weight
        return "crash"

    async def _boot_successor(self, name: str, last: Node) -> None:
        dice = self._dice
        replaces = None
        if last.handle is not None and dice.chance(0.5):
            replaces = last.handle.host_id
        elif not self._faults_stopped:
            await pass_time(dice.skewed(0, 2 * self._sim.settings.lease_s))
        self._boot(name, replaces)

    def _boot(self, name: str, replaces: str | None = None) -> None:
        self._boots[name] += 1
        who = f"{name}{self._boots[name]}"
        fresh = self._faults_stopped or self._dice.chance(0.7)
        node = Node(self._sim, who, Dice(f"{self._dice.bits(64)}"), fresh=fresh)
        node.connection.rates = FailureRates() if self._faults_stopped else self._profile.rates
        self.current[name] = node
        self.all.append(node)
        node.boot(replaces=replaces)
