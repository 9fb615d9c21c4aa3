"""How soon `forge worker` runs its first job; how long `forge jobs list` takes, on an empty store.

Both are started as a user starts them, on SQLite with the default level, with compiled bytecode as
an installed package has it: the first start of each compiles and is not counted. The worker's time
runs from the start of its process to the first line of the handler of a job that waits already, so
it holds the parent, the child, the application's import, the opening of the store and the first
claim. The other time is that of the whole process.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from benchmarks import targets
from benchmarks.bench import OURS, Bench
from benchmarks.figures import Figure, Outcome, Series, paired
from benchmarks.measures.idle import LEVEL, OWN, START_SECONDS, start_worker, wait_for_lines
from benchmarks.processes import ROOT, AgentError, search_path
from benchmarks.systems import forge_rows

STARTS = 4
WORKER, LIST = "first job", "jobs list"


class Start:
    name = "start"
    title = "start of a worker and of a command"

    def __init__(self) -> None:
        self._problems: list[str] = []

    def setup(self, bench: Bench) -> None:
        """Let both compile what they import."""
        if bench.has(OURS):
            self._worker(bench)
            self._list(bench)

    def round(self, bench: Bench, number: int) -> list[Figure]:
        figures = list[Figure]()
        if not bench.has(OURS):
            return figures
        for _ in range(bench.size.jobs(STARTS, 1)):
            figures.append(Figure(OWN, WORKER, self._worker(bench), "s"))
            figures.append(Figure(OWN, LIST, self._list(bench), "s"))
        return figures

    def _worker(self, bench: Bench) -> float:
        """One job waits in a store; start a worker until it runs."""
        with bench.store() as store:
            stamps = store / "stamps"
            stamps.touch()
            with bench.agent(OURS, store, LEVEL) as producer:
                producer.ask("seed", jobs=1, kind="start_stamp")
            began = time.monotonic()
            worker = start_worker(bench, store, stamps, compiled(bench))
            try:
                wait_for_lines(stamps, 1, START_SECONDS, worker)
                started = float(stamps.read_text().split()[0])
                forge_rows.await_empty(store, START_SECONDS)
            finally:
                worker.stop()
            rows = forge_rows.counts(store)
            if rows != {"waiting": 0, "finished": 1}:
                self._problems.append(f"{OWN}: 1 job became {rows}")
        return started - began

    def _list(self, bench: Bench) -> float:
        with bench.store() as store:
            run_command(bench, store, "db", "create")
            began = time.monotonic()
            said = run_command(bench, store, "jobs", "list")
            took = time.monotonic() - began
            if "no jobs" not in said.lower():
                self._problems.append(f"{OWN}: jobs list of an empty store said {said!r}")
        return took

    def verify(self, bench: Bench) -> list[str]:
        return self._problems

    def judge(self, series: Series) -> list[Outcome]:
        found = ((targets.START_WORKER, WORKER), (targets.START_LIST, LIST))
        return [
            paired(target, values, f"{len(values)} starts" if values else "")
            for target, name in found
            for values in [series.of(OWN, name)]
        ]


def compiled(bench: Bench) -> dict[str, str]:
    """The environment of a process that keeps its bytecode, in a folder that goes away."""
    return {
        "PYTHONDONTWRITEBYTECODE": "",
        "PYTHONPYCACHEPREFIX": str(bench.home / "bytecode"),
    }


def run_command(bench: Bench, store: Path, *arguments: str) -> str:
    """`forge …` on that store, exactly as a user runs it; what it printed."""
    environment = {
        **os.environ,
        **compiled(bench),
        "PYTHONPATH": search_path(),
        "FORGE_URL": forge_rows.url(store, LEVEL),
    }
    done = subprocess.run(
        [sys.executable, "-m", "forge_jobs", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=START_SECONDS,
    )
    if done.returncode:
        raise AgentError(f"forge {' '.join(arguments)}: {done.stderr}")
    return done.stdout
