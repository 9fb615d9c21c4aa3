"""What a claim costs on Postgres beside millions of rows: processor time per job, paired.

Ours alone. One database holds 1,000,000 pending, 1,000,000 scheduled and 1,000,000 finished jobs;
the other, fresh in every pair, only the jobs of its window. Windows alternate; each begins with a
worker process on a settled database, lets the first jobs pass and then takes the processor seconds
of that process and of the server (without autovacuum) for the next ones. Before its window the deep
database gets as many jobs as it will lose. The ratio of each pair counts, with a 90 % interval.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

from benchmarks import postgres, targets
from benchmarks.bench import Bench
from benchmarks.figures import Figure, Outcome, Series, paired
from benchmarks.systems import OURS_POSTGRES, forge_postgres_rows

FULL_TABLE = "3 M rows"
EMPTY_TABLE = "empty table"
LEVEL = "postgres"
SKIP = 1_000
SLACK = 2_000
LIMIT_SECONDS = 120.0
WANTED = ("pending", "scheduled", "done")


class PostgresDepth:
    name = "postgres-depth"
    title = "Postgres: claim cost beside 1 M pending, 1 M scheduled and 1 M done rows"

    def __init__(self) -> None:
        self._problems: list[str] = []
        self._stack = ExitStack()
        self._deep: Path | None = None
        self._expected: dict[str, int] = {}

    def setup(self, bench: Bench) -> None:
        """One real job of each sort, made by the library, then multiplied inside the server."""
        if not bench.has(OURS_POSTGRES):
            return
        rows = bench.size.jobs(1_000_000, 2_000)
        self._deep = store = self._stack.enter_context(bench.database())
        started = time.monotonic()
        with bench.agent(OURS_POSTGRES, store, LEVEL) as agent:
            agent.ask("seed", jobs=1)
            agent.send("drain", jobs=1)
            agent.event("up")
            agent.event("handled")
            forge_postgres_rows.await_finished(store, LIMIT_SECONDS)
            agent.answer()
            agent.ask("seed", jobs=1)
            agent.ask("seed_later", jobs=1)
        forge_postgres_rows.multiply(store, rows - 1)
        postgres.prepare_tables(store)
        found = forge_postgres_rows.by_status(store)
        if found != dict.fromkeys(WANTED, rows):
            raise ValueError(f"depth: wanted {rows} rows of each of {WANTED}, made {found}")
        self._expected = found
        [[size]] = postgres.ask(store, "SELECT pg_database_size(current_database())")
        bench.say(
            f"postgres-depth: {rows:,} rows each of {', '.join(WANTED)} made"
            f" in {time.monotonic() - started:.0f} s, {size / 1e6:,.0f} MB"
        )

    def round(self, bench: Bench, number: int) -> list[Figure]:
        figures = list[Figure]()
        if self._deep is None or not self._expected:
            return figures
        for pair in range(bench.size.pairs_a_round()):
            costs: dict[str, float] = {}
            order = (FULL_TABLE, EMPTY_TABLE)
            for label in order if (number + pair) % 2 == 0 else order[::-1]:
                costs[label] = self._window(bench, label)
                figures.append(Figure(label, "cpu, both", costs[label], "µs/job"))
            value = costs[FULL_TABLE] / costs[EMPTY_TABLE]
            figures.append(Figure(FULL_TABLE, "ratio to empty", value, "×"))
        return figures

    def _window(self, bench: Bench, label: str) -> float:
        """Processor microseconds per job of the worker process and the server."""
        jobs = bench.size.jobs(15_000, 300)
        added = SKIP + jobs + SLACK
        with ExitStack() as stack:
            if label == FULL_TABLE:
                assert self._deep is not None
                store = self._deep
                self._expected["pending"] += added
            else:
                store = stack.enter_context(bench.database())
            with bench.agent(OURS_POSTGRES, store, LEVEL) as producer:
                producer.ask("seed", jobs=added)
            postgres.prepare_tables(store)
            with bench.agent(OURS_POSTGRES, store, LEVEL) as worker:
                worker.send("drain", jobs=jobs, skip=SKIP)
                worker.event("up")
                worker.event("handled")
                told = worker.answer()
                return (told["cpu"] + told["server"]) / jobs * 1e6

    def verify(self, bench: Bench) -> list[str]:
        """Nothing may be lost: what is not pending any more must be done, the rest untouched."""
        if self._deep is not None and self._expected:
            after = forge_postgres_rows.by_status(self._deep)
            moved = self._expected["pending"] - after.get("pending", 0)
            expected = {
                **self._expected,
                "pending": self._expected["pending"] - moved,
                "done": self._expected["done"] + moved,
            }
            if after != expected or moved <= 0:
                self._problems.append(f"postgres-depth: expected {expected}, found {after}")
            wrong = forge_postgres_rows.discord(self._deep)
            self._problems += [f"postgres-depth: {one}" for one in wrong]
        self._stack.close()
        return self._problems

    def judge(self, series: Series) -> list[Outcome]:
        deep, empty = (series.median(label, "cpu, both") for label in (FULL_TABLE, EMPTY_TABLE))
        note = "" if deep is None or empty is None else f"{deep:.0f} to {empty:.0f} µs of CPU a job"
        return [paired(targets.POSTGRES_DEPTH, series.of(FULL_TABLE, "ratio to empty"), note)]
