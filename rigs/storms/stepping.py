"""The steps storm: workers are killed while workflows of ten steps run, sleep and wait for events.

Either the parent and its child are killed at one instant, or the child alone. Two versions of the
application run side by side: a worker whose parent was killed starts again in the other one. On
Postgres the clock of each process is wrong and steps; a SQLite file has the clock of its machine.

No workflow is lost, each is done with the right result, a function runs again only if its step was
open at a kill, and with ``tx=`` never. No wait misses its event because of a wrong deadline.
"""

import json
import os
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from forge_jobs import Forge
from rigs.storms import counters, databases
from rigs.storms.arguments import StormArguments, print_report
from rigs.storms.databases import Database, SqliteDatabase, open_database
from rigs.storms.front_door import children_of, kill_all, worker_command
from rigs.storms.history import now, read_all
from rigs.storms.rig import Actor, Log, Options, Rig, StormFailed
from rigs.storms.step_checks import StepEvidence, check
from rigs.storms.step_workload import PAYMENTS, STEPS, VERSIONS, expected
from rigs.storms.surroundings import Clocks

BACKENDS = ("sqlite", "postgres")
PAGE = 500


@dataclass(frozen=True)
class StepOptions(Options):
    """The number of kills, and the mean seconds between two of them; ``jobs`` are workflows."""

    jobs: int = 2_000
    producers: int = 1
    kills: int = 200
    every_s: float = 0.7

    @property
    def flow_s(self) -> float:
        return self.kills * self.every_s


QUICK = StepOptions(jobs=100, kills=8, workers=3, lease_s=2.0, every_s=0.7, slots=30, drain_s=60)


def storm(backend: str, arguments: StormArguments) -> bool:
    """Run the storm; True if every check passed."""
    options = arguments.apply(StepOptions(), QUICK)
    print(
        f"Steps storm on {backend}: {options.jobs:,} workflows of 10 steps, {options.kills} kills "
        f"of {options.workers} workers, lease {options.lease_s:g} s, seed {options.seed}.",
        flush=True,
    )
    try:
        with arguments.folder() as folder, open_database(backend, folder) as database:
            rig = StepRig(options, folder, database, lambda line: print(line, flush=True))
            rig.run()
            report = check(rig.step_evidence())
            report.figures["rolls"] = rig.rolls
            report.figures["steps of clocks"] = 0 if rig.clocks is None else rig.clocks.steps
            report.findings["counters unlike the rows"] = counters.differences(
                database.url, parking=True
            )
            if not print_report(report):
                raise StormFailed("a check failed")
    except StormFailed as failure:
        print(f"FAILED: {failure}")
        return False
    return True


class StepRig(Rig[StepOptions]):
    """Kills workers, rolls them to the other version and sets their clocks."""

    def __init__(self, options: StepOptions, folder: Path, database: Database, log: Log) -> None:
        super().__init__(options, folder, database, log)
        self.rolls = 0
        actors = (*self.workers, *self.producers)
        is_file = isinstance(database, SqliteDatabase)
        self.clocks = None if is_file else Clocks(folder, actors, self.rng, shared=False)
        for number, actor in enumerate(actors):
            _set_version(actor, VERSIONS[number % 2])

    def _worker_command(self) -> list[str]:
        options = self.options
        return worker_command(
            "rigs.storms.step_jobs:forge", f"storm:{options.slots}", lease_s=options.lease_s
        )

    def _producer_command(self, number: int) -> list[str]:
        options = self.options
        return [
            sys.executable, "-m", "rigs.storms.step_producer",
            f"p{number}", str(options.jobs), str(options.seed), str(options.kills),
        ]  # fmt: skip

    def inject_faults(self) -> None:
        limit_s = 60 + 6 * self.options.flow_s
        deadline = now() + limit_s
        self.start_actors(limit_s)
        next_kill = now()
        while self.faults < self.options.kills or not self.producers_finished():
            self.supervise()
            if self.clocks is not None:
                self.clocks.act()
            if self.faults < self.options.kills and now() >= next_kill:
                self._kill_one()
                next_kill = now() + self.rng.uniform(0, 2 * self.options.every_s)
            if now() > deadline:
                raise StormFailed("the storm did not finish in time")
            time.sleep(0.01)

    def step_evidence(self) -> StepEvidence:
        """The input of the checks."""
        entries = read_all(self.folder)
        found = databases.rows(self.database)
        ids = {one["names"][0]: one["ids"][0] for one in entries if one["op"] == "ok"}
        rows = self.database.query(f"SELECT name, step, count(*) FROM {PAYMENTS} GROUP BY 1, 2")
        return StepEvidence(
            entries,
            found,
            _results(self.database.url, ids),
            {name: expected(name) for name in ids},
            Counter({(str(name), int(str(step))): int(str(count)) for name, step, count in rows}),
            STEPS,
        )

    def _kill_one(self) -> None:
        """Kill a worker that is up, with or without its parent, while another one has been up for
        some time: a storm in which every worker is new makes no progress."""
        up = self.registered(before_s=0)
        established = self.registered(before_s=self.options.lease_s + 0.5)
        victims = [
            actor
            for actor in self.running_actors(self.workers)
            if up & (own := set(children_of(actor.process))) and established - own
        ]
        if victims:
            self._kill(self.rng.choice(victims))

    def _kill(self, victim: Actor) -> None:
        assert victim.process is not None
        children = children_of(victim.process)
        for pid in children:
            self.history.write("kill", victim=pid, actor=victim.name)
        if self.rng.random() < 0.5:
            kill_all(victim.process)
            victim.killed = True
            former = victim.environment["STORM_VERSION"]
            _set_version(victim, VERSIONS[1 - VERSIONS.index(former)])
            self.rolls += 1
        else:
            for pid in children:
                os.kill(pid, signal.SIGKILL)
        self.faults += 1


def _set_version(actor: Actor, version: str) -> None:
    """In this version it starts the next time."""
    actor.environment = {**actor.environment, "STORM_VERSION": version}


def _results(url: str, ids: dict[str, str]) -> dict[str, object]:
    """The stored results, by the name of the workflow."""
    results: dict[str, object] = {}
    names = list(ids)
    with Forge(url) as forge:
        for first in range(0, len(names), PAGE):
            page = names[first : first + PAGE]
            wanted = [ids[name] for name in page]
            peeks = forge.client.access.run(lambda store, wanted=wanted: store.jobs.peek(wanted))
            for name, peek in zip(page, peeks, strict=True):
                stored = None if peek is None else peek.result
                results[name] = None if stored is None else json.loads(stored)
    return results
