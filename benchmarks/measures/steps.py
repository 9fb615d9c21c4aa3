"""Durable steps on SQLite: workflows of 20 no-op steps, until the last workflow is finished.

Ours: 1,000 `async def` handlers in 100 slots, one process, every transaction FULL; the clock stops
at the last committed finish. DBOS on SQLite at its own level, FULL, with the write-ahead log turned
on, which favours it; 100 workflows at once that are started by the process that runs them, and from
its queue; it is judged by the better way and gets as few workflows as take some seconds. Steps are
counted per workflow at the end.
"""

from __future__ import annotations

from benchmarks import targets
from benchmarks.bench import OURS, Bench, in_turn
from benchmarks.figures import Figure, Outcome, Series, ratio
from benchmarks.measures.draining import Contender, drain_once
from benchmarks.measures.postgres_steps import WAYS, per_step
from benchmarks.processes import AgentError
from benchmarks.systems.forge_loads import LOADS

OWN = "ours FULL"
OWN_DEFAULT = "ours, default"


class Steps:
    name = "steps"
    title = "durable steps, workflows of 20 no-op steps"

    def __init__(self) -> None:
        self._contenders: dict[str, Contender] = {}
        self._problems: list[str] = []

    def setup(self, bench: Bench) -> None:
        own, few = bench.size.jobs(1_000, 25), bench.size.jobs(60, 4)
        load = LOADS["steps"]
        everyone = [
            Contender(OWN, OURS, "full", own, True, load=load),
            Contender(OWN_DEFAULT, OURS, "default", own, True, load=load),
            *(
                Contender(f"dbos, {way}", "dbos", "full", few, True, {"way": way}, {"way": way})
                for way in WAYS
            ),
        ]
        if bench.size.quick:
            everyone = everyone[:1]
        self._contenders = {one.label: one for one in everyone if bench.has(one.system)}

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
        best = series.best([f"dbos, {way}" for way in WAYS], "steps/s")
        default = targets.untargeted("steps-default", "steps, our default level, to DBOS")
        return [
            ratio(targets.STEPS, series.median(OWN, "steps/s"), best),
            ratio(default, series.median(OWN_DEFAULT, "steps/s"), best),
        ]
