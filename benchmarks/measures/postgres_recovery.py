"""How soon a job of a killed worker starts again on Postgres, with the default lease.

Two `forge worker` commands serve one queue. One job runs, and the whole family of the worker that
has it is killed with SIGKILL. The clock runs from the kill to the second start of the job. No peer
is run beside it.
"""

from __future__ import annotations

import time
from pathlib import Path

import psutil

from benchmarks import postgres, targets
from benchmarks.bench import Bench
from benchmarks.figures import Figure, Outcome, Series
from benchmarks.processes import Child, start_child
from benchmarks.systems import OURS_POSTGRES

OWN = "ours"
LEVEL = "postgres"
START_SECONDS = 60.0


class PostgresRecovery:
    name = "postgres-recovery"
    title = "Postgres: recovery of a killed worker's job, default lease"

    def __init__(self) -> None:
        self._problems: list[str] = []

    def setup(self, bench: Bench) -> None:
        """Nothing to prepare: each round opens a fresh database."""

    def round(self, bench: Bench, number: int) -> list[Figure]:
        if not bench.has(OURS_POSTGRES) or (bench.size.quick and number):
            return []
        with bench.database() as store:
            stamps = store / "stamps"
            stamps.touch()
            first = _worker(bench, store, stamps)
            second: Child | None = None
            try:
                with bench.agent(OURS_POSTGRES, store, LEVEL) as producer:
                    producer.ask("seed", jobs=1, kind="long_stamp")
                _starts(stamps, 1)
                second = _worker(bench, store, stamps)
                time.sleep(0.5 if bench.size.quick else 3.0)
                killed = time.monotonic()
                _kill(first)
                again = _starts(stamps, 2)
            finally:
                _kill(first)
                if second is not None:
                    _kill(second)
        return [Figure(OWN, "recovery", again - killed, "s")]

    def verify(self, bench: Bench) -> list[str]:
        return self._problems

    def judge(self, series: Series) -> list[Outcome]:
        each = series.of(OWN, "recovery")
        note = f"slowest of {len(each)} kills" if each else ""
        return [Outcome(targets.POSTGRES_RECOVERY, max(each) if each else None, note)]


def _worker(bench: Bench, store: Path, stamps: Path) -> Child:
    arguments = ["forge_jobs", "worker", "benchmarks.systems.forge_app:forge", "--queues", "bench"]
    environment = {"FORGE_URL": postgres.address(store), "FORGE_BENCH_STAMPS": str(stamps)}
    return start_child(arguments, bench.home / "recovery.log", environment, speaks=False)


def _kill(worker: Child) -> None:
    """The parent first, so that it restarts nothing, then its children."""
    try:
        children = psutil.Process(worker.process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        children = []
    if worker.process.poll() is None:
        worker.process.kill()
    for child in children:
        try:
            child.kill()
        except psutil.NoSuchProcess:
            continue
    worker.process.wait()


def _starts(stamps: Path, wanted: int) -> float:
    """The moment of the `wanted`-th start."""
    deadline = time.monotonic() + START_SECONDS
    while len(lines := stamps.read_text().split()) < wanted:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(lines)} of {wanted} starts within {START_SECONDS:.0f} s")
        time.sleep(0.02)
    return float(lines[wanted - 1])
