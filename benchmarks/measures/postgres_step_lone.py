"""One workflow of 200 steps, alone, on Postgres: the time per step.

Windows that take turns between the systems, each one workflow of 200 no-op steps in a worker that
has nothing else to do; a first step is not timed. absurd over its one connection; DBOS started by
the process that runs it. The ratio to each peer within a turn counts.
"""

from __future__ import annotations

from contextlib import ExitStack

from benchmarks import targets
from benchmarks.bench import Bench, in_turn
from benchmarks.figures import Figure, Outcome, Series, paired
from benchmarks.processes import Agent
from benchmarks.systems import OURS_POSTGRES

LEVEL = "postgres"
OWN = "ours"
PEERS = ("absurd", "dbos")


class PostgresStepLone:
    name = "postgres-step-lone"
    title = "Postgres: one workflow of 200 steps, alone"

    def __init__(self) -> None:
        self._problems: list[str] = []

    def setup(self, bench: Bench) -> None:
        """Nothing to prepare: each round opens fresh databases."""

    def round(self, bench: Bench, number: int) -> list[Figure]:
        systems = {OWN: OURS_POSTGRES, **({} if bench.size.quick else {one: one for one in PEERS})}
        figures = list[Figure]()
        with ExitStack() as stack:
            agents: dict[str, Agent] = {}
            for label, system in systems.items():
                if bench.has(system):
                    store = stack.enter_context(bench.database())
                    agents[label] = stack.enter_context(bench.agent(system, store, LEVEL))
                    agents[label].ask("lone", steps=5)
            for pair in range(bench.size.pairs_a_round()):
                figures += self._turn(bench, agents, number + pair)
        return figures

    def _turn(self, bench: Bench, agents: dict[str, Agent], number: int) -> list[Figure]:
        took: dict[str, float] = {}
        for label in in_turn(list(agents), number):
            [seconds] = agents[label].ask("lone", steps=bench.size.jobs(200, 10))["lone"]
            took[label] = seconds * 1e6
        figures = [Figure(label, "step", value, "µs") for label, value in took.items()]
        if OWN in took:
            figures += [
                Figure(OWN, f"ratio to {label}", took[OWN] / value, "×")
                for label, value in took.items()
                if label != OWN
            ]
        return figures

    def verify(self, bench: Bench) -> list[str]:
        return self._problems

    def judge(self, series: Series) -> list[Outcome]:
        medians = {
            label: median for label in PEERS if (median := series.median(label, "step")) is not None
        }
        if not medians:
            return [paired(targets.POSTGRES_STEP_LONE, [])]
        best = min(medians, key=medians.__getitem__)
        own = series.median(OWN, "step") or 0
        note = f"{own:,.0f} µs to {medians[best]:,.0f} µs of {best}"
        return [paired(targets.POSTGRES_STEP_LONE, series.of(OWN, f"ratio to {best}"), note)]
