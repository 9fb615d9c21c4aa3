"""The restart storm: the server is restarted, in good order and as if it had crashed, and
connections are terminated at random, while jobs flow.

No worker exits, nothing is lost or run twice, work goes on within five seconds, notifications are
heard again, nobody works hard while there is no server, and no healthy worker is held for dead,
also after an outage that is longer than the lease.
"""

import time
from collections import defaultdict
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import psutil

from rigs.storms import counters, databases
from rigs.storms.checks import check
from rigs.storms.databases import PostgresDatabase, on_server
from rigs.storms.history import now
from rigs.storms.order import Order, report
from rigs.storms.outages import Aftermath, check_outages
from rigs.storms.rig import Options, Rig, Say, StormFailed
from rigs.storms.standin import stand_in
from tests.postgres.server import PrivateServer, private_server

BACKENDS = ("postgres",)
RINGS = 20
RING_S = 0.15
CUT_EVERY_S = 0.7

STARTS = (
    "SELECT owner, started_at FROM forge.history WHERE owner IS NOT NULL AND started_at IS NOT NULL"
)
CRASHES = (
    "SELECT coalesce(sum(crashes), 0)::bigint FROM ("
    "SELECT crashes FROM forge.jobs UNION ALL SELECT crashes FROM forge.history) AS c"
)
DEAD = "SELECT count(*) FROM forge.processes WHERE dead"
CUT = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE application_name = 'forge-jobs' ORDER BY random() LIMIT 2"
)
NOTIFY = "SELECT pg_notify('forge_wake', '*')"
ASKED = (
    "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'forge-jobs'"
    " AND query ~ '(exchange|claim_waiting)(_v[0-9]+)?[(]' AND query_start > to_timestamp({since})"
)


@dataclass(frozen=True)
class OutageOptions(Options):
    """How many outages, and about how many seconds lie between two of them."""

    lease_s: float = 5.0
    restarts: int = 10
    every_s: float = 4.0
    down_s: float = 2.0
    long_s: float = 8.0

    @property
    def flow_s(self) -> float:
        # A start takes about a second.
        return self.restarts * (self.every_s + self.down_s + 1) + self.long_s


QUICK = OutageOptions(
    jobs=400, workers=2, producers=1, lease_s=2.0, restarts=1, every_s=2.0, down_s=1.5, long_s=0.0
)


def storm(backend: str, order: Order) -> bool:
    """Raise it; whether every promise was kept."""
    options = order.apply(OutageOptions(), QUICK)
    print(
        f"Restart storm on {backend}: {options.jobs:,} jobs, {options.restarts} restarts under "
        f"{options.workers} workers and {options.producers} producers, "
        f"lease {options.lease_s:g} s, seed {options.seed}.",
        flush=True,
    )
    try:
        with order.folder() as folder, private_server() as server:
            rig = RestartRig(options, folder, server, lambda line: print(line, flush=True))
            evidence = rig.run()
            judgement = check(evidence)
            check_outages(judgement, evidence.entries, rig.aftermath())
            found = counters.differences(rig.database.url)
            judgement.findings["books unlike the rows"] = found
            if not report(judgement):
                raise StormFailed("a promise was broken")
    except StormFailed as failure:
        print(f"FAILED: {failure}")
        return False
    return True


class OutageRig(Rig[OutageOptions]):
    """What outages of every kind need."""

    database: PostgresDatabase

    def __init__(
        self, options: OutageOptions, folder: Path, database: PostgresDatabase, say: Say
    ) -> None:
        super().__init__(options, folder, database, say)
        self._woken = 0
        self._cut_at = now()

    def outage(self, number: int) -> None:
        """The server goes away and comes back."""
        raise NotImplementedError

    def rage(self) -> None:
        options = self.options
        deadline = now() + 120 + 4 * options.flow_s + options.long_s
        self.wake(60)
        for number in range(options.restarts):
            self._flow(options.every_s * self.chance.uniform(0.5, 1.5))
            self.outage(number)
            self.faults += 1
        while not self.producers_finished():
            self.look_after()
            if now() > deadline:
                raise StormFailed("the producers did not come to their end in time")
            time.sleep(0.05)

    def after(self) -> None:
        """Ring idle workers over a connection of our own: all of them look at once, or are deaf."""
        for _ in range(RINGS):
            time.sleep(0.2 + 0.2 * self.chance.random())
            since = time.time()
            self.database.query(NOTIFY)
            until = time.monotonic() + RING_S
            while time.monotonic() < until:
                asked = self.database.query(ASKED.format(since=since))
                if asked and int(str(asked[0][0])) >= len(self.workers):
                    self._woken += 1
                    break
                time.sleep(0.01)

    def aftermath(self) -> Aftermath:
        """What the store says at the end."""
        starts: dict[int, list[float]] = defaultdict(list)
        for owner, at in self.database.query(STARTS):
            starts[int(str(owner))].append(int(str(at)) / 1_000_000)
        [[crashes]] = self.database.query(CRASHES)
        [[dead]] = self.database.query(DEAD)
        return Aftermath(starts, int(str(crashes)), int(str(dead)), (self._woken, RINGS))

    def worker_cpu(self) -> float:
        """Processor seconds of all workers so far."""
        times = [psutil.Process(pid).cpu_times() for pid in self.worker_pids()]
        return sum(one.user + one.system for one in times)

    def work_left(self) -> bool:
        """Whether there is still enough to come for every worker to get some of it."""
        stored = sum(databases.states(self.database).values())
        return self.options.jobs - stored >= 25 * self.options.workers

    def pass_time(self, seconds: float) -> None:
        """Wait and look after the actors."""
        until = now() + seconds
        while now() < until:
            self.look_after()
            time.sleep(0.05)

    def _flow(self, seconds: float) -> None:
        """Work in peace, but for connections that are cut now and then."""
        until = now() + seconds
        while now() < until:
            self.look_after()
            if now() >= self._cut_at:
                self._cut_at = now() + self.chance.uniform(0, 2 * CUT_EVERY_S)
                self.history.write("cut", connections=len(self.database.query(CUT)))
            time.sleep(0.05)


class RestartRig(OutageRig):
    """One server that is stopped and started."""

    def __init__(
        self, options: OutageOptions, folder: Path, server: PrivateServer, say: Say
    ) -> None:
        super().__init__(options, folder, on_server(server), say)
        self._server = server

    def outage(self, number: int) -> None:
        options, server = self.options, self._server
        immediate = bool(number % 2) or options.restarts == 1
        longest = number == options.restarts // 2 and options.restarts > 1
        down_s = options.long_s if longest else options.down_s * self.chance.uniform(0.5, 1.5)
        self.say(f"{'immediate' if immediate else 'fast'} stop, {down_s:.1f} s")
        self.history.write("down", immediate=immediate)
        server.stop(immediate=immediate)
        began, cpu = now(), self.worker_cpu()
        # Somebody who counts, or nobody at all: the two look different to a client.
        with stand_in(server.folder) if number % 4 < 2 else nullcontext() as counter:
            self.pass_time(down_s)
            seconds, spent = now() - began, self.worker_cpu() - cpu
        server.start()
        self.history.write(
            "up",
            wall=time.time(),
            seconds=seconds,
            cpu=spent,
            attempts=None if counter is None else counter.attempts,
            processes=len(self.living(self.workers)) + len(self.living(self.producers)),
            waiting=self.work_left(),
        )
