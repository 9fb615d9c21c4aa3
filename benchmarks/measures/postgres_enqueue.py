"""Enqueueing on Postgres: one by one, in bulk, and by 100 callers at once.

Every call returns after its commit. One by one: a coroutine that awaits one call after the other,
in windows that take turns between all systems; the ratio to each peer within a turn counts, and the
peer with the best median is the one that is judged, with a 90 % interval. Bulk: 1,000 jobs a call.
100 callers: tasks of one event loop; PgQueuer once over one connection and once over a pool of 20.
Our own call from synchronous code stands beside, without a bar.
"""

from __future__ import annotations

from contextlib import ExitStack

from benchmarks import targets
from benchmarks.bench import Bench, in_turn
from benchmarks.figures import Figure, Outcome, Series, paired, ratio
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
POOLED = "pgqueuer, pool"


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
            figures += self._windows(bench, agents, number)
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

    def _windows(self, bench: Bench, agents: dict[str, Agent], number: int) -> list[Figure]:
        window, figures = bench.size.jobs(300, 30), list[Figure]()
        for pair in range(bench.size.pairs_a_round()):
            speed = {
                label: self._ask(agents, label, "enqueue", window)
                for label in in_turn(list(agents), number + pair)
            }
            figures += [Figure(label, "jobs/s", value, "/s") for label, value in speed.items()]
            figures += [
                Figure(OWN, f"ratio to {label}", speed[OWN] / value, "×")
                for label, value in speed.items()
                if label != OWN and OWN in speed
            ]
        if OWN in agents:
            value = self._ask(agents, OWN, "enqueue_from_thread", window)
            figures.append(Figure(OWN, "sync calls/s", value, "/s"))
        return figures

    def _many(self, bench: Bench, agents: dict[str, Agent], label: str) -> list[Figure]:
        quick = bench.size.quick
        bulk = 2_000 if quick else {OWN: 50_000, "pgqueuer": 20_000}.get(label, 5_000)
        many = 200 if quick else (20_000 if label == OWN else 2_000)
        if label == "saq":
            bulk = 200 if quick else 1_000
        figures = [
            Figure(label, "bulk/s", self._ask(agents, label, "enqueue_bulk", bulk), "/s"),
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
        best = series.best(peers, "jobs/s")
        own = series.median(OWN, "jobs/s")
        note = "" if best is None else f"{own or 0:,.0f}/s to {best[1]:,.0f}/s of {best[0]}"
        ratios = [] if best is None else series.of(OWN, f"ratio to {best[0]}")
        callers = f"{CALLERS} callers/s"
        sync = targets.beside("postgres-sync", "Postgres: one by one from synchronous code")
        return [
            ratio(
                targets.POSTGRES_BULK, series.median(OWN, "bulk/s"), series.best(peers, "bulk/s")
            ),
            paired(targets.POSTGRES_ONE, ratios, note),
            ratio(
                targets.POSTGRES_CALLERS,
                series.median(OWN, callers),
                series.best([*peers, POOLED], callers),
            ),
            ratio(sync, series.median(OWN, "sync calls/s"), best),
        ]
