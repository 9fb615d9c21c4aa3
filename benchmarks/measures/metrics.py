"""What metrics cost: draining no-op jobs with metrics on and with FORGE_METRICS=0, in pairs.

Each window is a fresh store, seeded, settled and emptied by one worker process at our default
level; on and off take turns, and the ratio of each pair counts. Off keeps no times and no vitals;
the counters by state stay, since the engine's promises rest on them.
"""

from __future__ import annotations

from benchmarks import targets
from benchmarks.bench import OURS, Bench, in_turn
from benchmarks.figures import Figure, Outcome, Series, Target, paired
from benchmarks.measures import draining, postgres_drain
from benchmarks.measures.draining import Contender
from benchmarks.systems import OURS_POSTGRES

ON, OFF = "metrics on", "metrics off"
RATIO = "ratio to off"


class Metrics:
    name = "metrics"
    title = "metrics on and off, drain of no-op jobs"
    system = OURS
    level = "default"
    target: Target = targets.METRICS

    def __init__(self) -> None:
        self._sides: dict[str, Contender] = {}
        self._problems: list[str] = []

    def setup(self, bench: Bench) -> None:
        jobs = bench.size.jobs(40_000, 500)
        for label, switch in ((ON, "1"), (OFF, "0")):
            if bench.has(self.system):
                self._sides[label] = Contender(
                    label, self.system, self.level, jobs, True,
                    environment={"FORGE_METRICS": switch},
                )  # fmt: skip

    def round(self, bench: Bench, number: int) -> list[Figure]:
        figures: list[Figure] = []
        for pair in range(bench.size.pairs_a_round() if self._sides else 0):
            speed: dict[str, float] = {}
            for label in in_turn(list(self._sides), number + pair):
                found = self.drain_once(bench, self._sides[label])
                speed[label] = found[0].value
                figures += found
            figures.append(Figure(ON, RATIO, speed[ON] / speed[OFF], "×"))
        return figures

    def drain_once(self, bench: Bench, side: Contender) -> list[Figure]:
        return draining.drain_once(bench, side, self._problems)

    def verify(self, bench: Bench) -> list[str]:
        return self._problems

    def judge(self, series: Series) -> list[Outcome]:
        speeds = [series.median(label, "jobs/s") for label in (ON, OFF)]
        note = " to ".join(f"{speed:,.0f}/s" for speed in speeds if speed is not None)
        return [paired(self.target, series.of(ON, RATIO), f"{note} without")]


class PostgresMetrics(Metrics):
    name = "postgres-metrics"
    title = "Postgres: metrics on and off, drain of no-op jobs"
    system = OURS_POSTGRES
    level = postgres_drain.LEVEL
    target = targets.POSTGRES_METRICS

    def drain_once(self, bench: Bench, side: Contender) -> list[Figure]:
        return postgres_drain.drain_once(bench, side, self._problems)
