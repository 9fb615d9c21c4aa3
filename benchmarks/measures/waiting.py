"""Handlers that await 10 ms in 100 slots: 10,000 jobs/s are possible, how many are there.

Ours at its default level, clock stopped at the last committed finish; at FULL beside it, without a
bar. 100 bare tasks that only sleep 10 ms show what asyncio alone leaves of the 10,000 on this
machine at this moment: its timers are late by up to a millisecond. Huey with 100 threads that sleep
10 ms is run for scale; it keeps nothing and acknowledges before the call.
"""

from __future__ import annotations

from benchmarks import targets
from benchmarks.bench import OURS, Bench, in_turn
from benchmarks.figures import Figure, Outcome, Series, ratio
from benchmarks.measures.draining import Contender, drain_once, ours

POSSIBLE = 10_000.0
OURS_DEFAULT = "ours, default"
OURS_FULL = "ours FULL"
BARE = "asyncio alone"


class Waiting:
    name = "await"
    title = "handlers that await 10 ms, 100 slots"

    def __init__(self) -> None:
        self._contenders: dict[str, Contender] = {}
        self._problems: list[str] = []

    def setup(self, bench: Bench) -> None:
        sleepers = {"threads": 100, "kind": "wait"}
        jobs = bench.size.jobs(3_000, 300)
        our_jobs = bench.size.jobs(30_000, 500)
        everyone = [
            ours(OURS_DEFAULT, "default", our_jobs, "wait"),
            ours(OURS_FULL, "full", our_jobs, "wait"),
            Contender("huey, 100 threads", "huey", "full", jobs, False, {"kind": "wait"}, sleepers),
        ]
        if bench.size.quick:
            everyone = everyone[:1]
        self._contenders = {one.label: one for one in everyone if bench.has(one.system)}

    def round(self, bench: Bench, number: int) -> list[Figure]:
        figures = [
            figure
            for label in in_turn(list(self._contenders), number)
            for figure in drain_once(bench, self._contenders[label], self._problems)
        ]
        return figures if bench.size.quick else [*figures, *bare(bench)]

    def verify(self, bench: Bench) -> list[str]:
        return self._problems

    def judge(self, series: Series) -> list[Outcome]:
        at_full = targets.untargeted("await-full", "await 10 ms, every transaction FULL", "%")
        outcomes = list[Outcome]()
        for target, label in ((targets.AWAIT, OURS_DEFAULT), (at_full, OURS_FULL)):
            rate = series.median(label, "jobs/s")
            share = None if rate is None else rate / POSSIBLE * 100
            outcomes.append(Outcome(target, share, "" if rate is None else f"{rate:,.0f}/s"))
        own, alone = series.median(OURS_DEFAULT, "jobs/s"), series.best([BARE], "jobs/s")
        to_bare = targets.untargeted("await-bare", "await 10 ms, to asyncio alone")
        return [*outcomes, ratio(to_bare, own, alone)]


def bare(bench: Bench) -> list[Figure]:
    """The same wait without jobs."""
    if not bench.has(OURS):
        return []
    with bench.store() as store, bench.agent(OURS, store, "default") as agent:
        told = agent.ask("sleepers", jobs=20_000, callers=100)
    return [
        Figure(BARE, "jobs/s", told["jobs"] / told["seconds"], "/s"),
        Figure(BARE, "cpu", told["cpu"] / told["jobs"] * 1e6, "µs/job"),
    ]
