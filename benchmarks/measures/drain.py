"""Draining no-op jobs: a seeded queue, one worker process, until the last one is finished.

Ours: `async def` tasks, 100 slots, the whole engine with metrics, finished rows kept; the clock
stops when the last finish is committed. FULL (every transaction of ours too) is compared with the
best FULL peer: Huey (it deletes the row before the call, keeps nothing) at its better thread count,
or persist-queue with fsync. NORMAL is compared with litequeue (pop + done, rows kept). Without a
bar: our default level, and the NORMAL peers that throw finished rows away or are slower anyway.
Peers get a shallower queue than ours: theirs slow down with depth, so this favours them.
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

JUDGED_NORMAL = "litequeue"


class Drain:
    name = "drain"
    title = "drain of no-op jobs, one worker process"
    what = "drain"
    kind = "noop"
    ours_full = "ours FULL"
    ours_default = "ours, default"
    ours_normal = "ours NORMAL"
    judged = (targets.DRAIN_FULL, targets.DRAIN_NORMAL)
    whole_jobs = 50_000
    quick_peers = ("huey, 1 thread", "litequeue", "persist-queue")

    def __init__(self) -> None:
        self._contenders: dict[str, Contender] = {}
        self._problems: list[str] = []

    def setup(self, bench: Bench) -> None:
        our_jobs, peer_jobs = bench.size.jobs(self.whole_jobs, 500), bench.size.jobs(5_000, 200)
        full, normal = peers_full(peer_jobs), peers_normal(peer_jobs)
        everyone = [
            ours(self.ours_full, "full", our_jobs, self.kind),
            *full,
            ours(self.ours_default, "default", our_jobs, self.kind),
            *normal[:2],
            ours(self.ours_normal, "normal", our_jobs, self.kind),
            *normal[2:],
        ]
        if bench.size.quick:
            few = {self.ours_full, self.ours_normal, *self.quick_peers}
            everyone = [one for one in everyone if one.label in few]
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
        full, normal = self.judged
        best_full = series.best([one.label for one in peers_full(0)], "jobs/s")
        our_normal = series.median(self.ours_normal, "jobs/s")
        return [
            ratio(full, series.median(self.ours_full, "jobs/s"), best_full),
            ratio(normal, our_normal, series.best([JUDGED_NORMAL], "jobs/s")),
            *self._beside(series, best_full, our_normal),
        ]

    def _beside(
        self, series: Series, best_full: tuple[str, float] | None, our_normal: float | None
    ) -> list[Outcome]:
        """Comparisons without a bar: our default level, and every other NORMAL peer."""
        default = targets.untargeted(
            f"{self.name}-default", f"{self.what}, our default level, to the best FULL peer"
        )
        found = [ratio(default, series.median(self.ours_default, "jobs/s"), best_full)]
        for one in peers_normal(0):
            if one.label != JUDGED_NORMAL and series.of(one.label, "jobs/s"):
                rows = "rows kept" if one.keeps else "rows thrown away"
                target = targets.untargeted(
                    f"{self.name}-normal-{one.label}",
                    f"{self.what}, NORMAL, to {one.label} ({rows})",
                )
                found.append(ratio(target, our_normal, series.best([one.label], "jobs/s")))
        return found
