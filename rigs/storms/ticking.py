"""The cron storm: a schedule every second, while the leader is killed repeatedly.

Each second must have exactly one job, and each job must have run.
"""

import asyncio
import random
import time
from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

from forge_jobs import Forge, JobStatus
from forge_jobs.core.job import JobRecord
from forge_jobs.core.selection import Filter
from rigs.storms.arguments import StormArguments
from rigs.storms.databases import Database, open_database
from rigs.storms.front_door import ForgeWorker, worker_command
from rigs.storms.history import read_all
from rigs.storms.rig import StormFailed

BACKENDS = ("sqlite", "postgres")
# The names in ticking_jobs, which cannot be imported without its environment variables.
NAME, QUEUE = "second", "ticking"
LEADER = {
    "sqlite": "SELECT p.pid FROM forge_leads l JOIN forge_processes p ON p.id = l.process",
    "postgres": "SELECT p.pid FROM forge.leaderships l JOIN forge.processes p ON p.id = l.process",
}


@dataclass(frozen=True)
class CronStormOptions:
    """``seconds`` of ticks, a kill every ``every_s`` on average."""

    seconds: int = 60
    workers: int = 4
    every_s: float = 5.0
    lease_s: float = 2.0
    drain_s: float = 40.0
    seed: int = 0


QUICK = CronStormOptions(seconds=8, workers=2, every_s=3.0, lease_s=1.0)


def storm(backend: str, arguments: StormArguments) -> bool:
    """Run the storm; True if every check passed."""
    options = arguments.apply(CronStormOptions(), QUICK)
    print(
        f"Cron storm on {backend}: a tick each second for {options.seconds} s, "
        f"{options.workers} workers, the leader killed every {options.every_s:g} s.",
        flush=True,
    )
    try:
        with arguments.folder() as folder, open_database(backend, folder) as database:
            rig = CronRig(options, folder, database, LEADER[backend])
            jobs = asyncio.run(rig.run())
            _check_ticks(jobs, [entry["job"] for entry in read_all(folder)], options)
            print(f"  {rig.kills} kills of the leader")
            if not rig.kills:
                raise StormFailed("the leader was never killed: the run proves nothing")
    except StormFailed as failure:
        print(f"FAILED: {failure}")
        return False
    return True


def _check_ticks(jobs: list[JobRecord], ran: list[str], options: CronStormOptions) -> None:
    counted = Counter(_tick(job) for job in jobs)
    ticks = sorted(counted)
    twice = [tick for tick in ticks if counted[tick] > 1]
    if twice:
        raise StormFailed(f"{len(twice)} ticks fired more than once: {twice[:5]}")
    gaps = [first for first, second in pairwise(ticks) if _after(first) != second]
    if gaps:
        raise StormFailed(f"a tick is missing after {gaps[:5]}")
    if len(ticks) < options.seconds:
        raise StormFailed(f"{len(ticks)} of {options.seconds} ticks fired")
    lost = [job.id for job in jobs if job.status is not JobStatus.DONE or job.id not in ran]
    if lost:
        raise StormFailed(f"{len(lost)} jobs did not run: {lost[:5]}")
    late = sorted((job.enqueued_at - _instant(_tick(job))) / 1e6 for job in jobs)
    print(
        f"  {options.seconds} of {options.seconds} ticks fired once and ran ({len(ticks)} in all)"
    )
    print(f"  late: p50 {late[len(late) // 2] * 1000:.0f} ms, most {late[-1]:.1f} s")


def _tick(job: JobRecord) -> str:
    return job.tags[-1].removeprefix("tick:")


def _after(tick: str) -> str:
    moment = datetime.fromisoformat(tick) + timedelta(seconds=1)
    return f"{moment:%Y-%m-%dT%H:%M:%S}Z"


def _instant(tick: str) -> int:
    return round(datetime.fromisoformat(tick).timestamp() * 1e6)


class CronRig:
    def __init__(
        self, options: CronStormOptions, folder: Path, database: Database, leader: str
    ) -> None:
        self._options = options
        self._folder = folder
        self._database = database
        self._leader = leader
        self._rng = random.Random(options.seed)
        self._workers: list[ForgeWorker] = []
        self.kills = 0

    async def run(self) -> list[JobRecord]:
        options = self._options
        forge = Forge(self._database.url)
        store = await forge.aready()
        try:
            with (self._folder / "workers.log").open("ab") as log:
                for _ in range(options.workers):
                    self._start_worker(log)
                await self._wait_until(lambda: bool(self._ran()), "no tick was fired")
                end = time.monotonic() + options.seconds
                while time.monotonic() < end:
                    await asyncio.sleep(self._rng.uniform(0.5, 1.5) * options.every_s)
                    if time.monotonic() < end:
                        self._kill_leader(log)
                return await self._wait_until_idle(store)
        finally:
            for worker in self._workers:
                worker.kill()
            await forge.aclose()

    async def _wait_until_idle(self, store: Any) -> list[JobRecord]:
        """Wait until every tick up to now has fired and run."""
        until = time.time()
        deadline = time.monotonic() + self._options.drain_s
        while time.monotonic() < deadline:
            self._check_alive()
            jobs = await self._jobs(store)
            ended = all(job.status is JobStatus.DONE for job in jobs)
            if ended and jobs and max(_instant(_tick(job)) for job in jobs) / 1e6 >= until - 1:
                return jobs
            await asyncio.sleep(0.1)
        raise StormFailed(f"the ticks did not continue within {self._options.drain_s:.0f} s")

    async def _jobs(self, store: Any) -> list[JobRecord]:
        found: list[JobRecord] = []
        cursor = None
        while True:
            page = await store.jobs.page(Filter(tag=f"cron:{NAME}"), limit=500, after=cursor)
            found.extend(page.jobs)
            cursor = page.next
            if cursor is None:
                return found

    def _check_alive(self) -> None:
        ended = [code for worker in self._workers if (code := worker.returncode) is not None]
        if ended:
            logged_at = (self._folder / "workers.log").read_text(errors="replace")[-2_000:]
            raise StormFailed(f"a worker exited with {ended[0]}:\n{logged_at}")

    def _kill_leader(self, log: Any) -> None:
        self._check_alive()
        leaders = {int(str(pid)) for (pid,) in self._database.query(self._leader)}
        for worker in self._workers:
            if worker.pid in leaders:
                worker.kill()
                self._workers.remove(worker)
                self._start_worker(log)
                self.kills += 1
                return

    def _start_worker(self, log: Any) -> None:
        options = self._options
        environment = {"STORM_URL": self._database.url, "STORM_FOLDER": str(self._folder)}
        command = worker_command(
            "rigs.storms.ticking_jobs:forge", QUEUE, lease_s=options.lease_s, grace_s=0.1
        )
        self._workers.append(ForgeWorker(command, environment, log))

    def _ran(self) -> list[str]:
        return [entry["job"] for entry in read_all(self._folder)]

    async def _wait_until(self, condition: Any, message: str) -> None:
        deadline = time.monotonic() + self._options.drain_s
        while not condition():
            if time.monotonic() > deadline:
                raise StormFailed(message)
            await asyncio.sleep(0.1)
