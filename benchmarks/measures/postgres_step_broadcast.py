"""One event for 10,000 waiting workflows on Postgres: the sender's call, and until all are pending.

The workflows are copies of one that waits without a deadline, made inside the server. A worker with
100 slots serves their queue, so that it resumes and runs them at the same time. The clock starts
just before the call of the sender, in a process of its own, and stops when no wait is left; the
parent looks every 5 ms. That all are finished is shown beside it.
"""

from __future__ import annotations

import time
from pathlib import Path

from benchmarks import postgres, targets
from benchmarks.bench import Bench
from benchmarks.figures import Figure, Outcome, Series
from benchmarks.systems import OURS_POSTGRES, forge_postgres_rows
from benchmarks.systems.timing import STOP_SUFFIX

LEVEL = "postgres"
OWN = "ours"
SECONDS = 60.0
NO_WAIT = "SELECT NOT EXISTS (SELECT 1 FROM forge.waits)"
ALL_FINISHED = "SELECT NOT EXISTS (SELECT 1 FROM forge.jobs)"


class PostgresStepBroadcast:
    name = "postgres-step-broadcast"
    title = "Postgres: one event for 10,000 waiting workflows"

    def __init__(self) -> None:
        self._problems: list[str] = []

    def setup(self, bench: Bench) -> None:
        """Nothing to prepare: each round opens a fresh database."""

    def round(self, bench: Bench, number: int) -> list[Figure]:
        if not bench.has(OURS_POSTGRES):
            return []
        with bench.database() as store:
            return self._one(bench, store)

    def _one(self, bench: Bench, store: Path) -> list[Figure]:
        jobs, stamps = bench.size.jobs(10_000, 700), store / "stamps"
        with bench.agent(OURS_POSTGRES, store, LEVEL) as producer:
            producer.ask("park_one")
            forge_postgres_rows.copy_suspended(store, jobs - 1)
            postgres.prepare_tables(store)
            with bench.agent(OURS_POSTGRES, store, LEVEL) as worker:
                worker.send("listen", stamps=str(stamps))
                worker.event("up")
                time.sleep(0.1 if bench.size.quick else 1.0)
                try:
                    producer.send("broadcast")
                    pending = postgres.await_answer(store, NO_WAIT, SECONDS, 0.005)
                    sent = producer.answer()
                    finished = postgres.await_answer(store, ALL_FINISHED, SECONDS, 0.02)
                finally:
                    Path(str(stamps) + STOP_SUFFIX).touch()
                    worker.answer()
        self._finished(store, jobs)
        return [
            Figure(OWN, "call", (sent["ended"] - sent["began"]) * 1_000, "ms"),
            Figure(OWN, "all pending", pending - sent["began"], "s"),
            Figure(OWN, "all finished", finished - sent["began"], "s"),
        ]

    def _finished(self, store: Path, jobs: int) -> None:
        """Each took the event once."""
        rows, expected = forge_postgres_rows.state(store), {"done": jobs, "steps": jobs}
        if {name: rows.get(name, 0) for name in expected} != expected:
            self._problems.append(f"{OWN}: {jobs} workflows became {rows}")
        self._problems += [f"{OWN}: {wrong}" for wrong in forge_postgres_rows.discord(store)]

    def verify(self, bench: Bench) -> list[str]:
        return self._problems

    def judge(self, series: Series) -> list[Outcome]:
        finished = targets.untargeted("postgres-heard", "one event, 10,000 finished", "s")
        return [
            Outcome(targets.POSTGRES_BROADCAST_CALL, series.median(OWN, "call")),
            Outcome(targets.POSTGRES_BROADCAST, series.median(OWN, "all pending")),
            Outcome(finished, series.median(OWN, "all finished")),
        ]
