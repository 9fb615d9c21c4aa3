"""Enqueueing one by one, in paired windows; bulk and 100 callers as extras.

Each call returns after its commit. NORMAL: ours to litequeue's `put`. FULL: ours to a Huey task
call (a pickled row, one commit). The two processes of a pair stay open and take turns, window
by window, so that both see the same machine; the ratio of each pair counts and the verdict uses
a 90 % interval. Awaited: windows of `await aenqueue()` beside windows of the synchronous call, in
the same process and on the same store. Bulk: `enqueue_many` by the thousand beside litequeue's
own transaction around a thousand `put`s; Huey and persist-queue have none. 100 callers: tasks
awaiting `aenqueue` for us, threads for the peers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from benchmarks import targets
from benchmarks.bench import OURS, Bench, in_turn
from benchmarks.figures import Figure, Outcome, Series, Target, paired
from benchmarks.processes import Agent

CALLERS = 100


@dataclass(frozen=True, slots=True)
class Duel:
    """Our label, the peer's label and system, the level both write at, and the window's size."""

    ours: str
    peer: str
    system: str
    synchronous: str
    target: Target
    awaited: Target
    window: int


DUELS = (
    Duel(
        "ours NORMAL", "litequeue", "litequeue", "normal", targets.ENQUEUE_NORMAL,
        targets.ENQUEUE_AWAITED_NORMAL, 3_000,
    ),
    Duel(
        "ours FULL", "huey", "huey", "full", targets.ENQUEUE_FULL,
        targets.ENQUEUE_AWAITED_FULL, 500,
    ),
)  # fmt: skip
AWAITED = "awaited to synchronous"


class Enqueue:
    name = "enqueue"
    title = "enqueue one by one, synchronous and awaited"

    def __init__(self) -> None:
        self._problems: list[str] = []

    def setup(self, bench: Bench) -> None:
        """Nothing to prepare: each round opens fresh stores."""

    def round(self, bench: Bench, number: int) -> list[Figure]:
        figures: list[Figure] = []
        for duel in DUELS:
            figures += self._duel(bench, duel, number)
        if bench.has("persist-queue"):
            with self._opened(bench, "persist-queue", "normal") as agent:
                window = bench.size.jobs(3_000, 100)
                figures.append(rate("persist-queue", "jobs/s", agent.ask("enqueue", jobs=window)))
        return figures

    def _duel(self, bench: Bench, duel: Duel, number: int) -> list[Figure]:
        """Alternate windows of both sides on open stores, then the extras, then count the rows."""
        sides = {duel.ours: OURS, duel.peer: duel.system}
        present = [label for label, system in sides.items() if bench.has(system)]
        window = bench.size.jobs(duel.window, 100)
        pairs, figures = bench.size.pairs_a_round(), list[Figure]()
        with ExitStack() as stack:
            agents = {
                label: stack.enter_context(self._opened(bench, sides[label], duel.synchronous))
                for label in present
            }
            put = dict.fromkeys(present, 0)
            for agent_label in present:
                agents[agent_label].ask("enqueue", jobs=100)
                put[agent_label] += 100
            for pair in range(pairs):
                speed: dict[str, float] = {}
                for label in in_turn(present, number + pair):
                    figure = rate(label, "jobs/s", agents[label].ask("enqueue", jobs=window))
                    put[label] += window
                    speed[label] = figure.value
                    figures.append(figure)
                if len(speed) == len(sides):
                    value = speed[duel.ours] / speed[duel.peer]
                    figures.append(Figure(duel.ours, f"ratio to {duel.peer}", value, "×"))
            if duel.ours in present:
                for pair in range(pairs):
                    figures += awaited(duel.ours, agents[duel.ours], window, number + pair)
                put[duel.ours] += 2 * pairs * window
            for label in in_turn(present, number):
                figures += self._extras(bench, label, sides[label], agents[label], put)
            for label in present:
                self._check(label, agents[label], put[label])
                if sides[label] != OURS:
                    level = agents[label].ask("durability")["synchronous"]
                    bench.say(f"{label} enqueue: synchronous {level} (read back)")
        return figures

    def _extras(
        self, bench: Bench, label: str, system: str, agent: Agent, put: dict[str, int]
    ) -> list[Figure]:
        bulk, many = bench.size.jobs(20_000, 1_000), bench.size.jobs(2_000, 200)
        figures = list[Figure]()
        if system in (OURS, "litequeue"):
            figures.append(rate(label, "bulk/s", agent.ask("enqueue_bulk", jobs=bulk)))
            put[label] += bulk
        told = agent.ask("enqueue_concurrent", jobs=many, callers=CALLERS)
        figures.append(rate(label, f"{CALLERS} callers/s", told))
        put[label] += many
        return figures

    def _check(self, label: str, agent: Agent, expected: int) -> None:
        waiting = agent.ask("rows")["waiting"]
        if waiting != expected:
            self._problems.append(f"{label}: {waiting} rows after {expected} acknowledged enqueues")

    @contextmanager
    def _opened(self, bench: Bench, system: str, synchronous: str) -> Iterator[Agent]:
        with bench.store() as store, bench.agent(system, store, synchronous) as agent:
            yield agent

    def verify(self, bench: Bench) -> list[str]:
        return self._problems

    def judge(self, series: Series) -> list[Outcome]:
        outcomes = list[Outcome]()
        for duel in DUELS:
            ratios = series.of(duel.ours, f"ratio to {duel.peer}")
            peer = series.median(duel.peer, "jobs/s")
            own = series.median(duel.ours, "jobs/s")
            note = " to ".join(f"{speed:,.0f}/s" for speed in (own, peer) if speed is not None)
            outcomes.append(paired(duel.target, ratios, f"{note} of {duel.peer}"))
        for duel in DUELS:
            speed = series.median(duel.ours, "awaited/s")
            note = "" if speed is None else f"{speed:,.0f}/s awaited"
            outcomes.append(paired(duel.awaited, series.of(duel.ours, AWAITED), note))
        return outcomes


def awaited(label: str, agent: Agent, window: int, number: int) -> list[Figure]:
    """One window of awaited calls and one of synchronous calls, and their ratio."""
    told: dict[str, dict[str, float]] = {}
    for verb in in_turn(["enqueue", "enqueue_awaited"], number):
        told[verb] = agent.ask(verb, jobs=window)
    own = rate(label, "awaited/s", told["enqueue_awaited"])
    other = rate(label, "synchronous/s", told["enqueue"])
    return [own, Figure(label, AWAITED, own.value / other.value, "×")]


def rate(label: str, name: str, told: dict[str, float]) -> Figure:
    return Figure(label, name, told["jobs"] / told["seconds"], "/s")
