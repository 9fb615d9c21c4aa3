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

# How many victims may be killed while they still start.
UNBORN_SHARE = 0.2
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
    every_s: float = 0.9
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
    dying: bool = False
    journal: Path | None = None
    journal_at_start: int = 0


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
        self._blacked_out = False
        self._said_at = 0.0
        self._began_at = now()
        self._reader: sqlite3.Connection | None = None
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
        deadline = now() + 60 + 6 * self.options.kills * self.options.every_s
        while not self._all_at_work():
            self._look_after()
            if now() > deadline:
                raise StormFailed(f"the actors did not come up:\n{self._last_words()}")
            time.sleep(0.05)
        next_kill = now()
        while self._kills < self.options.kills or not self._producers_finished():
            self._look_after()
            if self._kills < self.options.kills and now() >= next_kill:
                self._kill_some()
                next_kill = now() + self._chance.uniform(0, 2 * self.options.every_s)
            if now() > deadline:
                raise StormFailed("the storm did not come to its end in time")
            time.sleep(0.01)

    def _calm(self) -> None:
        """No more faults: all workers come back and everything is done within the bound."""
        deadline = now() + self.options.drain_s
        while self._unfinished() or len(self._registered(before_s=0)) < len(self.workers):
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
                actor.journal_at_start = _size(actor.journal)
                actor.process = subprocess.Popen(
                    actor.command, cwd=ROOT, env=self._environment,
                    stdout=self._log, stderr=self._log, stdin=subprocess.DEVNULL,
                )  # fmt: skip
        if now() - self._said_at >= 1:
            self._said_at = now()
            self._say(self._progress())

    def _ended(self, actor: Actor, status: int) -> None:
        actor.process, actor.dying = None, False
        if status == -signal.SIGKILL:
            actor.start_at = now() + self._chance.uniform(0, 0.3)
        elif status == 0 and actor in self.producers:
            actor.finished = True
        else:
            raise StormFailed(f"{actor.name} ended by itself with {status}:\n{self._last_words()}")

    def _kill_some(self) -> None:
        """One victim at a random instant of its life; in the middle of the storm all workers.

        A promise about the time until a job starts again needs somebody to start it, so a single
        worker is only killed while another one has been up for longer than a lease.
        """
        if self._kills >= self.options.kills // 2 and not self._blacked_out:
            self._blacked_out = True
            for actor in self._living(self.workers):
                self._kill(actor, blackout=True)
            return
        awake = self._registered(before_s=0)
        settled = self._registered(before_s=self.options.lease_s + 0.5)
        unborn = self._chance.random() < UNBORN_SHARE
        victims = [actor for actor in self._living(self.producers) if unborn or self._spoke(actor)]
        for actor in self._living(self.workers):
            assert actor.process is not None
            pid = actor.process.pid
            if settled - {pid} and (unborn or pid in awake):
                victims.append(actor)
        if victims:
            self._kill(self._chance.choice(victims), blackout=False)

    def _living(self, actors: "list[Actor]") -> "list[Actor]":
        return [actor for actor in actors if actor.process is not None and not actor.dying]

    def _kill(self, victim: Actor, *, blackout: bool) -> None:
        assert victim.process is not None
        pid = victim.process.pid
        self._history.write("kill", victim=pid, actor=victim.name, blackout=blackout)
        victim.process.kill()
        victim.dying = True
        self._kills += 1

    def _registered(self, *, before_s: float) -> set[int]:
        """Workers that are up, and have been for that long."""
        ours = {
            actor.process.pid for actor in self._living(self.workers) if actor.process is not None
        }
        latest = int((time.time() - before_s) * 1_000_000)
        rows = self._query(f"SELECT pid FROM forge_processes WHERE started_at <= {latest}")
        return ours & {int(str(pid)) for (pid,) in rows}

    def _spoke(self, producer: Actor) -> bool:
        """Whether it has enqueued something in its present life."""
        return _size(producer.journal) > producer.journal_at_start + 1

    def _all_at_work(self) -> bool:
        busy = all(map(self._spoke, self.producers))
        return busy and len(self._registered(before_s=0)) == len(self.workers)

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


def _size(path: Path | None) -> int:
    return path.stat().st_size if path is not None and path.exists() else 0
