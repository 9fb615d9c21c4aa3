"""Starts the actors of a storm, lets faults happen to them, lets the queue run dry."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from rigs.storms import databases
from rigs.storms.checks import Evidence
from rigs.storms.databases import Database
from rigs.storms.history import History, now, read_all

ROOT = Path(__file__).resolve().parent.parent.parent
GRACE_S = 5.0
TERMINAL = ("done", "dead", "cancelled")

Say = Callable[[str], None]


@dataclass(frozen=True)
class Options:
    """How large a storm. ``flow_s``: over how long the producers spread their jobs."""

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


Chosen = TypeVar("Chosen", bound=Options)


class StormFailed(Exception):
    """The storm could not be carried through, or broke a promise; that is a finding, too."""


@dataclass
class Actor:
    """A place for a worker or a producer; whoever is killed has a successor."""

    name: str
    command: list[str]
    process: "subprocess.Popen[bytes] | None" = None
    start_at: float = 0.0
    finished: bool = False
    dying: bool = False
    journal: Path | None = None
    journal_at_start: int = 0


class Rig(Generic[Chosen]):
    """One storm in one folder. What happens to the actors is said by ``rage``."""

    def __init__(self, options: Chosen, folder: Path, database: Database, say: Say) -> None:
        self.options = options
        self.folder = folder
        self.database = database
        self.say = say
        self.chance = random.Random(options.seed)
        self.history = History(folder / "killer.jsonl")
        self._log = (folder / "actors.log").open("ab")
        self._environment = {
            **os.environ,
            "STORM_FOLDER": str(folder),
            "STORM_URL": database.url,
        }
        self.faults = 0
        self._said_at = 0.0
        self._began_at = now()
        self.workers = [
            Actor(f"worker {n}", self._worker_command()) for n in range(options.workers)
        ]
        self.producers = [
            Actor(
                f"producer {n}", self._producer_command(n), journal=folder / f"producer-p{n}.jsonl"
            )
            for n in range(options.producers)
        ]

    def _worker_command(self) -> list[str]:
        options = self.options
        return [
            sys.executable, "-m", "forge_jobs.cli.worker_child", "rigs.storms.jobs:forge",
            "--queues", f"storm:{options.slots},storm_cpu:{options.workers}",
            "--lease", str(options.lease_s), "--grace", str(GRACE_S),
        ]  # fmt: skip

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

    def rage(self) -> None:
        """The faults, until all are spent and the producers are through."""
        raise NotImplementedError

    def run(self) -> Evidence:
        """The whole storm; the evidence it leaves. Ends every process it started."""
        try:
            self.rage()
            self.calm()
            self.after()
            self._stop_workers()
        finally:
            for actor in (*self.workers, *self.producers):
                if actor.process is not None and actor.process.poll() is None:
                    actor.process.kill()
                    actor.process.wait()
            self._log.close()
        return self.evidence()

    def wake(self, seconds: float) -> None:
        """Start everybody and wait until all are at work."""
        deadline = now() + seconds
        while not self._all_at_work():
            self.look_after()
            if now() > deadline:
                raise StormFailed(f"the actors did not come up:\n{self.last_words()}")
            time.sleep(0.05)

    def calm(self) -> None:
        """No more faults: all workers come back and everything is done within the bound."""
        deadline = now() + self.options.drain_s
        while self._unfinished() or len(self.registered(before_s=0)) < len(self.workers):
            self.look_after()
            if now() > deadline:
                self.say(f"still unfinished after {self.options.drain_s:.0f} s of calm")
                return
            time.sleep(0.1)

    def after(self) -> None:
        """What is looked at while the workers are up and have nothing to do."""

    def look_after(self) -> None:
        """Notice who ended, start successors, say how things stand once a second."""
        for actor in (*self.workers, *self.producers):
            if actor.finished:
                continue
            if actor.process is not None and actor.process.poll() is not None:
                self._ended(actor, actor.process.returncode)
            if actor.process is None and not actor.finished and now() >= actor.start_at:
                actor.journal_at_start = _size(actor.journal)
                actor.process = subprocess.Popen(
                    actor.command, cwd=ROOT, env=self._environment,
                    stdout=self._log, stderr=self._log, stdin=subprocess.DEVNULL,
                )  # fmt: skip
        if now() - self._said_at >= 1:
            self._said_at = now()
            self.say(self._progress())

    def _ended(self, actor: Actor, status: int) -> None:
        killed = status == -signal.SIGKILL and actor.dying
        actor.process, actor.dying = None, False
        if killed:
            actor.start_at = now() + self.chance.uniform(0, 0.3)
        elif status == 0 and actor in self.producers:
            actor.finished = True
        else:
            raise StormFailed(f"{actor.name} ended by itself with {status}:\n{self.last_words()}")

    def living(self, actors: "list[Actor]") -> "list[Actor]":
        """Those that run and were not killed."""
        return [actor for actor in actors if actor.process is not None and not actor.dying]

    def worker_pids(self) -> set[int]:
        """The numbers of the workers that run."""
        return {
            actor.process.pid for actor in self.living(self.workers) if actor.process is not None
        }

    def registered(self, *, before_s: float) -> set[int]:
        """Workers that are up, and have been for that long."""
        return self.worker_pids() & databases.pids(self.database, before_s=before_s)

    def spoke(self, producer: Actor) -> bool:
        """Whether it has enqueued something in its present life."""
        return _size(producer.journal) > producer.journal_at_start + 1

    def producers_finished(self) -> bool:
        return all(actor.finished for actor in self.producers)

    def last_words(self) -> str:
        """The end of what the actors printed."""
        self._log.flush()
        return (self.folder / "actors.log").read_text(errors="replace")[-3_000:]

    def evidence(self) -> Evidence:
        """What the judges get."""
        return Evidence(
            read_all(self.folder),
            databases.rows(self.database),
            databases.done_counted(self.database),
            self.options.lease_s,
        )

    def _all_at_work(self) -> bool:
        if not all(map(self.spoke, self.producers)):
            return False
        # A worker registers on its way up; whoever loses the server then may well give up.
        self._log.flush()
        said = (self.folder / "actors.log").read_text(errors="replace").count("worker started")
        return said >= len(self.workers) == len(self.registered(before_s=0))

    def _stop_workers(self) -> None:
        running = [actor.process for actor in self.workers if actor.process is not None]
        for process in running:
            process.terminate()
        for process in running:
            try:
                status = process.wait(GRACE_S + 10)
            except subprocess.TimeoutExpired:
                raise StormFailed("a worker did not stop") from None
            if status != 0:
                raise StormFailed(f"a worker stopped with {status}:\n{self.last_words()}")

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
            f"{now() - self._began_at:5.0f} s   {stored:,} of {self.options.jobs:,} enqueued   "
            f"{done:,} done   {stored - done:,} waiting or running   {self.faults} faults"
        )


def _size(path: Path | None) -> int:
    return path.stat().st_size if path is not None and path.exists() else 0
