"""Claims on Postgres while somebody holds an old snapshot, which keeps vacuum from cleaning up.

Ours alone. 200,000 jobs flow through one worker with 100 slots, once while another session holds a
snapshot from before, once without, and once where ANALYZE in the middle saw the empty table while
the snapshot kept its dead rows; all in fresh databases, in turns. What counts is the 99th
percentile of the time an exchange takes that claimed something, as its caller sees it; after
ANALYZE the speed.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import psycopg

from benchmarks import postgres, targets
from benchmarks.bench import Bench, in_turn
from benchmarks.figures import Figure, Outcome, Series, percentile
from benchmarks.systems import OURS_POSTGRES, forge_postgres_rows

LEVEL = "postgres"
HELD, FREE, ANALYZED = "snapshot held", "no snapshot", "ANALYZE in the middle"
SECONDS = 120.0


class PostgresSnapshot:
    name = "postgres-snapshot"
    title = "Postgres: claims while a snapshot is held"

    def __init__(self) -> None:
        self._problems: list[str] = []

    def setup(self, bench: Bench) -> None:
        """Nothing to prepare: each flow has a fresh database."""

    def round(self, bench: Bench, number: int) -> list[Figure]:
        if not bench.has(OURS_POSTGRES):
            return []
        figures = list[Figure]()
        p99: dict[str, float] = {}
        speeds: dict[str, float] = {}
        for label in in_turn([HELD, FREE, ANALYZED], number):
            took, speed = self._flow(bench, label)
            p99[label], speeds[label] = percentile(took, 0.99), speed
            figures += [
                Figure(label, "claim p50", percentile(took, 0.5), "ms"),
                Figure(label, "claim p99", p99[label], "ms"),
                Figure(label, "jobs/s", speed, "/s"),
            ]
        return [
            *figures,
            Figure(HELD, "p99 to free", p99[HELD] / p99[FREE], "×"),
            Figure(ANALYZED, "speed to held", speeds[ANALYZED] / speeds[HELD], "×"),
        ]

    def _flow(self, bench: Bench, label: str) -> tuple[list[float], float]:
        jobs = bench.size.jobs(200_000, 1_000)
        parts = [jobs // 2, jobs // 2] if label == ANALYZED else [jobs]
        with bench.database() as store, ExitStack() as stack:
            self._seed(bench, store, parts[0])
            postgres.prepare_tables(store)
            if label != FREE:
                holder = stack.enter_context(psycopg.connect(postgres.address(store)))
                holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
                holder.execute("SELECT count(*) FROM forge.control")
            measured = self._drain(bench, store, parts[0])
            for part in parts[1:]:
                with psycopg.connect(postgres.address(store), autocommit=True) as connection:
                    connection.execute("ANALYZE forge.jobs")
                self._seed(bench, store, part)
                measured = self._drain(bench, store, part)
            rows = forge_postgres_rows.counts(store)
            if rows != {"waiting": 0, "finished": sum(parts)}:
                self._problems.append(f"{label}: {sum(parts)} jobs became {rows}")
        return measured

    def _seed(self, bench: Bench, store: Path, jobs: int) -> None:
        with bench.agent(OURS_POSTGRES, store, LEVEL) as producer:
            producer.ask("seed", SECONDS, jobs=jobs)

    def _drain(self, bench: Bench, store: Path, jobs: int) -> tuple[list[float], float]:
        """Milliseconds of the claims, and jobs per second."""
        with bench.agent(OURS_POSTGRES, store, LEVEL) as worker:
            worker.send("drain_timed", jobs=jobs)
            up = worker.event("up", SECONDS)
            worker.event("handled", SECONDS)
            ended = forge_postgres_rows.await_finished(store, SECONDS)
            told = worker.answer(SECONDS)
        return told["milliseconds"], told["jobs"] / (ended - up["at"])

    def verify(self, bench: Bench) -> list[str]:
        return self._problems

    def judge(self, series: Series) -> list[Outcome]:
        held, free = (series.median(label, "claim p99") for label in (HELD, FREE))
        note = "" if held is None or free is None else f"{held:.1f} to {free:.1f} ms"
        return [
            Outcome(targets.POSTGRES_SNAPSHOT, series.median(HELD, "p99 to free"), note),
            Outcome(targets.POSTGRES_ANALYZE, series.median(ANALYZED, "speed to held"), ""),
        ]
