"""The memory of a worker on Postgres while workflows sleep and wait.

Each figure is the memory (RSS) of a fresh worker process that has run 1,000 no-op jobs and then
rested, on the same database: first with nothing else in it, then with 5,000 workflows that sleep
for an hour, then with 100,000 more that wait for an event. The worker that parked the 5,000 is
shown too: what it needed at once for so many runs is not given back at once. The waiting workflows
are copies of one, made inside the server. DBOS holds its sleeping workflows in memory: the process
before and after it started 5,000 of them.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks import postgres, targets
from benchmarks.bench import Bench
from benchmarks.figures import Figure, Outcome, Series
from benchmarks.systems import OURS_POSTGRES, forge_postgres_rows

LEVEL = "postgres"
OWN, DBOS = "ours", "dbos"
SECONDS = 120.0
REST_SECONDS = 2.0
MB = 1e6


class PostgresStepSleepers:
    name = "postgres-step-sleepers"
    title = "Postgres: memory of a worker while workflows sleep and wait"

    def __init__(self) -> None:
        self._problems: list[str] = []

    def setup(self, bench: Bench) -> None:
        """Nothing to prepare: each round opens fresh databases."""

    def round(self, bench: Bench, number: int) -> list[Figure]:
        figures = list[Figure]()
        if bench.has(OURS_POSTGRES):
            with bench.database() as store:
                figures += self._ours(bench, store)
        if bench.has(DBOS) and not bench.size.quick:
            with bench.database() as store:
                figures += self._dbos(bench, store)
        return figures

    def _ours(self, bench: Bench, store: Path) -> list[Figure]:
        sleeping, waiting = bench.size.jobs(5_000, 100), bench.size.jobs(100_000, 200)
        self._rest(bench, store)  # the tables and what is published are there
        empty = self._rest(bench, store)["after"]
        parking = self._rest(bench, store, stored=sleeping)
        beside_sleeping = self._rest(bench, store)["after"]
        with bench.agent(OURS_POSTGRES, store, LEVEL) as agent:
            agent.ask("park_one", SECONDS)
        forge_postgres_rows.copy_suspended(store, waiting - 1)
        postgres.prepare_tables(store)
        beside_waiting = self._rest(bench, store)["after"]
        self._check(store, {"scheduled": sleeping, "suspended": waiting})
        return [
            Figure(OWN, "idle", empty / MB, "MB"),
            Figure(OWN, "sleeping", (beside_sleeping - empty) / MB, "MB"),
            Figure(OWN, "waiting", (beside_waiting - empty) / MB, "MB"),
            Figure(OWN, "parking", (parking["after"] - parking["before"]) / MB, "MB"),
        ]

    def _rest(self, bench: Bench, store: Path, stored: int = 0) -> dict[str, float]:
        with bench.agent(OURS_POSTGRES, store, LEVEL) as worker:
            return worker.ask(
                "rest",
                SECONDS,
                jobs=bench.size.jobs(1_000, 50),
                rest_s=0.1 if bench.size.quick else REST_SECONDS,
                stored=stored,
            )

    def _check(self, store: Path, expected: dict[str, int]) -> None:
        found = forge_postgres_rows.by_status(store)
        rows = {status: found.get(status, 0) for status in expected}
        if rows != expected:
            self._problems.append(f"{OWN}: {rows} instead of {expected}")
        self._problems += [f"{OWN}: {wrong}" for wrong in forge_postgres_rows.discord(store)]

    def _dbos(self, bench: Bench, store: Path) -> list[Figure]:
        jobs = bench.size.jobs(5_000, 100)
        with bench.agent(DBOS, store, LEVEL) as worker:
            told = worker.ask("put_to_sleep", SECONDS, jobs=jobs)
        if told["parked"] != jobs:
            self._problems.append(f"{DBOS}: {told['parked']} of {jobs} workflows sleep")
        return [Figure(DBOS, "sleeping", (told["after"] - told["before"]) / MB, "MB")]

    def verify(self, bench: Bench) -> list[str]:
        return self._problems

    def judge(self, series: Series) -> list[Outcome]:
        """A worker that happens to need less than the idle one needs nothing."""
        dbos = series.median(DBOS, "sleeping")
        parking = targets.untargeted(
            "postgres-parking", "memory a worker gained by parking the 5,000 itself", "MB"
        )
        return [
            Outcome(
                targets.POSTGRES_SLEEPING,
                _at_least_nothing(series.median(OWN, "sleeping")),
                "" if dbos is None else f"{DBOS} {dbos:.1f} MB",
            ),
            Outcome(targets.POSTGRES_WAITING, _at_least_nothing(series.median(OWN, "waiting"))),
            Outcome(parking, series.median(OWN, "parking")),
        ]


def _at_least_nothing(value: float | None) -> float | None:
    return None if value is None else max(value, 0.0)
