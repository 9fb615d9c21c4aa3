"""An idle worker: how soon a job of another process starts, and what waiting costs.

Ours is the worker that `forge worker` starts, with 100 slots and the default level; a second
process enqueues one job at a time with uneven pauses around 0.1 s. Latency runs from just before
the enqueue call to the first line of the handler, so it holds the producer's commit too; "after
call" leaves the call out. Huey and a litequeue loop are run beside it, both polling every 5 ms,
with what that costs in CPU; they have no target here.

Before that, all slots are used once by jobs that await, and then the processor time of the worker
is read over some quiet seconds and its memory (RSS) once. `forge worker` has a small parent: CPU
counts both, the target's memory is that of the worker, and the parent's is beside it.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import psutil

from benchmarks import targets
from benchmarks.bench import OURS, Bench, in_turn
from benchmarks.figures import Figure, Outcome, Series, percentile
from benchmarks.processes import Child, start_child
from benchmarks.systems import forge_rows

PEERS = {"huey": "full", "litequeue": "normal"}
POLL_SECONDS = 0.005
GAP_SECONDS, QUICK_GAP_SECONDS = 0.1, 0.03
START_SECONDS = 30.0
OWN = "ours"
LEVEL = "default"
SLOTS = 100


class Idle:
    name = "idle"
    title = "an idle worker: latency, CPU, memory"

    def __init__(self) -> None:
        self._problems: list[str] = []

    def setup(self, bench: Bench) -> None:
        """Nothing to prepare: each round starts fresh workers."""

    def round(self, bench: Bench, number: int) -> list[Figure]:
        figures = list[Figure]()
        present = [name for name in (OURS, *PEERS) if bench.has(name)]
        for name in in_turn(present, number):
            figures += self._ours(bench) if name == OURS else self._peer(bench, name)
        return figures

    def _peer(self, bench: Bench, name: str) -> list[Figure]:
        jobs, level = bench.size.jobs(60, 8), PEERS[name]
        with (
            bench.store() as store,
            bench.agent(name, store, level) as worker,
            bench.agent(name, store, level) as producer,
        ):
            worker.send("listen", poll=POLL_SECONDS, jobs=jobs)
            worker.event("up")
            figures = resting(bench, name, [psutil.Process(worker.pid)], 3.0)
            calls = producer.ask("trickle", jobs=jobs, gap=gap(bench))["calls"]
            latencies = worker.answer()["milliseconds"]
        return figures + self._arrived(name, jobs, latencies, calls)

    def _ours(self, bench: Bench) -> list[Figure]:
        jobs = bench.size.jobs(60, 8)
        with bench.store() as store:
            stamps = store / "stamps"
            stamps.touch()
            with bench.agent(OURS, store, LEVEL) as producer:
                worker = start_worker(bench, store, stamps)
                try:
                    producer.ask("trickle", jobs=1, gap=0.0)
                    wait_for_lines(stamps, 1, START_SECONDS, worker)
                    producer.ask("seed", jobs=2 * SLOTS, kind="wait")
                    forge_rows.await_empty(store, START_SECONDS)
                    figures = resting(bench, OWN, family(worker.process.pid), 8.0)
                    calls = producer.ask("trickle", jobs=jobs, gap=gap(bench))["calls"]
                    wait_for_lines(stamps, jobs + 1, START_SECONDS, worker)
                finally:
                    worker.stop()
            latencies = [float(line) for line in stamps.read_text().split()][1:]
            self._finished(store, jobs + 1 + 2 * SLOTS)
        return figures + self._arrived(OWN, jobs, latencies, calls)

    def _finished(self, store: Path, jobs: int) -> None:
        rows = forge_rows.counts(store)
        if rows != {"waiting": 0, "finished": jobs}:
            self._problems.append(f"{OWN}: {jobs} jobs became {rows}")
        self._problems += [f"{OWN}: {wrong}" for wrong in forge_rows.discord(store)]

    def _arrived(
        self, name: str, jobs: int, latencies: list[float], calls: list[float]
    ) -> list[Figure]:
        if len(latencies) != jobs:
            self._problems.append(f"{name}: {len(latencies)} of {jobs} trickled jobs started")
            return []
        after = [took - call for took, call in zip(latencies, calls, strict=True)]
        return [
            Figure(name, "p50", percentile(latencies, 0.5), "ms"),
            Figure(name, "p99", percentile(latencies, 0.99), "ms"),
            Figure(name, "call p50", percentile(calls, 0.5), "ms"),
            Figure(name, "after call p50", percentile(after, 0.5), "ms"),
            *(Figure(name, "each", value, "ms") for value in latencies),
        ]

    def verify(self, bench: Bench) -> list[str]:
        return self._problems

    def judge(self, series: Series) -> list[Outcome]:
        """p50 is the median of the rounds; p99 needs all samples of all rounds together."""
        each = series.of(OWN, "each")
        return [
            Outcome(targets.IDLE_P50, series.median(OWN, "p50")),
            Outcome(
                targets.IDLE_P99,
                percentile(each, 0.99) if each else None,
                f"{len(each)} samples" if each else "",
            ),
            Outcome(targets.IDLE_CPU, series.median(OWN, "idle CPU")),
            Outcome(targets.MEMORY, series.median(OWN, "memory")),
        ]


def gap(bench: Bench) -> float:
    return QUICK_GAP_SECONDS if bench.size.quick else GAP_SECONDS


def start_worker(
    bench: Bench, store: Path, stamps: Path, environment: dict[str, str] | None = None
) -> Child:
    """`forge worker`, exactly as a user starts it."""
    app = "benchmarks.systems.forge_app:forge"
    arguments = ["forge_jobs", "worker", app, "--queues", f"bench:{SLOTS}"]
    settings = {
        "FORGE_URL": forge_rows.url(store, LEVEL),
        "FORGE_BENCH_STAMPS": str(stamps),
        **(environment or {}),
    }
    return start_child(arguments, bench.home / "worker.log", settings, speaks=False)


def family(pid: int) -> list[psutil.Process]:
    parent = psutil.Process(pid)
    return [parent, *parent.children(recursive=True)]


def resting(
    bench: Bench, name: str, processes: list[psutil.Process], seconds: float
) -> list[Figure]:
    """CPU of all the processes over some quiet seconds; memory of the largest."""
    time.sleep(0.2 if bench.size.quick else 2.0)
    before, started = sum(map(spent, processes)), time.monotonic()
    time.sleep(0.5 if bench.size.quick else seconds)
    share = (sum(map(spent, processes)) - before) / (time.monotonic() - started) * 100
    *others, largest = sorted(process.memory_info().rss for process in processes)
    figures = [
        Figure(name, "idle CPU", share, "%"),
        Figure(name, "memory", largest / 1e6, "MB"),
    ]
    if others:
        figures.append(Figure(name, "memory of parent", sum(others) / 1e6, "MB"))
    return figures


def spent(process: psutil.Process) -> float:
    """Processor seconds so far: to the nanosecond where the system keeps them, else by ticks."""
    try:
        tasks = list(Path(f"/proc/{process.pid}/task").iterdir())
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9
    except (OSError, IndexError, ValueError):
        times: Any = process.cpu_times()
        return times.user + times.system


def wait_for_lines(stamps: Path, lines: int, seconds: float, worker: Child) -> None:
    deadline = time.monotonic() + seconds
    while stamps.read_text().count("\n") < lines:
        if time.monotonic() > deadline or worker.process.poll() is not None:
            raise TimeoutError(f"forge worker: jobs did not start\n{worker.last_words()}")
        time.sleep(0.02)
