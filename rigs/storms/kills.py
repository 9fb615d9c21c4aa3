"""The kill storm: workers and producers are killed at random instants.

Meanwhile their clocks are wrong and step, handlers and producers fork, exceptions of signal
handlers interrupt calls, and on Postgres tables are analyzed beside an old snapshot.

No acknowledged job is lost, no claim is finished twice, every repeated run follows a kill, and
interrupted jobs start again within the lease and five seconds.
"""

import time
from dataclasses import dataclass
from pathlib import Path

from rigs.storms import counters
from rigs.storms.arguments import StormArguments, print_report
from rigs.storms.checks import check
from rigs.storms.databases import Database, SqliteDatabase, open_database
from rigs.storms.front_door import children_of, kill_all
from rigs.storms.history import now
from rigs.storms.rig import Actor, Log, Options, Rig, StormFailed
from rigs.storms.surroundings import Clocks, OldSnapshots

BACKENDS = ("sqlite", "postgres")
# The share of kills that may hit a process while it starts.
STARTING_SHARE = 0.2


@dataclass(frozen=True)
class KillOptions(Options):
    """The number of kills, and the mean seconds between two of them."""

    kills: int = 100
    every_s: float = 0.9

    @property
    def flow_s(self) -> float:
        return self.kills * self.every_s


QUICK = KillOptions(
    jobs=600, kills=12, workers=3, producers=2, lease_s=1.0, every_s=0.6, slots=30, drain_s=30
)


def storm(backend: str, arguments: StormArguments) -> bool:
    """Run the storm; True if every check passed."""
    options = arguments.apply(KillOptions(), QUICK)
    print(
        f"Kill storm on {backend}: {options.jobs:,} jobs, {options.kills} kills over "
        f"{options.workers} workers and {options.producers} producers, "
        f"lease {options.lease_s:g} s, seed {options.seed}.",
        flush=True,
    )
    try:
        with arguments.folder() as folder, open_database(backend, folder) as database:
            rig = KillRig(options, folder, database, lambda line: print(line, flush=True))
            report = check(rig.run())
            report.findings["counters unlike the rows"] = counters.differences(database.url)
            report.figures["steps of clocks"] = rig.clocks.steps
            if rig.snapshots is not None:
                report.figures["analyzed beside a snapshot"] = rig.snapshots.analyzed
            if not print_report(report):
                raise StormFailed("a check failed")
    except StormFailed as failure:
        print(f"FAILED: {failure}")
        return False
    return True


class KillRig(Rig[KillOptions]):
    """Kills workers and producers."""

    _blacked_out = False

    def __init__(self, options: KillOptions, folder: Path, database: Database, log: Log) -> None:
        super().__init__(options, folder, database, log)
        is_file = isinstance(database, SqliteDatabase)
        actors = (*self.workers, *self.producers)
        self.clocks = Clocks(folder, actors, self.rng, shared=is_file)
        self.snapshots = None if is_file else OldSnapshots(database)

    def inject_faults(self) -> None:
        limit_s = 60 + 6 * self.options.flow_s
        deadline = now() + limit_s
        self.start_actors(limit_s)
        next_kill = now()
        while self.faults < self.options.kills or not self.producers_finished():
            self.supervise()
            self.clocks.act()
            if self.snapshots is not None:
                self.snapshots.act()
            if self.faults < self.options.kills and now() >= next_kill:
                self._kill_some()
                next_kill = now() + self.rng.uniform(0, 2 * self.options.every_s)
            if now() > deadline:
                raise StormFailed("the storm did not finish in time")
            time.sleep(0.01)
        if self.snapshots is not None:
            self.snapshots.close()

    def _kill_some(self) -> None:
        """Kill one random process; in the middle of the storm, all workers at once.

        The bound on recovery time needs a live worker, so a single worker is only killed while
        another one has been registered for longer than a lease.
        """
        if self.faults >= self.options.kills // 2 and not self._blacked_out:
            self._blacked_out = True
            for actor in self.running_actors(self.workers):
                self._kill(actor, blackout=True)
            return
        up = self.registered(before_s=0)
        established = self.registered(before_s=self.options.lease_s + 0.5)
        while_starting = self.rng.random() < STARTING_SHARE
        victims = [
            actor
            for actor in self.running_actors(self.producers)
            if while_starting or self.has_enqueued(actor)
        ]
        for actor in self.running_actors(self.workers):
            own = set(children_of(actor.process))
            if established - own and (while_starting or own & up):
                victims.append(actor)
        if victims:
            self._kill(self.rng.choice(victims), blackout=False)

    def _kill(self, victim: Actor, *, blackout: bool) -> None:
        assert victim.process is not None
        for pid in children_of(victim.process) or [victim.process.pid]:
            self.history.write("kill", victim=pid, actor=victim.name, blackout=blackout)
        kill_all(victim.process)
        victim.killed = True
        self.faults += 1
