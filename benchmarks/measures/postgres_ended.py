"""What ten million ended jobs cost on Postgres: processor time per job of a drain, paired.

Ours alone. One database keeps 10,000,000 ended jobs, the other 1,000,000. Windows alternate: jobs
are stored, the tables are settled, a worker process lets the first jobs pass and then the processor
seconds of that process and of the server (without autovacuum) count for the next ones. The ratio
of each pair counts, with a 90 % interval.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

from benchmarks import postgres, targets
from benchmarks.bench import Bench
from benchmarks.figures import Figure, Outcome, Series, paired
from benchmarks.systems import OURS_POSTGRES, forge_postgres_rows

MANY, FEW = "10 M ended", "1 M ended"
LEVEL = "postgres"
SKIP = 1_000
SLACK = 2_000
LIMIT_SECONDS = 120.0
# One statement per so many rows: a single one over ten million would keep its log until its end.
PART = 1_000_000


class PostgresEnded:
    name = "postgres-ended"
    title = "Postgres: drain cost beside 10 M ended rows, to 1 M"

    def __init__(self) -> None:
        self._problems: list[str] = []
        self._stack = ExitStack()
        self._stores: dict[str, Path] = {}

    def setup(self, bench: Bench) -> None:
        """One real ended job, made by the library, then multiplied inside the server."""
        if not bench.has(OURS_POSTGRES):
            return
        sizes = {MANY: bench.size.jobs(10_000_000, 4_000), FEW: bench.size.jobs(1_000_000, 400)}
        for label, rows in sizes.items():
            started = time.monotonic()
            store = self._stack.enter_context(bench.database())
            with bench.agent(OURS_POSTGRES, store, LEVEL) as agent:
                agent.ask("seed", jobs=1)
                agent.send("drain", jobs=1)
                agent.event("up")
                agent.event("handled")
                forge_postgres_rows.await_finished(store, LIMIT_SECONDS)
                agent.answer()
            for first in range(1, rows, PART):
                copies = min(PART, rows - first)
                forge_postgres_rows.multiply(store, copies, (("history", "done"),))
            postgres.prepare_tables(store)
            self._stores[label] = store
            bench.say(f"postgres-ended: {rows:,} rows in {time.monotonic() - started:.0f} s")

    def round(self, bench: Bench, number: int) -> list[Figure]:
        figures = list[Figure]()
        for pair in range(bench.size.pairs_a_round() if self._stores else 0):
            order = (MANY, FEW) if (number + pair) % 2 == 0 else (FEW, MANY)
            costs = {label: self._window(bench, self._stores[label]) for label in order}
            figures += [Figure(label, "cpu, both", cost, "µs/job") for label, cost in costs.items()]
            figures.append(Figure(MANY, "ratio to 1 M", costs[MANY] / costs[FEW], "×"))
        return figures

    def _window(self, bench: Bench, store: Path) -> float:
        """Microseconds of worker and server per job."""
        jobs = bench.size.jobs(10_000, 200)
        added = jobs + SKIP + bench.size.jobs(SLACK, 200)
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
        for label, store in self._stores.items():
            wrong = forge_postgres_rows.discord(store)
            self._problems += [f"postgres-ended, {label}: {one}" for one in wrong]
        self._stack.close()
        return self._problems

    def judge(self, series: Series) -> list[Outcome]:
        many, few = (series.median(label, "cpu, both") for label in (MANY, FEW))
        note = "" if many is None or few is None else f"{many:.0f} to {few:.0f} µs of CPU a job"
        return [paired(targets.POSTGRES_ENDED, series.of(MANY, "ratio to 1 M"), note)]
