"""The failover storm: the primary of a pair with synchronous replication is stopped while jobs run,
its standby is promoted, and the old primary becomes the new standby.

Clients know both addresses and reconnect by themselves. No acknowledged job is lost, no job runs
twice, no worker exits, and work resumes within five seconds.
"""

import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rigs.storms.arguments import StormArguments, print_report
from rigs.storms.checks import check
from rigs.storms.databases import PostgresDatabase
from rigs.storms.history import now
from rigs.storms.outages import check_outages
from rigs.storms.restarts import OutageOptions, OutageRig
from rigs.storms.rig import Log, StormFailed
from tests.postgres.server import DEFAULTS, PrivateServer

BACKENDS = ("postgres",)
WAIT_S = 60.0

WHOLE = OutageOptions(restarts=3, every_s=8.0, down_s=6.0, long_s=0.0)
QUICK = OutageOptions(
    jobs=600, workers=2, producers=1, lease_s=3.0, restarts=1, every_s=3.0, down_s=2.0, long_s=0.0
)


def storm(backend: str, arguments: StormArguments) -> bool:
    """Run the storm; True if every check passed."""
    options = arguments.apply(WHOLE, QUICK)
    print(
        f"Failover storm on {backend}: {options.jobs:,} jobs, {options.restarts} promotions under "
        f"{options.workers} workers and {options.producers} producers, "
        f"lease {options.lease_s:g} s, seed {options.seed}.",
        flush=True,
    )
    try:
        with arguments.folder() as folder, replicated_pair() as pair:
            rig = FailoverRig(options, folder, pair, lambda line: print(line, flush=True))
            evidence = rig.run()
            report = check(evidence)
            check_outages(report, evidence.entries, rig.outage_evidence())
            if not print_report(report):
                raise StormFailed("a check failed")
    except StormFailed as failure:
        print(f"FAILED: {failure}")
        return False
    return True


@dataclass
class Pair:
    """A primary and its standby."""

    primary: PrivateServer
    standby: PrivateServer

    def url(self) -> str:
        """A URL with both addresses, as users write it."""
        hosts = sorted(f"127.0.0.1:{one.port}" for one in (self.primary, self.standby))
        return f"postgresql://postgres@{','.join(hosts)}/postgres?target_session_attrs=read-write"

    def attach(self) -> None:
        """Create the standby from the primary; then every commit waits for the standby."""
        self.standby.follow(self.primary)
        self.standby.start()
        self._until("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'")
        self.primary.sql("ALTER SYSTEM SET synchronous_standby_names = '*'", RELOAD)
        self._until("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'")

    def promote(self) -> None:
        """Stop the primary immediately and promote the standby, without synchronous replication."""
        self.primary.stop(immediate=True)
        self.standby.sql(
            "ALTER SYSTEM SET synchronous_standby_names = ''", RELOAD, "SELECT pg_promote()"
        )
        self.primary, self.standby = self.standby, self.primary

    def _until(self, question: str) -> None:
        deadline = time.monotonic() + WAIT_S
        while self.primary.sql(question).strip() == "0":
            if time.monotonic() > deadline:
                raise StormFailed("the standby did not start")
            time.sleep(0.05)


RELOAD = "SELECT pg_reload_conf()"


@contextmanager
def replicated_pair() -> Iterator[Pair]:
    """A primary and its synchronous standby; both are deleted afterwards."""
    folders = [Path(tempfile.mkdtemp(prefix="forge-pg-")) for _ in range(2)]
    servers: list[PrivateServer] = []
    try:
        for folder in folders:
            folder.chmod(0o755)
            place = {"listen_addresses": "127.0.0.1", "port": str(free_port())}
            servers.append(PrivateServer(folder, {**DEFAULTS, **place}))
        pair = Pair(*servers)
        pair.primary.create()
        pair.primary.start()
        pair.attach()
        yield pair
    finally:
        for server in servers:
            server.stop(immediate=True)
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class FailoverRig(OutageRig):
    """A pair of servers with promotions."""

    def __init__(self, options: OutageOptions, folder: Path, pair: Pair, log: Log) -> None:
        addresses = [pair.primary.url(), pair.standby.url()]
        super().__init__(options, folder, PostgresDatabase(pair.url(), addresses), log)
        self._pair = pair

    def outage(self, number: int) -> None:
        self.log("stopping the primary")
        self.history.write("down", immediate=True)
        began, cpu = now(), self.worker_cpu()
        self._pair.promote()
        self.history.write(
            "up",
            wall=time.time(),
            seconds=now() - began,
            cpu=self.worker_cpu() - cpu,
            attempts=None,
            processes=len(self.running_actors(self.workers))
            + len(self.running_actors(self.producers)),
            waiting=self.work_left(),
        )
        self.log("the standby is promoted")
        self.wait(self.options.down_s)
        self._pair.attach()
        self.log("the new standby is attached")
