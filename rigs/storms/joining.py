"""The joining storm: worker processes start, stop and are killed while slow jobs run.

Never do more jobs of a queue run than the queue has slots in the cluster, and the slot share of an
exited process is reassigned: within ten seconds after a graceful stop, within lease and ten seconds
after a kill.
"""

import asyncio
import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forge_jobs import Forge
from forge_jobs.core.job import NewJob
from rigs.storms.arguments import StormArguments
from rigs.storms.databases import Database, open_database
from rigs.storms.front_door import ForgeWorker, worker_command
from rigs.storms.history import now, read_all
from rigs.storms.rig import StormFailed

BACKENDS = ("sqlite", "postgres")
QUEUE = "slow"
REBALANCE_S = 10.0
STARTUP_S = 60.0


@dataclass(frozen=True)
class JoinOptions:
    """``changes``: how many times a process is started or ended, ``every_s`` apart on average."""

    changes: int = 50
    every_s: float = 1.2
    workers: int = 5
    slots: int = 8
    lease_s: float = 5.0
    longest_ms: float = 2_000.0
    seed: int = 0


QUICK = JoinOptions(changes=6, every_s=0.3, workers=3, slots=5, lease_s=3.0, longest_ms=800.0)


@dataclass
class SlotReport:
    """The number of runs, the maximum in parallel, and the starts beyond the slots."""

    runs: int = 0
    peak: int = 0
    excess: int = 0


def storm(backend: str, arguments: StormArguments) -> bool:
    """Run the storm; True if every check passed."""
    options = arguments.apply(JoinOptions(), QUICK)
    print(
        f"Joining storm on {backend}: {options.changes} process starts and ends over "
        f"{options.slots} slots, lease {options.lease_s:g} s, seed {options.seed}.",
        flush=True,
    )
    try:
        with arguments.folder() as folder, open_database(backend, folder) as database:
            rig = JoinRig(options, folder, database)
            asyncio.run(rig.run())
            found = check_slots(read_all(folder), options.slots, rig.killed)
            print(f"  runs {found.runs}, at most {found.peak} of {options.slots} at once")
            print(f"  share moved after a stop     {rig.slowest_s['stop']:.1f} s")
            print(f"  share moved after a kill     {rig.slowest_s['kill']:.1f} s")
            if found.excess:
                raise StormFailed(f"{found.excess} starts beyond the slots")
            if found.peak < options.slots:
                raise StormFailed("the slots were never all in use: the run proves nothing")
    except StormFailed as failure:
        print(f"FAILED: {failure}")
        return False
    return True


def check_slots(entries: list[dict[str, Any]], slots: int, killed: dict[int, float]) -> SlotReport:
    """Count the running jobs at each start. A kill ends the runs of its process at the instant of
    the signal: no process can react to it earlier."""
    found = SlotReport()
    running: set[tuple[int, str, int]] = set()
    deaths = [{"at": at, "op": "killed", "pid": pid} for pid, at in killed.items()]
    for entry in sorted([*entries, *deaths], key=lambda entry: entry["at"]):
        if entry["op"] == "killed":
            running = {run for run in running if run[0] != entry["pid"]}
            continue
        run = (entry["pid"], entry["job"], entry["attempt"])
        if entry["op"] == "end":
            running.discard(run)
            continue
        running.add(run)
        found.runs += 1
        found.peak = max(found.peak, len(running))
        found.excess += len(running) > slots
    return found


class JoinRig:
    """Starts, stops and kills worker processes."""

    def __init__(self, options: JoinOptions, folder: Path, database: Database) -> None:
        self.options = options
        self.killed: dict[int, float] = {}
        self.slowest_s = {"stop": 0.0, "kill": 0.0}
        self._folder = folder
        self._url = database.url
        self._rng = random.Random(options.seed)
        self._workers: list[ForgeWorker] = []
        self._forge = Forge(database.url)

    async def run(self) -> None:
        """Run the storm. Ends every process it started."""
        options, rng = self.options, self._rng
        with (self._folder / "workers.log").open("ab") as log:
            try:
                await self._enqueue_jobs()
                for _ in range(2):
                    self._start_worker(log)
                await self._wait_until(lambda alive: alive == 2, STARTUP_S)
                for change in range(options.changes):
                    await asyncio.sleep(rng.uniform(0, 2 * options.every_s))
                    if len(self._workers) < 2 or (
                        len(self._workers) < options.workers and rng.random() < 0.5
                    ):
                        self._start_worker(log)
                    else:
                        self._end_worker("kill" if change % 3 == 1 else "stop")
                while len(self._workers) < 3:
                    self._start_worker(log)
                await self._wait_until(lambda alive: alive == len(self._workers), STARTUP_S)
                for how in ("stop", "kill"):
                    await self._measure(how)
            finally:
                for worker in self._workers:
                    worker.kill()
                await self._forge.aclose()

    async def _enqueue_jobs(self) -> None:
        options, rng = self.options, self._rng
        store = await self._forge.aready()
        await store.queues.ensure(QUEUE, slots=options.slots)
        work_s = options.changes * options.every_s + 6 * (REBALANCE_S + options.lease_s)
        count = int(work_s * options.slots * 2_000 / options.longest_ms)
        kinds = ("awaiting", "threaded")
        jobs = [
            NewJob(
                kind=kinds[n % 2],
                queue=QUEUE,
                payload=b'{"ms": %.1f}' % rng.uniform(options.longest_ms / 10, options.longest_ms),
                max_attempts=1_000,
            )
            for n in range(count)
        ]
        await store.jobs.enqueue(jobs)

    def _start_worker(self, log: Any) -> None:
        environment = {"STORM_URL": self._url, "STORM_FOLDER": str(self._folder)}
        command = worker_command(
            "rigs.storms.slow_jobs:forge", QUEUE, lease_s=self.options.lease_s, grace_s=0.5
        )
        self._workers.append(ForgeWorker(command, environment, log))

    def _end_worker(self, how: str) -> None:
        worker = self._workers.pop(self._rng.randrange(len(self._workers)))
        if how == "kill":
            self.killed[worker.pid] = now()
            worker.kill()
        else:
            worker.stop()

    async def _measure(self, how: str) -> None:
        """Measure how long it takes until the other processes hold all slots again."""
        self._end_worker(how)
        began = time.monotonic()
        limit_s = REBALANCE_S + (self.options.lease_s if how == "kill" else 0)
        await self._wait_until(lambda alive: alive == len(self._workers), limit_s)
        self.slowest_s[how] = max(self.slowest_s[how], time.monotonic() - began)

    async def _wait_until(self, condition: Any, limit_s: float) -> None:
        """Wait until the number of processes meets the condition and they share all slots."""
        store = await self._forge.aready()
        end = time.monotonic() + limit_s
        while True:
            records = await store.processes.all()
            slots = [one.shares[QUEUE].slots for one in records if QUEUE in one.shares]
            if condition(len(records)) and sum(slots) == self.options.slots:
                return
            if time.monotonic() > end:
                raise StormFailed(f"after {limit_s:.0f} s {len(records)} workers share {slots}")
            await asyncio.sleep(0.02)
