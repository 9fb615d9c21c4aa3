"""Enqueueing on Postgres: one by one, in bulk, and by 100 callers at once.

Every call returns after its commit. One by one: a coroutine that awaits one call after the other.
Bulk: 1,000 jobs a call. Both in windows that take turns between all systems, because the machine
changes its pace within seconds: the ratio to each peer within a turn counts, and the peer with the
best median is the one that is judged, with a 90 % interval. 100 callers: tasks of one event loop;
PgQueuer once over one connection and once over a pool of 20. Our own call from synchronous code
takes turns with PgQueuer's awaited one.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

from benchmarks import targets
from benchmarks.bench import Bench, in_turn
from benchmarks.figures import Figure, Outcome, Series, Target, paired, ratio
from benchmarks.processes import Agent
from benchmarks.systems import OURS_POSTGRES

LEVEL = "postgres"
OWN = "ours"
CALLERS = 100
SYSTEMS = {
    OWN: OURS_POSTGRES,
    "pgqueuer": "pgqueuer",
    "procrastinate": "procrastinate",
    "saq": "saq",
    "chancy": "chancy",
}
PGQUEUER = "pgqueuer"
POOLED = "pgqueuer, pool"
SYNC_RATIO = "sync ratio to pgqueuer"
# Whoever stores 5,000 jobs within a second.
FAST = (OWN, "pgqueuer")


@dataclass(frozen=True, slots=True)
class Way:
    """A way of storing jobs, measured in windows that take turns."""

    verb: str
    rate: str
    ratio: str

    def to(self, peer: str) -> str:
        return f"{self.ratio} to {peer}"


ONE = Way("enqueue", "jobs/s", "ratio")
BULK = Way("enqueue_bulk", "bulk/s", "bulk ratio")


class PostgresEnqueue:
    name = "postgres-enqueue"
    title = "Postgres: enqueue"

    def __init__(self) -> None:
        self._problems: list[str] = []
        self._put: dict[str, int] = {}

    def setup(self, bench: Bench) -> None:
        """Nothing to prepare: each round opens fresh databases."""

    def round(self, bench: Bench, number: int) -> list[Figure]:
        few = (OWN, "pgqueuer") if bench.size.quick else SYSTEMS
        labels = [label for label in few if bench.has(SYSTEMS[label])]
        figures = list[Figure]()
        self._put = dict.fromkeys(labels, 0)
        with ExitStack() as stack:
            agents: dict[str, Agent] = {}
            for label in labels:
                store = stack.enter_context(bench.database())
                agents[label] = stack.enter_context(bench.agent(SYSTEMS[label], store, LEVEL))
                self._ask(agents, label, "enqueue", 50)
            figures += self._one_by_one(bench, agents, number)
            figures += self._bulk(bench, agents, number)
            for label in in_turn(labels, number):
                figures += self._many(bench, agents, label)
            for label in labels:
                waiting = agents[label].ask("rows")["waiting"]
                if waiting != self._put[label]:
                    self._problems.append(
                        f"{label}: {waiting} rows after {self._put[label]} acknowledged enqueues"
                    )
        return figures

    def _ask(
        self, agents: dict[str, Agent], label: str, verb: str, jobs: int, **more: int
    ) -> float:
        """Jobs per second."""
        told = agents[label].ask(verb, jobs=jobs, **more)
        self._put[label] += told["jobs"]
        return told["jobs"] / told["seconds"]

    def _one_by_one(self, bench: Bench, agents: dict[str, Agent], number: int) -> list[Figure]:
        window = bench.size.jobs(300, 30)
        figures = self._turns(bench, agents, number, ONE, dict.fromkeys(agents, window))
        return figures + self._synchronous(bench, agents, number, window)

    def _synchronous(
        self, bench: Bench, agents: dict[str, Agent], number: int, window: int
    ) -> list[Figure]:
        """Our call from synchronous code and PgQueuer's awaited one, window by window."""
        verbs = {OWN: "enqueue_from_thread", PGQUEUER: ONE.verb}
        figures = list[Figure]()
        for pair in range(bench.size.pairs_a_round()):
            speed = {
                label: self._ask(agents, label, verbs[label], window)
                for label in in_turn([one for one in verbs if one in agents], number + pair)
            }
            if OWN in speed:
                figures.append(Figure(OWN, "sync calls/s", speed[OWN], "/s"))
            if len(speed) == len(verbs):
                value = speed[OWN] / speed[PGQUEUER]
                figures.append(Figure(OWN, SYNC_RATIO, value, "×"))
        return figures

    def _bulk(self, bench: Bench, agents: dict[str, Agent], number: int) -> list[Figure]:
        fast, slow = bench.size.jobs(5_000, 1_000), bench.size.jobs(1_000, 1_000)
        windows = {label: fast if label in FAST else slow for label in agents}
        return self._turns(bench, agents, number, BULK, windows)

    def _turns(
        self,
        bench: Bench,
        agents: dict[str, Agent],
        number: int,
        way: Way,
        windows: dict[str, int],
    ) -> list[Figure]:
        figures = list[Figure]()
        for pair in range(bench.size.pairs_a_round()):
            speed = {
                label: self._ask(agents, label, way.verb, windows[label])
                for label in in_turn(list(agents), number + pair)
            }
            figures += [Figure(label, way.rate, value, "/s") for label, value in speed.items()]
            figures += [
                Figure(OWN, way.to(label), speed[OWN] / value, "×")
                for label, value in speed.items()
                if label != OWN and OWN in speed
            ]
        return figures

    def _many(self, bench: Bench, agents: dict[str, Agent], label: str) -> list[Figure]:
        many = bench.size.jobs(20_000 if label == OWN else 2_000, 200)
        figures = [
            Figure(
                label,
                f"{CALLERS} callers/s",
                self._ask(agents, label, "enqueue_concurrent", many, callers=CALLERS),
                "/s",
            ),
        ]
        if label == "pgqueuer":
            pooled = self._ask(agents, label, "enqueue_pooled", many, callers=CALLERS)
            figures.append(Figure(POOLED, f"{CALLERS} callers/s", pooled, "/s"))
        return figures

    def verify(self, bench: Bench) -> list[str]:
        return self._problems

    def judge(self, series: Series) -> list[Outcome]:
        peers = [label for label in SYSTEMS if label != OWN]
        callers = f"{CALLERS} callers/s"
        return [
            _paired(series, targets.POSTGRES_BULK, BULK, peers),
            _paired(series, targets.POSTGRES_ONE, ONE, peers),
            ratio(
                targets.POSTGRES_CALLERS,
                series.median(OWN, callers),
                series.best([*peers, POOLED], callers),
            ),
            paired(targets.POSTGRES_SYNC, series.of(OWN, SYNC_RATIO)),
        ]


def _paired(series: Series, target: Target, way: Way, peers: list[str]) -> Outcome:
    """Against the peer with the best median."""
    best = series.best(peers, way.rate)
    if best is None:
        return paired(target, [])
    own = series.median(OWN, way.rate) or 0
    note = f"{own:,.0f}/s to {best[1]:,.0f}/s of {best[0]}"
    return paired(target, series.of(OWN, way.to(best[0])), note)
