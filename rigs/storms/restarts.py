"""The restart storm: the server is restarted, with fast and immediate shutdowns, and connections
are terminated at random, while jobs run.

No worker exits, no job is lost or runs twice, work resumes within five seconds, notifications
arrive again, no process uses much CPU while there is no server, and no healthy worker is declared
dead, also after an outage that is longer than the lease.
"""

import time
from collections import defaultdict
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import psutil

from rigs.storms import counters, databases
from rigs.storms.arguments import StormArguments, print_report
from rigs.storms.checks import check
from rigs.storms.connection_counter import count_connections
from rigs.storms.databases import PostgresDatabase, on_server
from rigs.storms.history import now
from rigs.storms.outages import OutageEvidence, check_outages
from rigs.storms.rig import Log, Options, Rig, StormFailed
from tests.postgres.server import PrivateServer, private_server

BACKENDS = ("postgres",)
NOTIFICATIONS = 20
WAKE_TIMEOUT_S = 0.15
TERMINATE_EVERY_S = 0.7

STARTS = (
    "SELECT owner, started_at FROM forge.history WHERE owner IS NOT NULL AND started_at IS NOT NULL"
)
CRASHES = (
    "SELECT coalesce(sum(crashes), 0)::bigint FROM ("
    "SELECT crashes FROM forge.jobs UNION ALL SELECT crashes FROM forge.history) AS c"
)
DEAD = "SELECT count(*) FROM forge.processes WHERE dead"
TERMINATE = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE application_name = 'forge-jobs' ORDER BY random() LIMIT 2"
)
NOTIFY = "SELECT pg_notify('forge_wake', '*')"
POLLED = (
    "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'forge-jobs'"
    " AND query ~ '(exchange|claim_waiting)(_v[0-9]+)?[(]' AND query_start > to_timestamp({since})"
)


@dataclass(frozen=True)
class OutageOptions(Options):
    """The number of outages, and about how many seconds are between two of them."""

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


def storm(backend: str, arguments: StormArguments) -> bool:
    """Run the storm; True if every check passed."""
    options = arguments.apply(OutageOptions(), QUICK)
    print(
        f"Restart storm on {backend}: {options.jobs:,} jobs, {options.restarts} restarts under "
        f"{options.workers} workers and {options.producers} producers, "
        f"lease {options.lease_s:g} s, seed {options.seed}.",
        flush=True,
    )
    try:
        with arguments.folder() as folder, private_server() as server:
            rig = RestartRig(options, folder, server, lambda line: print(line, flush=True))
            evidence = rig.run()
            report = check(evidence)
            check_outages(report, evidence.entries, rig.outage_evidence())
            found = counters.differences(rig.database.url)
            report.findings["counters unlike the rows"] = found
            if not print_report(report):
                raise StormFailed("a check failed")
    except StormFailed as failure:
        print(f"FAILED: {failure}")
        return False
    return True


class OutageRig(Rig[OutageOptions]):
    """Common code of storms with outages."""

    database: PostgresDatabase

    def __init__(
        self, options: OutageOptions, folder: Path, database: PostgresDatabase, log: Log
    ) -> None:
        super().__init__(options, folder, database, log)
        self._woken = 0
        self._terminate_at = now()

    def outage(self, number: int) -> None:
        """Make the server unavailable and bring it back."""
        raise NotImplementedError

    def inject_faults(self) -> None:
        options = self.options
        deadline = now() + 120 + 4 * options.flow_s + options.long_s
        self.start_actors(60)
        for number in range(options.restarts):
            self._wait_with_cuts(options.every_s * self.rng.uniform(0.5, 1.5))
            self.outage(number)
            self.faults += 1
        while not self.producers_finished():
            self.supervise()
            if now() > deadline:
                raise StormFailed("the producers did not finish in time")
            time.sleep(0.05)

    def check_idle_workers(self) -> None:
        """Send notifications to idle workers and count how many wake all of them at once."""
        for _ in range(NOTIFICATIONS):
            time.sleep(0.2 + 0.2 * self.rng.random())
            since = time.time()
            self.database.query(NOTIFY)
            until = time.monotonic() + WAKE_TIMEOUT_S
            while time.monotonic() < until:
                asked = self.database.query(POLLED.format(since=since))
                if asked and int(str(asked[0][0])) >= len(self.workers):
                    self._woken += 1
                    break
                time.sleep(0.01)

    def outage_evidence(self) -> OutageEvidence:
        """Read the state of the store at the end."""
        starts: dict[int, list[float]] = defaultdict(list)
        for owner, at in self.database.query(STARTS):
            starts[int(str(owner))].append(int(str(at)) / 1_000_000)
        [[crashes]] = self.database.query(CRASHES)
        [[dead]] = self.database.query(DEAD)
        return OutageEvidence(
            starts, int(str(crashes)), int(str(dead)), (self._woken, NOTIFICATIONS)
        )

    def worker_cpu(self) -> float:
        """CPU seconds of all workers so far."""
        times = [psutil.Process(pid).cpu_times() for pid in self.worker_pids()]
        return sum(one.user + one.system for one in times)

    def work_left(self) -> bool:
        """Whether enough jobs are still to be enqueued for every worker to get some."""
        stored = sum(databases.states(self.database).values())
        return self.options.jobs - stored >= 25 * self.options.workers

    def wait(self, seconds: float) -> None:
        """Wait while supervising the processes."""
        until = now() + seconds
        while now() < until:
            self.supervise()
            time.sleep(0.05)

    def _wait_with_cuts(self, seconds: float) -> None:
        """Wait while terminating random connections."""
        until = now() + seconds
        while now() < until:
            self.supervise()
            if now() >= self._terminate_at:
                self._terminate_at = now() + self.rng.uniform(0, 2 * TERMINATE_EVERY_S)
                self.history.write("cut", connections=len(self.database.query(TERMINATE)))
            time.sleep(0.05)


class RestartRig(OutageRig):
    """One server that is stopped and started."""

    def __init__(
        self, options: OutageOptions, folder: Path, server: PrivateServer, log: Log
    ) -> None:
        super().__init__(options, folder, on_server(server), log)
        self._server = server

    def outage(self, number: int) -> None:
        options, server = self.options, self._server
        immediate = bool(number % 2) or options.restarts == 1
        longest = number == options.restarts // 2 and options.restarts > 1
        down_s = options.long_s if longest else options.down_s * self.rng.uniform(0.5, 1.5)
        self.log(f"{'immediate' if immediate else 'fast'} stop, {down_s:.1f} s")
        self.history.write("down", immediate=immediate)
        server.stop(immediate=immediate)
        began, cpu = now(), self.worker_cpu()
        # A listener that counts connections, or none at all: clients see different errors.
        with count_connections(server.folder) if number % 4 < 2 else nullcontext() as counter:
            self.wait(down_s)
            seconds, spent = now() - began, self.worker_cpu() - cpu
        server.start()
        self.history.write(
            "up",
            wall=time.time(),
            seconds=seconds,
            cpu=spent,
            attempts=None if counter is None else counter.attempts,
            processes=len(self.running_actors(self.workers))
            + len(self.running_actors(self.producers)),
            waiting=self.work_left(),
        )
