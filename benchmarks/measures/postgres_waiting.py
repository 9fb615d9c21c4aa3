"""Handlers that await 5 ms in 100 slots on Postgres: 20,000 jobs/s are possible, how many are made.

Ours at the server's durable setting; the clock stops at the last committed finish. 100 bare tasks
that only sleep 5 ms would reach less than 20,000 as well: asyncio's timers are late by up to a
millisecond.
"""

from __future__ import annotations

from benchmarks import targets
from benchmarks.bench import Bench
from benchmarks.figures import Figure, Outcome, Series
from benchmarks.measures.draining import Contender
from benchmarks.measures.postgres_drain import LEVEL, drain_once
from benchmarks.systems import OURS_POSTGRES

POSSIBLE = 20_000.0
OWN = "ours"


class PostgresWaiting:
    name = "postgres-await"
    title = "Postgres: handlers that await 5 ms, 100 slots"

    def __init__(self) -> None:
        self._problems: list[str] = []

    def setup(self, bench: Bench) -> None:
        """Nothing to prepare: each round opens a fresh database."""

    def round(self, bench: Bench, number: int) -> list[Figure]:
        if not bench.has(OURS_POSTGRES):
            return []
        jobs = bench.size.jobs(60_000, 500)
        waiting = Contender(OWN, OURS_POSTGRES, LEVEL, jobs, True, {"kind": "wait_5"})
        return drain_once(bench, waiting, self._problems)

    def verify(self, bench: Bench) -> list[str]:
        return self._problems

    def judge(self, series: Series) -> list[Outcome]:
        rate = series.median(OWN, "jobs/s")
        share = None if rate is None else rate / POSSIBLE * 100
        return [Outcome(targets.POSTGRES_AWAIT, share, "" if rate is None else f"{rate:,.0f}/s")]
