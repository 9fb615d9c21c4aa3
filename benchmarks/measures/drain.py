"""Draining no-op jobs: a seeded queue, one worker process, until the last one is finished.

Ours: `async def` tasks, 100 slots, the whole engine with metrics, finished rows kept as
history; the clock stops when the last finish is durable. FULL is compared with Huey (fsync on;
it deletes the row before the call, keeps nothing) at its better thread count; NORMAL with
litequeue (pop + done, rows kept) and, as an extra, with every NORMAL peer also where finished
rows are thrown away on the way. Peers get a shallower queue than ours: theirs slow down with
depth, so this favours them.
"""

from __future__ import annotations

from benchmarks import targets
from benchmarks.bench import Bench, in_turn
from benchmarks.figures import Figure, Outcome, Series, ratio
from benchmarks.measures.draining import (
    Contender,
    drain_once,
    ours,
    peers_full,
    peers_normal,
)

ONE_SETTING_EACH = {"huey, 1 thread", "litequeue", "persist-queue"}


class Drain:
    name = "drain"
    title = "drain of no-op jobs, one worker process"
    kind = "noop"
    ours_full = "ours FULL"
    ours_normal = "ours NORMAL"
    judged = (targets.DRAIN_FULL, targets.DRAIN_NORMAL, targets.DRAIN_NORMAL_ANY)
    whole_jobs = 50_000

    def __init__(self) -> None:
        self._contenders: dict[str, Contender] = {}
        self._problems: list[str] = []

    def setup(self, bench: Bench) -> None:
        our_jobs, peer_jobs = bench.size.jobs(self.whole_jobs, 500), bench.size.jobs(5_000, 200)
        peers = [*peers_full(peer_jobs), *peers_normal(peer_jobs)]
        if bench.size.quick:
            peers = [one for one in peers if one.label in ONE_SETTING_EACH]
        everyone = [
            ours(self.ours_full, "full", our_jobs, self.kind),
            *peers[: len(peers) // 2],
            ours(self.ours_normal, "normal", our_jobs, self.kind),
            *peers[len(peers) // 2 :],
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
        full, normal, any_normal = self.judged
        best_full = series.best([one.label for one in peers_full(0)], "jobs/s")
        kept = series.best(["litequeue"], "jobs/s")
        anyone = series.best([one.label for one in peers_normal(0)], "jobs/s")
        our_normal = series.median(self.ours_normal, "jobs/s")
        return [
            ratio(full, series.median(self.ours_full, "jobs/s"), best_full),
            ratio(normal, our_normal, kept),
            ratio(any_normal, our_normal, anyone),
        ]
