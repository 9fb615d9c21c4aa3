"""Starts the processes of a storm, injects faults, then drains the queue."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from rigs.storms import databases
from rigs.storms.checks import Evidence
from rigs.storms.databases import Database
from rigs.storms.front_door import GRACE_S, ROOT, children_of, kill_all, worker_command
from rigs.storms.history import History, now, read_all

TERMINAL = ("done", "dead", "cancelled")

Log = Callable[[str], None]


# How a worker exits after SIGTERM: in order, or by the signal itself while its interpreter starts,
# before it has a handler and before it claims.
STOPPED = (0, -signal.SIGTERM)


@dataclass(frozen=True)
class Options:
    """The size of a storm. ``flow_s``: the time over which producers spread their jobs."""

    jobs: int = 20_000
    workers: int = 4
    producers: int = 2
    lease_s: float = 2.0
    seed: int = 0
    slots: int = 40
    drain_s: float = 120.0

    @property
    def flow_s(self) -> float:
        return 0.0


OptionsT = TypeVar("OptionsT", bound=Options)


class StormFailed(Exception):
    """The storm could not be completed, or a check failed."""


@dataclass
class Actor:
    """A worker or a producer; a killed process is replaced by a new one."""

    name: str
    command: list[str]
    process: "subprocess.Popen[bytes] | None" = None
    start_at: float = 0.0
    finished: bool = False
    killed: bool = False
    history_file: Path | None = None
    history_size_at_start: int = 0
    environment: dict[str, str] = field(default_factory=dict[str, str])


class Rig(Generic[OptionsT]):
    """One storm in one folder. Subclasses implement ``inject_faults``."""

    def __init__(self, options: OptionsT, folder: Path, database: Database, log: Log) -> None:
        self.options = options
        self.folder = folder
        self.database = database
        self.log = log
        self.rng = random.Random(options.seed)
        self.history = History(folder / "killer.jsonl")
        self._log_file = (folder / "actors.log").open("ab")
        self._environment = {
            **os.environ,
            "STORM_FOLDER": str(folder),
            "STORM_URL": database.url,
        }
        self.faults = 0
        self._logged_at = 0.0
        self._first_seen: dict[int, float] = {}
        self._started_at = now()
        self.workers = [
            Actor(f"worker {n}", self._worker_command()) for n in range(options.workers)
        ]
        self.producers = [
            Actor(
                f"producer {n}",
                self._producer_command(n),
                history_file=folder / f"producer-p{n}.jsonl",
            )
            for n in range(options.producers)
        ]

    def _worker_command(self) -> list[str]:
        options = self.options
        return worker_command(
            "rigs.storms.jobs:forge",
            f"storm:{options.slots},storm_cpu:{options.workers}",
            lease_s=options.lease_s,
        )

    def _producer_command(self, number: int) -> list[str]:
        options = self.options
        share = options.jobs // options.producers
        if number == 0:
            share += options.jobs % options.producers
        return [
            sys.executable, "-m", "rigs.storms.producer",
            f"p{number}", str(share), str(options.seed), str(options.flow_s),
        ]  # fmt: skip

    # ------------------------------------------------------------------------------- the storm

    def inject_faults(self) -> None:
        """Inject all faults; return when the producers have finished."""
        raise NotImplementedError

    def run(self) -> Evidence:
        """Run the storm and return its evidence. Ends every process it started."""
        try:
            self.inject_faults()
            self.drain()
            self.check_idle_workers()
            self._stop_workers()
        finally:
            for actor in (*self.workers, *self.producers):
                if actor.process is not None and actor.process.poll() is None:
                    kill_all(actor.process)
                    actor.process.wait()
            self._log_file.close()
        return self.evidence()

    def start_actors(self, seconds: float) -> None:
        """Start all processes and wait until they work."""
        deadline = now() + seconds
        while not self._all_working():
            self.supervise()
            if now() > deadline:
                raise StormFailed(f"the processes did not start:\n{self.log_tail()}")
            time.sleep(0.05)

    def drain(self) -> None:
        """Without faults: wait until all workers are up and every job is terminal."""
        deadline = now() + self.options.drain_s
        while self._unfinished() or len(self.registered(before_s=0)) < len(self.workers):
            self.supervise()
            if now() > deadline:
                self.log(f"still unfinished {self.options.drain_s:.0f} s after the last fault")
                return
            time.sleep(0.1)

    def check_idle_workers(self) -> None:
        """Checks while the workers are up and idle; none by default."""

    def supervise(self) -> None:
        """Handle exited processes, start replacements, log the progress once a second."""
        for actor in (*self.workers, *self.producers):
            if actor.finished:
                continue
            if actor.process is not None and actor.process.poll() is not None:
                self._ended(actor, actor.process.returncode)
            if actor.process is None and not actor.finished and now() >= actor.start_at:
                actor.history_size_at_start = _size(actor.history_file)
                actor.process = subprocess.Popen(
                    actor.command, cwd=ROOT, env={**self._environment, **actor.environment},
                    stdout=self._log_file, stderr=self._log_file, stdin=subprocess.DEVNULL,
                )  # fmt: skip
        if now() - self._logged_at >= 1:
            self._logged_at = now()
            self.log(self._progress())

    def _ended(self, actor: Actor, status: int) -> None:
        killed = status == -signal.SIGKILL and actor.killed
        actor.process, actor.killed = None, False
        if killed:
            actor.start_at = now() + self.rng.uniform(0, 0.3)
        elif status == 0 and actor in self.producers:
            actor.finished = True
        else:
            raise StormFailed(f"{actor.name} exited with {status}:\n{self.log_tail()}")

    def running_actors(self, actors: "list[Actor]") -> "list[Actor]":
        """The processes that run and were not killed."""
        return [actor for actor in actors if actor.process is not None and not actor.killed]

    def worker_pids(self) -> set[int]:
        """The pids of the running workers: of the child processes, which register."""
        return {
            pid for actor in self.running_actors(self.workers) for pid in children_of(actor.process)
        }

    def registered(self, *, before_s: float) -> set[int]:
        """The pids of workers that were registered at least ``before_s`` ago, by the clock of this
        process: those of workers may be wrong."""
        present = self.worker_pids() & databases.pids(self.database)
        for pid in present:
            self._first_seen.setdefault(pid, now())
        return {pid for pid in present if self._first_seen[pid] <= now() - before_s}

    def has_enqueued(self, producer: Actor) -> bool:
        """Whether the current producer process has enqueued something."""
        return _size(producer.history_file) > producer.history_size_at_start + 1

    def producers_finished(self) -> bool:
        return all(actor.finished for actor in self.producers)

    def log_tail(self) -> str:
        """The end of the processes' log."""
        self._log_file.flush()
        return (self.folder / "actors.log").read_text(errors="replace")[-3_000:]

    def evidence(self) -> Evidence:
        """The input of the checks."""
        return Evidence(
            read_all(self.folder),
            databases.rows(self.database),
            databases.done_counted(self.database),
            self.options.lease_s,
        )

    def _all_working(self) -> bool:
        if not all(map(self.has_enqueued, self.producers)):
            return False
        # A worker registers during startup, and may exit if it loses the server before its end.
        self._log_file.flush()
        started = (self.folder / "actors.log").read_text(errors="replace").count("worker started")
        return started >= len(self.workers) == len(self.registered(before_s=0))

    def _stop_workers(self) -> None:
        running = [actor.process for actor in self.workers if actor.process is not None]
        for process in running:
            process.terminate()
        for process in running:
            try:
                status = process.wait(GRACE_S + 10)
            except subprocess.TimeoutExpired:
                raise StormFailed("a worker did not stop") from None
            if status not in STOPPED:
                raise StormFailed(f"a worker stopped with {status}:\n{self.log_tail()}")

    def _unfinished(self) -> int:
        states = databases.states(self.database)
        if not states:
            return self.options.jobs
        return sum(count for status, count in states.items() if status not in TERMINAL)

    def _progress(self) -> str:
        states = databases.states(self.database)
        done = states.get("done", 0)
        stored = sum(states.values())
        return (
            f"{now() - self._started_at:5.0f} s   {stored:,} of {self.options.jobs:,} enqueued   "
            f"{done:,} done   {stored - done:,} waiting or running   {self.faults} faults"
        )


def _size(path: Path | None) -> int:
    return path.stat().st_size if path is not None and path.exists() else 0
