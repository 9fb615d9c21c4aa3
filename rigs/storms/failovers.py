"""The failover storm: the primary of a pair with synchronous replication dies while jobs flow, its
standby is promoted, and a new standby is made where the old primary was.

Clients know both addresses and follow by themselves. No acknowledged job is lost, nothing is run
twice, no worker exits, and work goes on within five seconds.
"""

import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rigs.storms.checks import check
from rigs.storms.databases import PostgresDatabase
from rigs.storms.history import now
from rigs.storms.order import Order, report
from rigs.storms.outages import check_outages
from rigs.storms.restarts import OutageOptions, OutageRig
from rigs.storms.rig import Say, StormFailed
from tests.postgres.server import DEFAULTS, PrivateServer

BACKENDS = ("postgres",)
WAIT_S = 60.0

WHOLE = OutageOptions(restarts=3, every_s=8.0, down_s=6.0, long_s=0.0)
QUICK = OutageOptions(
    jobs=600, workers=2, producers=1, lease_s=3.0, restarts=1, every_s=3.0, down_s=2.0, long_s=0.0
)


def storm(backend: str, order: Order) -> bool:
    """Raise it; whether every promise was kept."""
    options = order.apply(WHOLE, QUICK)
    print(
        f"Failover storm on {backend}: {options.jobs:,} jobs, {options.restarts} promotions under "
        f"{options.workers} workers and {options.producers} producers, "
        f"lease {options.lease_s:g} s, seed {options.seed}.",
        flush=True,
    )
    try:
        with order.folder() as folder, replicated_pair() as pair:
            rig = FailoverRig(options, folder, pair, lambda line: print(line, flush=True))
            evidence = rig.run()
            judgement = check(evidence)
            check_outages(judgement, evidence.entries, rig.aftermath())
            if not report(judgement):
                raise StormFailed("a promise was broken")
    except StormFailed as failure:
        print(f"FAILED: {failure}")
        return False
    return True


@dataclass
class Pair:
    """Two servers, of which one leads."""

    primary: PrivateServer
    standby: PrivateServer

    def url(self) -> str:
        """Both of them, in the form users write."""
        hosts = sorted(f"127.0.0.1:{one.port}" for one in (self.primary, self.standby))
        return f"postgresql://postgres@{','.join(hosts)}/postgres?target_session_attrs=read-write"

    def attach(self) -> None:
        """Make the standby from the primary; from then on no commit is answered without it."""
        self.standby.follow(self.primary)
        self.standby.start()
        self._until("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'")
        self.primary.sql("ALTER SYSTEM SET synchronous_standby_names = '*'", RELOAD)
        self._until("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'")

    def promote(self) -> None:
        """The primary dies at once; the standby takes its place and waits for nobody."""
        self.primary.stop(immediate=True)
        self.standby.sql(
            "ALTER SYSTEM SET synchronous_standby_names = ''", RELOAD, "SELECT pg_promote()"
        )
        self.primary, self.standby = self.standby, self.primary

    def _until(self, question: str) -> None:
        deadline = time.monotonic() + WAIT_S
        while self.primary.sql(question).strip() == "0":
            if time.monotonic() > deadline:
                raise StormFailed("the standby did not come up")
            time.sleep(0.05)


RELOAD = "SELECT pg_reload_conf()"


@contextmanager
def replicated_pair() -> Iterator[Pair]:
    """A primary and its synchronous standby, gone afterwards with everything they wrote."""
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
    """A pair whose leader changes."""

    def __init__(self, options: OutageOptions, folder: Path, pair: Pair, say: Say) -> None:
        addresses = [pair.primary.url(), pair.standby.url()]
        super().__init__(options, folder, PostgresDatabase(pair.url(), addresses), say)
        self._pair = pair

    def outage(self, number: int) -> None:
        self.say("the primary dies")
        self.history.write("down", immediate=True)
        began, cpu = now(), self.worker_cpu()
        self._pair.promote()
        self.history.write(
            "up",
            wall=time.time(),
            seconds=now() - began,
            cpu=self.worker_cpu() - cpu,
            attempts=None,
            processes=len(self.living(self.workers)) + len(self.living(self.producers)),
            waiting=self.work_left(),
        )
        self.say("the standby leads")
        self.pass_time(self.options.down_s)
        self._pair.attach()
        self.say("there is a standby again")
