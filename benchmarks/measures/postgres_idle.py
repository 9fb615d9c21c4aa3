"""Idle workers on Postgres: how soon a job of another process starts, and what waiting costs.

Two worker processes and a producer on one database. Ours are started by `forge worker` with 100
slots. The producer enqueues one job at a time with uneven pauses around 0.1 s; latency runs from
just before the call to the first line of the handler, so it holds the commit too. Before that the
workers rest for some seconds: processor time of all of them, memory of the largest, connections to
the server.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil

from benchmarks import postgres, targets
from benchmarks.bench import Bench, in_turn
from benchmarks.figures import Figure, Outcome, Series, percentile
from benchmarks.measures.idle import START_SECONDS, family, gap, resting, wait_for_lines
from benchmarks.processes import Child, start_child
from benchmarks.systems import OURS_POSTGRES, forge_postgres_rows
from benchmarks.systems.peer import STOP_SUFFIX

LEVEL = "postgres"
OWN = "ours"
PEERS = ("pgqueuer", "procrastinate", "saq", "chancy")
SLOTS = 100
WORKERS = 2
CONNECTIONS = (
    "SELECT count(*) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


class PostgresIdle:
    name = "postgres-idle"
    title = "Postgres: two idle worker processes: latency, CPU, memory"

    def __init__(self) -> None:
        self._problems: list[str] = []

    def setup(self, bench: Bench) -> None:
        """Nothing to prepare: each round starts fresh workers."""

    def round(self, bench: Bench, number: int) -> list[Figure]:
        figures = list[Figure]()
        peers = PEERS[:1] if bench.size.quick else PEERS
        present = [name for name in (OURS_POSTGRES, *peers) if bench.has(name)]
        for name in in_turn(present, number):
            figures += self._one(bench, name)
        return figures

    def _one(self, bench: Bench, system: str) -> list[Figure]:
        name = OWN if system == OURS_POSTGRES else system
        jobs = bench.size.jobs(100, 8)
        with bench.database() as store:
            stamps = store / "stamps"
            stamps.touch()
            # What is in the databases before costs nobody anything: it is made by the first agent.
            with bench.agent(system, store, LEVEL) as producer:
                workers = ours if system == OURS_POSTGRES else theirs
                with workers(bench, system, store, stamps) as (processes, first):
                    producer.ask("trickle", jobs=4 * WORKERS, gap=0.05)
                    wait_for_lines(stamps, 4 * WORKERS, START_SECONDS, first)
                    figures = resting(bench, name, processes, 4.0)
                    [[connections]] = postgres.ask(store, CONNECTIONS)
                    calls = producer.ask("trickle", jobs=jobs, gap=gap(bench))["calls"]
                    wait_for_lines(stamps, jobs + 4 * WORKERS, START_SECONDS, first)
            latencies = [float(line) for line in stamps.read_text().split()][4 * WORKERS :]
            if system == OURS_POSTGRES:
                self._finished(store, jobs + 4 * WORKERS)
        if len(latencies) != jobs:
            self._problems.append(f"{name}: {len(latencies)} of {jobs} trickled jobs started")
            return []
        return [
            *figures,
            Figure(name, "connections", connections, ""),
            Figure(name, "p50", percentile(latencies, 0.5), "ms"),
            Figure(name, "p99", percentile(latencies, 0.99), "ms"),
            Figure(name, "call p50", percentile(calls, 0.5), "ms"),
            *(Figure(name, "each", value, "ms") for value in latencies),
        ]

    def _finished(self, store: Path, jobs: int) -> None:
        rows = forge_postgres_rows.counts(store)
        if rows != {"waiting": 0, "finished": jobs}:
            self._problems.append(f"{OWN}: {jobs} jobs became {rows}")
        self._problems += [f"{OWN}: {wrong}" for wrong in forge_postgres_rows.discord(store)]

    def verify(self, bench: Bench) -> list[str]:
        return self._problems

    def judge(self, series: Series) -> list[Outcome]:
        """p50 is the median of the rounds; p99 needs all samples of all rounds together."""
        each = series.of(OWN, "each")
        cpu = targets.untargeted("postgres-idle-cpu", "Postgres: CPU of two idle workers", "%")
        return [
            Outcome(targets.POSTGRES_P50, series.median(OWN, "p50")),
            Outcome(
                targets.POSTGRES_P99,
                percentile(each, 0.99) if each else None,
                f"{len(each)} samples" if each else "",
            ),
            Outcome(targets.POSTGRES_MEMORY, series.median(OWN, "memory")),
            Outcome(cpu, series.median(OWN, "idle CPU")),
        ]


@contextmanager
def ours(
    bench: Bench, _: str, store: Path, stamps: Path
) -> Iterator[tuple[list[psutil.Process], Child]]:
    """Two times `forge worker`, as a user starts it on two machines."""
    app = "benchmarks.systems.forge_app:forge"
    arguments = ["forge_jobs", "worker", app, "--queues", f"bench:{SLOTS}"]
    environment = {"FORGE_URL": postgres.address(store), "FORGE_BENCH_STAMPS": str(stamps)}
    log = bench.home / "worker.log"
    with ExitStack() as stack:
        workers: list[Child] = []
        said = log.stat().st_size if log.exists() else 0
        for _number in range(WORKERS):
            workers.append(start_child(arguments, log, environment, speaks=False))
            stack.callback(workers[-1].stop)
        deadline = time.monotonic() + START_SECONDS
        while log.read_text()[said:].count("worker started") < WORKERS:
            if time.monotonic() > deadline:
                raise TimeoutError(f"forge worker: not up\n{workers[0].last_words()}")
            time.sleep(0.05)
        yield [one for worker in workers for one in family(worker.process.pid)], workers[0]


@contextmanager
def theirs(
    bench: Bench, system: str, store: Path, stamps: Path
) -> Iterator[tuple[list[psutil.Process], Child]]:
    """Two worker processes of a peer."""
    stop = Path(str(stamps) + STOP_SUFFIX)
    with ExitStack() as stack:
        agents = [
            stack.enter_context(bench.agent(system, store, LEVEL)) for _number in range(WORKERS)
        ]
        for agent in agents:
            agent.send("listen", stamps=str(stamps))
            agent.event("up")
        time.sleep(1.0)
        try:
            yield [psutil.Process(agent.pid) for agent in agents], agents[0].child
        finally:
            stop.touch()
            for agent in agents:
                agent.answer()
