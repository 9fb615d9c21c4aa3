"""From a send to the next step of the parked workflow that waits for it, on idle Postgres.

A worker process and a producer on one database. Each event goes to a workflow of its own that has
been parked since before the clock started, and then takes a step; one event at a time with uneven
pauses around 0.1 s. Latency runs from just before the call to the first line of the step, so it
holds the commit, the claim of the job and its history. absurd looks every 0.25 s, its default; DBOS
is called `send` and `recv`, and its workflow has stayed in memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import postgres, targets
from benchmarks.bench import Bench, in_turn
from benchmarks.figures import Figure, Outcome, Series, percentile
from benchmarks.measures.idle import gap
from benchmarks.systems import OURS_POSTGRES, forge_postgres_rows
from benchmarks.systems.timing import STOP_SUFFIX

LEVEL = "postgres"
OWN = "ours"
SYSTEMS = {OWN: OURS_POSTGRES, "absurd": "absurd", "dbos": "dbos"}
SECONDS = 60.0
# How many workflows wait.
PARKED = {
    OWN: "SELECT count(*) FROM forge.waits",
    "absurd": "SELECT count(*) FROM absurd.w_bench",
    "dbos": "SELECT count(*) FROM dbos.operation_outputs WHERE function_name = 'DBOS.sleep'",
}


class PostgresStepSend:
    name = "postgres-step-send"
    title = "Postgres: from a send to the next step of a parked workflow"

    def __init__(self) -> None:
        self._problems: list[str] = []

    def setup(self, bench: Bench) -> None:
        """Nothing to prepare: each round starts fresh workers."""

    def round(self, bench: Bench, number: int) -> list[Figure]:
        figures = list[Figure]()
        few = (OWN,) if bench.size.quick else SYSTEMS
        for label in in_turn([one for one in few if bench.has(SYSTEMS[one])], number):
            with bench.database() as store:
                figures += self._one(bench, label, store)
        return figures

    def _one(self, bench: Bench, label: str, store: Path) -> list[Figure]:
        jobs = bench.size.jobs(100 if label == OWN else 40, 8)
        stamps, system = store / "stamps", SYSTEMS[label]
        stamps.touch()
        with bench.agent(system, store, LEVEL) as producer:
            producer.ask("park", jobs=jobs)
            with bench.agent(system, store, LEVEL) as worker:
                worker.send("listen", stamps=str(stamps), jobs=jobs)
                worker.event("up")
                try:
                    _until(lambda: postgres.ask(store, PARKED[label])[0][0] == jobs)
                    time.sleep(0.1 if bench.size.quick else 1.0)
                    calls = producer.ask("send_events", jobs=jobs, gap=gap(bench))["calls"]
                    _until(lambda: stamps.read_text().count("\n") >= jobs)
                    time.sleep(0.2)
                finally:
                    Path(str(stamps) + STOP_SUFFIX).touch()
                    worker.answer()
        latencies = [float(line) for line in stamps.read_text().split()]
        if len(latencies) != jobs:
            self._problems.append(f"{label}: {len(latencies)} of {jobs} workflows went on")
        if label == OWN:
            self._finished(store, jobs)
        return [
            Figure(label, "p50", percentile(latencies, 0.5), "ms"),
            Figure(label, "p99", percentile(latencies, 0.99), "ms"),
            Figure(label, "call p50", percentile(calls, 0.5), "ms"),
            *(Figure(label, "each", value, "ms") for value in latencies),
        ]

    def _finished(self, store: Path, jobs: int) -> None:
        """Each took its event and one step."""
        rows, expected = forge_postgres_rows.state(store), {"done": jobs, "steps": 2 * jobs}
        if {name: rows.get(name, 0) for name in expected} != expected:
            self._problems.append(f"{OWN}: {jobs} workflows became {rows}")
        self._problems += [f"{OWN}: {wrong}" for wrong in forge_postgres_rows.discord(store)]

    def verify(self, bench: Bench) -> list[str]:
        return self._problems

    def judge(self, series: Series) -> list[Outcome]:
        """p50 is the median of the rounds; p99 needs all samples of all rounds together."""
        each = series.of(OWN, "each")
        peers = ", ".join(
            f"{label} {median:.1f} ms"
            for label in SYSTEMS
            if label != OWN and (median := series.median(label, "p50")) is not None
        )
        return [
            Outcome(targets.POSTGRES_SEND_P50, series.median(OWN, "p50"), peers),
            Outcome(
                targets.POSTGRES_SEND_P99,
                percentile(each, 0.99) if each else None,
                f"{len(each)} samples" if each else "",
            ),
        ]


def _until(answer: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not answer():
        if time.monotonic() > deadline:
            raise TimeoutError("workflows did not park, or did not go on")
        time.sleep(0.05)
