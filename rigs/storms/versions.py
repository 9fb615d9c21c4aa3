"""The versions storm: two versions of an application side by side, rolled back and forth.

Workers and producers of both versions share the queues. Workers are killed, or stopped and started
again in the other version; at least one of each version stays. No job is lost, none is dead of
arguments or a kind that a worker does not know, and each starts within seconds, although only one
version takes it.
"""

import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rigs.storms import counters
from rigs.storms.arguments import StormArguments, print_report
from rigs.storms.checks import Evidence, check
from rigs.storms.databases import Database, open_database
from rigs.storms.front_door import children_of, is_worker, worker_command
from rigs.storms.history import now
from rigs.storms.rig import STOPPED, Actor, Log, Options, Rig, StormFailed

BACKENDS = ("sqlite", "postgres")
VERSIONS = ("old", "new")
# From the acknowledgement to the first start. Kills and restarts of workers are part of it.
HANDED_ON_S = 15.0


@dataclass(frozen=True)
class VersionOptions(Options):
    """The number of kills and rolls, and the mean seconds between two of them."""

    kills: int = 60
    every_s: float = 1.5

    @property
    def flow_s(self) -> float:
        return self.kills * self.every_s


QUICK = VersionOptions(
    jobs=300, kills=6, workers=4, producers=2, lease_s=1.0, every_s=1.2, slots=20, drain_s=40
)


def storm(backend: str, arguments: StormArguments) -> bool:
    """Run the storm; True if every check passed."""
    options = arguments.apply(VersionOptions(jobs=6_000), QUICK)
    print(
        f"Versions storm on {backend}: {options.jobs:,} jobs of two versions, {options.kills} "
        f"kills and rolls of {options.workers} workers, lease {options.lease_s:g} s, "
        f"seed {options.seed}.",
        flush=True,
    )
    try:
        with arguments.folder() as folder, open_database(backend, folder) as database:
            rig = VersionRig(options, folder, database, lambda line: print(line, flush=True))
            evidence = rig.run()
            report = check(evidence)
            report.findings["handed on too slowly"] = list(slow_starts(evidence))
            report.findings["workers without a parent"] = [
                f"pid {pid} still runs" for pid in rig.orphaned if is_worker(pid)
            ]
            report.findings["counters unlike the rows"] = counters.differences(database.url)
            waits = sorted(_waits(evidence).values())
            report.figures["slowest first start"] = f"{waits[-1]:.2f} s" if waits else "–"
            report.figures["rolls"] = rig.rolls
            if not print_report(report):
                raise StormFailed("a check failed")
    except StormFailed as failure:
        print(f"FAILED: {failure}")
        return False
    return True


def slow_starts(evidence: Evidence) -> Iterator[str]:
    """Jobs whose first start came long after they were accepted."""
    for name, waited_s in _waits(evidence).items():
        if waited_s > HANDED_ON_S:
            yield f"{name} started {waited_s:.1f} s after it was accepted"


def _waits(evidence: Evidence) -> dict[str, float]:
    accepted = {
        name: entry["at"]
        for entry in evidence.entries
        if entry["op"] == "ok"
        for name in entry["names"]
    }
    waits: dict[str, float] = {}
    for entry in evidence.entries:
        if entry["op"] == "start" and entry["name"] in accepted:
            waits.setdefault(entry["name"], entry["at"] - accepted[entry["name"]])
    return waits


class VersionRig(Rig[VersionOptions]):
    """Kills workers, and rolls them to the other version."""

    def __init__(self, options: VersionOptions, folder: Path, database: Database, log: Log) -> None:
        super().__init__(options, folder, database, log)
        self.rolls = 0
        self.orphaned: list[int] = []
        self._rolling: set[str] = set()
        for number, actor in enumerate((*self.workers, *self.producers)):
            self._set_version(actor, VERSIONS[number % 2])

    def _worker_command(self) -> list[str]:
        options = self.options
        return worker_command(
            "rigs.storms.version_jobs:forge",
            f"versions:{options.slots},versions_cpu:{options.workers}",
            lease_s=options.lease_s,
        )

    def _producer_command(self, number: int) -> list[str]:
        options = self.options
        share = options.jobs // options.producers
        return [
            sys.executable, "-m", "rigs.storms.version_producer",
            f"p{number}", str(share), str(options.seed), str(options.flow_s),
        ]  # fmt: skip

    def inject_faults(self) -> None:
        limit_s = 60 + 6 * self.options.flow_s
        deadline = now() + limit_s
        self._start_workers_first(deadline)
        self.start_actors(limit_s)
        next_fault = now()
        while self.faults < self.options.kills or not self.producers_finished():
            self.supervise()
            if self.faults < self.options.kills and now() >= next_fault:
                self._disturb_one()
                next_fault = now() + self.rng.uniform(0, 2 * self.options.every_s)
            if now() > deadline:
                raise StormFailed("the storm did not finish in time")
            time.sleep(0.01)

    def _start_workers_first(self, deadline: float) -> None:
        # A value that only a worker to come would take is rightly dead at once.
        for producer in self.producers:
            producer.start_at = deadline
        while len(self.registered(before_s=0)) < len(self.workers):
            self.supervise()
            if now() > deadline:
                raise StormFailed(f"the workers did not start:\n{self.log_tail()}")
            time.sleep(0.05)
        for producer in self.producers:
            producer.start_at = 0.0

    def _disturb_one(self) -> None:
        """Kill or roll one process; another worker of its version has long been there."""
        established = self.registered(before_s=self.options.lease_s + 0.5)
        victims = [
            actor
            for actor in self.running_actors(self.workers)
            if any(
                set(children_of(other.process)) & established
                for other in self.running_actors(self.workers)
                if other is not actor and self._version(other) == self._version(actor)
            )
        ]
        victims += [each for each in self.running_actors(self.producers) if self.has_enqueued(each)]
        if not victims:
            return
        victim = self.rng.choice(victims)
        assert victim.process is not None
        self.faults += 1
        if victim in self.workers and self.rng.random() < 0.5:
            self._rolling.add(victim.name)
            victim.killed = True
            victim.process.send_signal(signal.SIGTERM)
            return
        self.orphaned += children_of(victim.process)
        for pid in (victim.process.pid, *children_of(victim.process)):
            self.history.write("kill", victim=pid, actor=victim.name, blackout=False)
        victim.killed = True
        victim.process.kill()

    def _ended(self, actor: Actor, status: int) -> None:
        if actor.name in self._rolling and status in STOPPED:
            self._rolling.discard(actor.name)
            self.rolls += 1
            actor.process, actor.killed = None, False
            self._set_version(actor, VERSIONS[1 - VERSIONS.index(self._version(actor))])
        else:
            super()._ended(actor, status)

    def _version(self, actor: Actor) -> str:
        return actor.environment["STORM_VERSION"]

    def _set_version(self, actor: Actor, version: str) -> None:
        actor.environment = {**actor.environment, "STORM_VERSION": version}
