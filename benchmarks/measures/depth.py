"""What a claim costs beside millions of rows: processor time per job, paired with an empty table.

Ours alone. One store holds 1,000,000 pending, 1,000,000 scheduled and 1,000,000 finished jobs;
the other, fresh in every pair, only the jobs of its window. Windows alternate; each starts a
worker process, lets the first jobs pass and then takes the processor seconds of the worker for
the next ones (the store is in that process, so there is no server to add). The ratio of each
pair counts, with a 90 % interval. Rows are counted at the end.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

from benchmarks import targets
from benchmarks.bench import OURS, Bench, settle
from benchmarks.figures import Figure, Outcome, Series, paired
from benchmarks.systems import forge_rows

FULL_TABLE = "3 M rows"
EMPTY_TABLE = "empty table"
SKIP = 500
SLACK = 2_000
LIMIT_SECONDS = 120.0


class Depth:
    name = "depth"
    title = "claim cost beside 1 M pending, 1 M scheduled and 1 M done rows"

    def __init__(self) -> None:
        self._problems: list[str] = []
        self._stack = ExitStack()
        self._deep: Path | None = None
        self._rows = 0
        self._before: dict[str, int] = {}

    def setup(self, bench: Bench) -> None:
        """One real job of each sort, made by the library, then multiplied inside SQLite."""
        if not bench.has(OURS):
            return
        self._rows = bench.size.jobs(1_000_000, 2_000)
        self._deep = store = self._stack.enter_context(bench.store())
        started = time.monotonic()
        with bench.agent(OURS, store, "full") as agent:
            agent.ask("seed", jobs=1)
            agent.send("drain", jobs=1)
            agent.event("up")
            forge_rows.await_empty(store, LIMIT_SECONDS)
            agent.answer()
            agent.ask("seed", jobs=1)
            agent.ask("seed_later", jobs=1)
        (done,) = forge_rows.keys(store, forge_rows.HISTORY)
        pending, scheduled = forge_rows.keys(store, forge_rows.HOT)
        copies, first = self._rows - 1, 1_000
        forge_rows.multiply(store, forge_rows.HISTORY, done, copies, first)
        forge_rows.multiply(store, forge_rows.HOT, pending, copies, first + copies)
        forge_rows.multiply(store, forge_rows.HOT, scheduled, copies, first + 2 * copies)
        settle(store)
        self._before = forge_rows.counts(store)
        bench.say(
            f"depth: {self._before['waiting']:,} waiting and {self._before['finished']:,} finished"
            f" rows made in {time.monotonic() - started:.0f} s"
        )

    def round(self, bench: Bench, number: int) -> list[Figure]:
        figures = list[Figure]()
        if self._deep is None:
            return figures
        for pair in range(bench.size.pairs_a_round()):
            costs: dict[str, float] = {}
            order = (FULL_TABLE, EMPTY_TABLE)
            for label in order if (number + pair) % 2 == 0 else order[::-1]:
                costs[label] = self._window(bench, label)
                figures.append(Figure(label, "cpu", costs[label], "µs/job"))
            value = costs[FULL_TABLE] / costs[EMPTY_TABLE]
            figures.append(Figure(FULL_TABLE, "ratio to empty", value, "×"))
        return figures

    def _window(self, bench: Bench, label: str) -> float:
        """Processor microseconds per job of one worker process."""
        jobs = bench.size.jobs(5_000, 300)
        if label == FULL_TABLE:
            assert self._deep is not None
            return self._cost(bench, self._deep, jobs)
        with bench.store() as store:
            with bench.agent(OURS, store, "full") as producer:
                producer.ask("seed", jobs=SKIP + jobs + SLACK)
            settle(store)
            return self._cost(bench, store, jobs)

    def _cost(self, bench: Bench, store: Path, jobs: int) -> float:
        with bench.agent(OURS, store, "full") as worker:
            worker.send("drain", jobs=jobs, skip=SKIP)
            worker.event("up")
            return worker.answer()["cpu"] / jobs * 1e6

    def verify(self, bench: Bench) -> list[str]:
        """Nothing may be lost: what is not waiting any more must be finished."""
        if self._deep is not None:
            after = forge_rows.counts(self._deep)
            if sum(after.values()) != sum(self._before.values()):
                self._problems.append(f"depth: {self._before} rows became {after}")
        self._stack.close()
        return self._problems

    def judge(self, series: Series) -> list[Outcome]:
        deep, empty = series.median(FULL_TABLE, "cpu"), series.median(EMPTY_TABLE, "cpu")
        note = "" if deep is None or empty is None else f"{deep:.0f} to {empty:.0f} µs of CPU a job"
        return [paired(targets.DEPTH, series.of(FULL_TABLE, "ratio to empty"), note)]
