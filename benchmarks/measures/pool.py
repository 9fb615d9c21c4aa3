"""The same small Python program, kept warm by a pool or started anew for each job.

One slot, one child, jobs in one SQLite file, a real worker; the clock runs from the first ending
after a warm-up to the last. A process per job is `cmd_exec`, with its guard and all its checks, and
beside it without a bar: the bare program started by `subprocess`, without jobs and without a queue.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time

from benchmarks import targets
from benchmarks.bench import OURS, Bench, in_turn
from benchmarks.figures import Figure, Outcome, Series, ratio
from benchmarks.processes import ROOT, AgentError, start_child

CHILD = ROOT / "examples" / "children" / "resize.py"
PICTURE = {"width": 1600, "height": 1200, "to": 320}
REQUEST = json.dumps({"id": "1", "payload": PICTURE}) + "\n"
WARM = "one warm child"
EACH = "one process per job"
BARE = "subprocess alone"
LIMIT_S = 300.0


class Pool:
    name = "pool"
    title = "a Python program per job: kept warm, or started for each"

    def __init__(self) -> None:
        self._problems: list[str] = []

    def setup(self, bench: Bench) -> None:
        """Nothing outlives a round."""

    def round(self, bench: Bench, number: int) -> list[Figure]:
        if not bench.has(OURS):
            return []
        jobs = {
            WARM: bench.size.jobs(2_000, 100),
            EACH: bench.size.jobs(60, 5),
            BARE: bench.size.jobs(60, 5),
        }
        return [
            Figure(label, "jobs/s", self._rate(bench, label, jobs[label]), "/s")
            for label in in_turn(list(jobs), number)
        ]

    def verify(self, bench: Bench) -> list[str]:
        return self._problems

    def judge(self, series: Series) -> list[Outcome]:
        warm, each = series.median(WARM, "jobs/s"), series.best([EACH], "jobs/s")
        beside = targets.untargeted("pool-bare", "a warm Python child, to subprocess alone")
        return [
            ratio(targets.POOL, warm, each),
            ratio(beside, warm, series.best([BARE], "jobs/s")),
        ]

    def _rate(self, bench: Bench, label: str, jobs: int) -> float:
        if label == BARE:
            return bare(jobs)
        with bench.store() as store:
            arguments = ["benchmarks.measures.pool_worker", str(store), label, str(jobs)]
            child = start_child(arguments, bench.home / "pool.log", {})
            try:
                told, _ = child.process.communicate(timeout=LIMIT_S)
            except subprocess.TimeoutExpired:
                raise AgentError(f"{label}: not done within {LIMIT_S:.0f} s") from None
            finally:
                child.stop()
        if not told:
            raise AgentError(f"{label}: {child.last_words()}")
        answer = json.loads(told)
        if answer["done"] != jobs + 1:
            self._problems.append(f"{label}: {answer['done']} of {jobs + 1} jobs are done")
        return jobs / answer["seconds"]


def bare(jobs: int) -> float:
    """How many times a second the program can be started, asked and read."""
    began = time.perf_counter()
    for _ in range(jobs):
        subprocess.run(
            [sys.executable, str(CHILD)], input=REQUEST.encode(), stdout=subprocess.PIPE, check=True
        )
    return jobs / (time.perf_counter() - began)
