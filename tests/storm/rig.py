"""Starts the actors, kills them at random instants, restarts them, and lets the queue run dry."""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.storm.checks import Evidence, Row
from tests.storm.history import History, now, read_all

ROOT = Path(__file__).resolve().parent.parent.parent
GRACE_S = 5.0


@dataclass(frozen=True)
class Options:
    """How large a storm."""

    jobs: int = 20_000
    kills: int = 100
    workers: int = 4
    producers: int = 2
    lease_s: float = 2.0
    seed: int = 0
    slots: int = 40
    every_s: float = 0.6
    drain_s: float = 120.0


class StormFailed(Exception):
    """The storm could not be carried through; that is a finding, too."""


@dataclass
class Actor:
    """A place for a worker or a producer; whoever is killed has a successor."""

    name: str
    command: list[str]
    process: "subprocess.Popen[bytes] | None" = None
    start_at: float = 0.0
    finished: bool = False


class Rig:
    """One storm in one folder."""

    def __init__(self, options: Options, folder: Path, say: Callable[[str], None]) -> None:
        self.options = options
        self.folder = folder
        self.database = folder / "storm.db"
        self._say = say
        self._chance = random.Random(options.seed)
        self._history = History(folder / "killer.jsonl")
        self._log = (folder / "actors.log").open("ab")
        self._environment = {
            **os.environ,
            "STORM_FOLDER": str(folder),
            "STORM_URL": f"sqlite:///{self.database}",
        }
        self._kills = 0
        self._said_at = 0.0
        self._began_at = now()
        self._reader: sqlite3.Connection | None = None
        self.workers = [
            Actor(f"worker {n}", self._worker_command()) for n in range(options.workers)
        ]
        self.producers = [
            Actor(f"producer {n}", self._producer_command(n)) for n in range(options.producers)
        ]

    def _worker_command(self) -> list[str]:
        options = self.options
        return [
            sys.executable, "-m", "forge_jobs.cli.worker_child", "tests.storm.jobs:forge",
            "--queues", f"storm:{options.slots},storm_cpu:{options.workers}",
            "--lease", str(options.lease_s), "--grace", str(GRACE_S),
        ]  # fmt: skip

    def _producer_command(self, number: int) -> list[str]:
        options = self.options
        share = options.jobs // options.producers
        if number == 0:
            share += options.jobs % options.producers
        seconds = options.kills * options.every_s
        return [
            sys.executable, "-m", "tests.storm.producer",
            f"p{number}", str(share), str(options.seed), str(seconds),
        ]  # fmt: skip

    # ------------------------------------------------------------------------------- the storm

    def run(self) -> Evidence:
        """The whole storm; the evidence it leaves. Ends every process it started."""
        try:
            self._rage()
            self._calm()
            self._stop_workers()
        finally:
            for actor in (*self.workers, *self.producers):
                if actor.process is not None and actor.process.poll() is None:
                    actor.process.kill()
                    actor.process.wait()
            self._log.close()
        return self._evidence()

    def _rage(self) -> None:
        """Until all kills are spent and the producers are through."""
        next_kill = now() + 2 * self.options.every_s
        deadline = now() + 60 + 6 * self.options.kills * self.options.every_s
        while self._kills < self.options.kills or not self._producers_finished():
            self._look_after()
            if self._kills < self.options.kills and now() >= next_kill:
                self._kill_one()
                next_kill = now() + self._chance.uniform(0, 2 * self.options.every_s)
            if now() > deadline:
                raise StormFailed("the storm did not come to its end in time")
            time.sleep(0.01)

    def _calm(self) -> None:
        """No more faults: everything must be done within the bound."""
        deadline = now() + self.options.drain_s
        while self._unfinished():
            self._look_after()
            if now() > deadline:
                self._say(f"still unfinished after {self.options.drain_s:.0f} s of calm")
                return
            time.sleep(0.1)

    def _look_after(self) -> None:
        for actor in (*self.workers, *self.producers):
            if actor.finished:
                continue
            if actor.process is not None and actor.process.poll() is not None:
                self._ended(actor, actor.process.returncode)
            if actor.process is None and not actor.finished and now() >= actor.start_at:
                actor.process = subprocess.Popen(
                    actor.command, cwd=ROOT, env=self._environment,
                    stdout=self._log, stderr=self._log, stdin=subprocess.DEVNULL,
                )  # fmt: skip
        if now() - self._said_at >= 1:
            self._said_at = now()
            self._say(self._progress())

    def _ended(self, actor: Actor, status: int) -> None:
        actor.process = None
        if status == -signal.SIGKILL:
            actor.start_at = now() + self._chance.uniform(0, 0.3)
        elif status == 0 and actor in self.producers:
            actor.finished = True
        else:
            raise StormFailed(f"{actor.name} ended by itself with {status}:\n{self._last_words()}")

    def _kill_one(self) -> None:
        living = [
            actor
            for actor in (*self.workers, *self.producers)
            if actor.process is not None and actor.process.poll() is None
        ]
        if not living:
            return
        victim = self._chance.choice(living)
        assert victim.process is not None
        self._history.write("kill", victim=victim.process.pid, actor=victim.name)
        victim.process.kill()
        self._kills += 1

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
                raise StormFailed(f"a worker stopped with {status}:\n{self._last_words()}")

    # ------------------------------------------------------------------------------ the database

    def _query(self, sql: str) -> list[tuple[object, ...]]:
        if self._reader is None:
            if not self.database.exists():
                return []
            self._reader = sqlite3.connect(f"file:{self.database}?mode=ro", uri=True, timeout=10)
        try:
            return self._reader.execute(sql).fetchall()
        except sqlite3.OperationalError:
            # The first actor is still making the tables.
            return []

    def _states(self) -> dict[str, int]:
        rows = self._query("SELECT status, count(*) FROM forge_jobs GROUP BY status")
        return {str(status): int(str(count)) for status, count in rows}

    def _unfinished(self) -> int:
        states = self._states()
        return sum(count for status, count in states.items() if status not in TERMINAL)

    def _producers_finished(self) -> bool:
        return all(actor.finished for actor in self.producers)

    def _progress(self) -> str:
        states = self._states()
        done = states.get("done", 0)
        stored = sum(states.values())
        return (
            f"{now() - self._began_at:5.0f} s   {stored:,} of {self.options.jobs:,} enqueued   "
            f"{done:,} done   {stored - done:,} waiting or running   "
            f"{self._kills} of {self.options.kills} kills"
        )

    def _evidence(self) -> Evidence:
        rows = [
            Row(int(str(key)), json.loads(str(payload))["name"], str(status), int(str(attempts)),
                None if status != "running" else int(str(owner)))
            for key, payload, status, attempts, owner in self._query(
                "SELECT id, CAST(payload AS TEXT), status, attempts, owner FROM forge_jobs"
            )
        ]  # fmt: skip
        counted = self._query("SELECT coalesce(sum(done), 0) FROM forge_minutes")
        if self._reader is not None:
            self._reader.close()
        done_counted = int(str(counted[0][0])) if counted else 0
        return Evidence(read_all(self.folder), rows, done_counted, self.options.lease_s)

    def _last_words(self) -> str:
        self._log.flush()
        return (self.folder / "actors.log").read_text(errors="replace")[-3_000:]


TERMINAL = ("done", "dead", "cancelled")
