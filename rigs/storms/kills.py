"""The kill storm: workers and producers are killed at random instants of their lives.

Nothing acknowledged is lost, nothing is finished twice, no run is without an explanation, and what
a kill interrupted starts again within the lease and five seconds.
"""

import time
from dataclasses import dataclass

from rigs.storms import counters
from rigs.storms.checks import check
from rigs.storms.databases import open_database
from rigs.storms.history import now
from rigs.storms.order import Order, report
from rigs.storms.rig import Actor, Options, Rig, StormFailed

BACKENDS = ("sqlite", "postgres")
# How many victims may be killed while they still start.
UNBORN_SHARE = 0.2


@dataclass(frozen=True)
class KillOptions(Options):
    """How many kills, and how many seconds lie between two of them on average."""

    kills: int = 100
    every_s: float = 0.9

    @property
    def flow_s(self) -> float:
        return self.kills * self.every_s


QUICK = KillOptions(
    jobs=600, kills=12, workers=3, producers=2, lease_s=1.0, every_s=0.6, slots=30, drain_s=30
)


def storm(backend: str, order: Order) -> bool:
    """Raise it; whether every promise was kept."""
    options = order.apply(KillOptions(), QUICK)
    print(
        f"Kill storm on {backend}: {options.jobs:,} jobs, {options.kills} kills over "
        f"{options.workers} workers and {options.producers} producers, "
        f"lease {options.lease_s:g} s, seed {options.seed}.",
        flush=True,
    )
    try:
        with order.folder() as folder, open_database(backend, folder) as database:
            rig = KillRig(options, folder, database, lambda line: print(line, flush=True))
            judgement = check(rig.run())
            judgement.findings["books unlike the rows"] = counters.differences(database.url)
            if not report(judgement):
                raise StormFailed("a promise was broken")
    except StormFailed as failure:
        print(f"FAILED: {failure}")
        return False
    return True


class KillRig(Rig[KillOptions]):
    """Kills."""

    _blacked_out = False

    def rage(self) -> None:
        limit_s = 60 + 6 * self.options.flow_s
        deadline = now() + limit_s
        self.wake(limit_s)
        next_kill = now()
        while self.faults < self.options.kills or not self.producers_finished():
            self.look_after()
            if self.faults < self.options.kills and now() >= next_kill:
                self._kill_some()
                next_kill = now() + self.chance.uniform(0, 2 * self.options.every_s)
            if now() > deadline:
                raise StormFailed("the storm did not come to its end in time")
            time.sleep(0.01)

    def _kill_some(self) -> None:
        """One victim at a random instant of its life; in the middle of the storm all workers.

        A promise about the time until a job starts again needs somebody to start it, so a single
        worker is only killed while another one has been up for longer than a lease.
        """
        if self.faults >= self.options.kills // 2 and not self._blacked_out:
            self._blacked_out = True
            for actor in self.living(self.workers):
                self._kill(actor, blackout=True)
            return
        awake = self.registered(before_s=0)
        settled = self.registered(before_s=self.options.lease_s + 0.5)
        unborn = self.chance.random() < UNBORN_SHARE
        victims = [actor for actor in self.living(self.producers) if unborn or self.spoke(actor)]
        for actor in self.living(self.workers):
            assert actor.process is not None
            pid = actor.process.pid
            if settled - {pid} and (unborn or pid in awake):
                victims.append(actor)
        if victims:
            self._kill(self.chance.choice(victims), blackout=False)

    def _kill(self, victim: Actor, *, blackout: bool) -> None:
        assert victim.process is not None
        pid = victim.process.pid
        self.history.write("kill", victim=pid, actor=victim.name, blackout=blackout)
        victim.process.kill()
        victim.dying = True
        self.faults += 1
