"""What a rate limit costs that never holds anything back, in pairs with the same queue without one.

Each window is a fresh store, seeded, settled and emptied by one worker process at our default
level; limited and unlimited take turns, and the ratio of each pair counts.
"""

from __future__ import annotations

from benchmarks import targets
from benchmarks.bench import OURS, Bench, in_turn
from benchmarks.figures import Figure, Outcome, Series, Target, paired
from benchmarks.measures import draining, postgres_drain
from benchmarks.measures.draining import Contender
from benchmarks.systems import OURS_POSTGRES

LIMITED, FREE = "rate limit", "no limit"
RATIO = "ratio to no limit"
# Far above what one process can do, so that only the counting costs.
RATE = "200000/s"


class Limits:
    name = "limits"
    title = "a queue with a rate limit above its speed, drain of no-op jobs"
    system = OURS
    level = "default"
    target: Target = targets.LIMITS

    def __init__(self) -> None:
        self._sides: dict[str, Contender] = {}
        self._problems: list[str] = []

    def setup(self, bench: Bench) -> None:
        jobs = bench.size.jobs(40_000, 500)
        for label, rate in ((LIMITED, RATE), (FREE, "")):
            if bench.has(self.system):
                self._sides[label] = Contender(
                    label, self.system, self.level, jobs, True,
                    environment={"FORGE_BENCH_RATE": rate},
                )  # fmt: skip

    def round(self, bench: Bench, number: int) -> list[Figure]:
        figures: list[Figure] = []
        for pair in range(bench.size.pairs_a_round() if self._sides else 0):
            speed: dict[str, float] = {}
            for label in in_turn(list(self._sides), number + pair):
                found = self.drain_once(bench, self._sides[label])
                speed[label] = found[0].value
                figures += found
            figures.append(Figure(LIMITED, RATIO, speed[LIMITED] / speed[FREE], "×"))
        return figures

    def drain_once(self, bench: Bench, side: Contender) -> list[Figure]:
        return draining.drain_once(bench, side, self._problems)

    def verify(self, bench: Bench) -> list[str]:
        return self._problems

    def judge(self, series: Series) -> list[Outcome]:
        speeds = [series.median(label, "jobs/s") for label in (LIMITED, FREE)]
        note = " to ".join(f"{speed:,.0f}/s" for speed in speeds if speed is not None)
        return [paired(self.target, series.of(LIMITED, RATIO), f"{note} without")]


class PostgresLimits(Limits):
    name = "postgres-limits"
    title = "Postgres: a queue with a rate limit above its speed, drain of no-op jobs"
    system = OURS_POSTGRES
    level = postgres_drain.LEVEL
    target = targets.POSTGRES_LIMITS

    def drain_once(self, bench: Bench, side: Contender) -> list[Figure]:
        return postgres_drain.drain_once(bench, side, self._problems)
