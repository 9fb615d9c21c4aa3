"""What a claim costs beside millions of rows: processor time per job, paired with an empty table.

Ours alone, at its default level. One store holds 1,000,000 pending, 1,000,000 scheduled and
1,000,000 finished jobs; the other, fresh in every pair, only the jobs of its window. Windows
alternate; each begins with a worker process on a settled store, lets the first jobs pass and then
takes the processor seconds of that process for the next ones (the store is in the process, so
there is no server to add). Before its window the deep store gets as many jobs as it will lose. The
ratio of each pair counts, with a 90 % interval. Rows and counters are compared at the end.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

from benchmarks import targets
from benchmarks.bench import OURS, Bench, prepare_database, truncate_log
from benchmarks.figures import Figure, Outcome, Series, paired
from benchmarks.systems import forge_rows

FULL_TABLE = "3 M rows"
EMPTY_TABLE = "empty table"
LEVEL = "default"
SKIP = 1_000
SLACK = 2_000
LIMIT_SECONDS = 120.0


class Depth:
    name = "depth"
    title = "claim cost beside 1 M pending, 1 M scheduled and 1 M done rows"

    def __init__(self) -> None:
        self._problems: list[str] = []
        self._stack = ExitStack()
        self._deep: Path | None = None
        self._expected: dict[str, int] = {}

    def setup(self, bench: Bench) -> None:
        """One real job of each sort, made by the library, then multiplied inside SQLite."""
        if not bench.has(OURS):
            return
        rows = bench.size.jobs(1_000_000, 2_000)
        self._deep = store = self._stack.enter_context(bench.store())
        started = time.monotonic()
        with bench.agent(OURS, store, LEVEL) as agent:
            agent.ask("seed", jobs=1)
            agent.send("drain", jobs=1)
            agent.event("up")
            forge_rows.await_empty(store, LIMIT_SECONDS)
            agent.answer()
            agent.ask("seed", jobs=1)
            agent.ask("seed_later", jobs=1)
        forge_rows.multiply(store, rows - 1)
        prepare_database(store)
        found, wanted = forge_rows.by_status(store), ("pending", "scheduled", "done")
        if found != dict.fromkeys(wanted, rows):
            raise ValueError(f"depth: wanted {rows} rows of each of {wanted}, made {found}")
        self._expected = found
        bench.say(
            f"depth: {rows:,} rows each of {', '.join(wanted)} made"
            f" in {time.monotonic() - started:.0f} s,"
            f" {forge_rows.path_in(store).stat().st_size / 1e6:,.0f} MB"
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
        jobs = bench.size.jobs(15_000, 300)
        added = SKIP + jobs + SLACK
        with ExitStack() as stack:
            if label == FULL_TABLE:
                assert self._deep is not None
                store = self._deep
                self._expected["pending"] += added
            else:
                store = stack.enter_context(bench.store())
            with bench.agent(OURS, store, LEVEL) as producer:
                producer.ask("seed", jobs=added)
            if label == FULL_TABLE:
                truncate_log(store)  # its statistics are from the set-up and still true
            else:
                prepare_database(store)
            with bench.agent(OURS, store, LEVEL) as worker:
                worker.send("drain", jobs=jobs, skip=SKIP)
                worker.event("up")
                return worker.answer()["cpu"] / jobs * 1e6

    def verify(self, bench: Bench) -> list[str]:
        """Nothing may be lost: what is not pending any more must be done, the rest untouched."""
        if self._deep is not None:
            after = forge_rows.by_status(self._deep)
            moved = self._expected["pending"] - after.get("pending", 0)
            expected = {
                **self._expected,
                "pending": self._expected["pending"] - moved,
                "done": self._expected["done"] + moved,
            }
            if after != expected or moved <= 0:
                self._problems.append(f"depth: expected {expected}, found {after}")
            self._problems += [f"depth: {wrong}" for wrong in forge_rows.discord(self._deep)]
        self._stack.close()
        return self._problems

    def judge(self, series: Series) -> list[Outcome]:
        deep, empty = series.median(FULL_TABLE, "cpu"), series.median(EMPTY_TABLE, "cpu")
        note = "" if deep is None or empty is None else f"{deep:.0f} to {empty:.0f} µs of CPU a job"
        return [paired(targets.DEPTH, series.of(FULL_TABLE, "ratio to empty"), note)]
