"""Handlers that await 10 ms in 100 slots: 10,000 jobs/s are possible, how many are there.

Ours at FULL (the default), clock stopped at the last durable finish. Huey with 100 threads that
sleep 10 ms is run beside it for scale; it has no target. It keeps nothing and acknowledges
before the call.
"""

from __future__ import annotations

from benchmarks import targets
from benchmarks.bench import Bench, in_turn
from benchmarks.figures import Figure, Outcome, Series
from benchmarks.measures.draining import Contender, drain_once, ours

POSSIBLE = 10_000.0


class Waiting:
    name = "await"
    title = "handlers that await 10 ms, 100 slots"

    def __init__(self) -> None:
        self._contenders: dict[str, Contender] = {}
        self._problems: list[str] = []

    def setup(self, bench: Bench) -> None:
        sleepers = {"threads": 100, "kind": "wait"}
        jobs = bench.size.jobs(3_000, 300)
        everyone = [
            ours("ours, 100 slots", "full", bench.size.jobs(30_000, 500), "wait"),
            Contender("huey, 100 threads", "huey", "full", jobs, False, {"kind": "wait"}, sleepers),
        ]
        self._contenders = {one.label: one for one in everyone if bench.has(one.system)}

    def round(self, bench: Bench, number: int) -> list[Figure]:
        return [
            figure
            for label in in_turn(list(self._contenders), number)
            for figure in drain_once(bench, self._contenders[label], self._problems)
        ]

    def verify(self, bench: Bench) -> list[str]:
        return self._problems

    def judge(self, series: Series) -> list[Outcome]:
        rate = series.median("ours, 100 slots", "jobs/s")
        share = None if rate is None else rate / POSSIBLE * 100
        return [Outcome(targets.AWAIT, share, "" if rate is None else f"{rate:,.0f}/s")]
