"""Durable steps on Postgres: workflows of 20 no-op steps, until the last workflow is finished.

Ours: 1,000 `async def` handlers in 100 slots, one process, steps awaited one after the other, the
whole engine with metrics; the clock stops at the last committed finish. absurd with 16 and 64
slots, in one and in two processes; DBOS with 100 workflows at once that are started by the process
that runs them, and from its queue; both are judged by their best setting, and get as few workflows
as take them some seconds. The limit is bare SQL that inserts the steps of 100 workflows at once
into a table like ours, on one connection, and does nothing else. Steps are counted per workflow at
the end.
"""

from __future__ import annotations

from benchmarks import targets
from benchmarks.bench import Bench, in_turn
from benchmarks.figures import Figure, Outcome, Series, ratio
from benchmarks.measures.draining import Contender
from benchmarks.measures.postgres_drain import LEVEL, drain_once
from benchmarks.processes import AgentError
from benchmarks.systems import OURS_POSTGRES, RAW_STEPS
from benchmarks.systems.forge_loads import LOADS

OWN = "ours"
LIMIT = "raw SQL"
WAYS = ("start", "queue")


def contenders(bench: Bench) -> list[Contender]:
    """Everybody, with as many workflows as take some seconds."""
    jobs = bench.size.jobs
    own, few = jobs(1_000, 25), jobs(100, 4)
    everyone = [
        Contender(OWN, OURS_POSTGRES, LEVEL, own, True, load=LOADS["steps"]),
        Contender(LIMIT, RAW_STEPS, LEVEL, jobs(5_000, 100), True, {}, {"batch": 100}),
        *(
            Contender(
                f"absurd, {slots} × {processes}", "absurd", LEVEL, few, True, {},
                {"concurrency": slots, "processes": processes},
            )
            for processes in (1, 2) for slots in (16, 64)
        ),
        *(Contender(f"dbos, {way}", "dbos", LEVEL, few, True, {"way": way}, {"way": way})
          for way in WAYS),
    ]  # fmt: skip
    if bench.size.quick:
        everyone = [one for one in everyone if one.label in (OWN, LIMIT, "absurd, 16 × 1")]
    return [one for one in everyone if bench.has(one.system)]


class PostgresSteps:
    name = "postgres-steps"
    title = "Postgres: durable steps, workflows of 20 no-op steps"

    def __init__(self) -> None:
        self._contenders: dict[str, Contender] = {}
        self._problems: list[str] = []

    def setup(self, bench: Bench) -> None:
        self._contenders = {one.label: one for one in contenders(bench)}

    def round(self, bench: Bench, number: int) -> list[Figure]:
        figures = list[Figure]()
        for label in in_turn(list(self._contenders), number):
            try:
                figures += per_step(drain_once(bench, self._contenders[label], self._problems))
            except (AgentError, TimeoutError) as failure:
                # A peer that breaks must not hide the others.
                self._problems.append(f"{label}: round {number + 1}: {failure}")
        return figures

    def verify(self, bench: Bench) -> list[str]:
        return self._problems

    def judge(self, series: Series) -> list[Outcome]:
        own, limit = series.median(OWN, "steps/s"), series.median(LIMIT, "steps/s")
        share = None if own is None or limit is None else own / limit * 100
        note = "" if limit is None else f"{own or 0:,.0f}/s of {limit:,.0f}/s"
        return [
            ratio(targets.POSTGRES_STEPS, own, series.best(_peers(series), "steps/s")),
            Outcome(targets.POSTGRES_STEPS_LIMIT, share, note),
            _cost(series),
        ]


def per_step(figures: list[Figure]) -> list[Figure]:
    """A drain's figures, whose calls are steps."""
    names = {"jobs/s": "steps/s", "µs/job": "µs/step"}
    return [
        Figure(one.system, names.get(one.name, one.name), one.value, names.get(one.unit, one.unit))
        for one in figures
    ]


def _peers(series: Series) -> list[str]:
    return sorted({system for system, _ in series.values} - {OWN, LIMIT})


def _cost(series: Series) -> Outcome:
    """Processor time of workers and server per step, as a share of the thriftiest peer's."""
    costs = {
        label: worker + server
        for label in (OWN, *_peers(series))
        if (worker := series.median(label, "cpu")) is not None
        and (server := series.median(label, "server cpu")) is not None
    }
    own = costs.pop(OWN, None)
    if own is None or not costs:
        return Outcome(targets.POSTGRES_STEPS_COST, None)
    best = min(costs, key=costs.__getitem__)
    return Outcome(
        targets.POSTGRES_STEPS_COST,
        costs[best] / own,
        f"{own:.0f} µs to {costs[best]:,.0f} µs of {best}",
    )
