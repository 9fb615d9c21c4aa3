"""The rate storm: four processes acquire permits of one scope as fast as they can.

Permits are granted in blocks and processes are killed meanwhile; all processes together never get
more than one burst beyond the rate.
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
from rigs.storms.history import read_all
from rigs.storms.rig import StormFailed

BACKENDS = ("sqlite", "postgres")
SCOPE = "storm"


@dataclass(frozen=True)
class RateOptions:
    """``rate`` permits per second over ``seconds``, at most ``burst`` at once. At least
    ``min_share`` of the rate must be used, or the run proves nothing; a busy machine uses less."""

    rate: float = 100.0
    burst: float = 20.0
    seconds: float = 20.0
    workers: int = 4
    kills: int = 3
    seed: int = 0
    min_share: float = 0.7


QUICK = RateOptions(seconds=2.0, kills=1, min_share=0.1)


def storm(backend: str, arguments: StormArguments) -> bool:
    """Run the storm; True if every check passed."""
    options = arguments.apply(RateOptions(), QUICK)
    print(
        f"Rate storm on {backend}: {options.rate:g}/s with a burst of {options.burst:g} over "
        f"{options.seconds:g} s, {options.workers} processes, {options.kills} kills.",
        flush=True,
    )
    try:
        with arguments.folder() as folder, open_database(backend, folder) as database:
            asyncio.run(RateRig(options, folder, database).run())
            _check(read_all(folder), options)
    except StormFailed as failure:
        print(f"FAILED: {failure}")
        return False
    return True


def _check(entries: list[dict[str, Any]], options: RateOptions) -> None:
    times = [entry["at"] for entry in entries if entry["op"] == "granted"]
    if not times:
        raise StormFailed("no permit was granted")
    span_s = times[-1] - times[0]
    allowed = options.burst + options.rate * span_s
    worst = _max_excess(times, options.rate)
    used = len(times) / (options.rate * span_s)
    print(f"  granted {len(times)} in {span_s:.1f} s, allowed {allowed:.0f} ({used:.0%} of rate)")
    print(f"  most beyond the rate in any span: {worst:.0f}")
    if len(times) > allowed + 1:
        raise StormFailed(f"{len(times)} permits in {span_s:.1f} s are more than {allowed:.0f}")
    # At the start of a span, each process may hold one block of permits.
    if worst > options.burst * (1 + options.workers / 8) + 1:
        raise StormFailed(f"some span had {worst:.0f} permits beyond the rate")
    if used < options.min_share:
        raise StormFailed("the rate was hardly used: the run proves nothing")
    processes = {entry["pid"] for entry in entries if entry["op"] == "granted"}
    if len(processes) < options.workers:
        raise StormFailed(f"only {len(processes)} processes asked: nothing was shown")


def _max_excess(times: list[float], rate: float) -> float:
    """The largest excess of permits over the rate in any span."""
    worst, min_share = 0.0, 0.0
    for count, at in enumerate(times):
        due = (at - times[0]) * rate
        worst = max(worst, count + 1 - due - min_share)
        min_share = min(min_share, count + 1 - due)
    return worst


class RateRig:
    """Each worker has a queue of its own: if one worker claimed all jobs, killing it would stop all
    calls for a lease."""

    def __init__(self, options: RateOptions, folder: Path, database: Database) -> None:
        self._options = options
        self._folder = folder
        self._url = database.url
        self._rng = random.Random(options.seed)
        self._workers: dict[str, ForgeWorker] = {}

    async def run(self) -> None:
        options = self._options
        forge = Forge(self._url)
        store = await forge.aready()
        await store.token_buckets.put(SCOPE, capacity=options.burst, refill_per_s=options.rate)
        queues = [f"asking-{number}" for number in range(options.workers)]
        work = b'{"seconds": %.1f}' % options.seconds
        jobs = [NewJob(kind="ask", queue=queue, payload=work) for queue in queues]
        await store.jobs.enqueue(jobs * (1 + options.kills))
        try:
            with (self._folder / "workers.log").open("ab") as log:
                for queue in queues:
                    self._start_worker(queue, log)
                await self._wait_until_started()
                for _ in range(options.kills):
                    await asyncio.sleep(options.seconds / (options.kills + 1))
                    queue = self._rng.choice(queues)
                    self._workers[queue].kill()
                    self._start_worker(queue, log)
                await self._wait_until_used()
        finally:
            for worker in self._workers.values():
                worker.kill()
            await forge.aclose()

    def _start_worker(self, queue: str, log: Any) -> None:
        environment = {"STORM_URL": self._url, "STORM_FOLDER": str(self._folder)}
        command = worker_command(
            "rigs.storms.asking_jobs:forge", f"{queue}:1", lease_s=5, grace_s=0.1
        )
        self._workers[queue] = ForgeWorker(command, environment, log)

    async def _wait_until_started(self) -> None:
        end = time.monotonic() + 60
        while len(list(self._folder.glob("asker-*.jsonl"))) < self._options.workers:
            if time.monotonic() > end:
                raise StormFailed("the workers did not start")
            await asyncio.sleep(0.1)

    async def _wait_until_used(self) -> None:
        """Wait until permits were granted over the whole time."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            entries = read_all(self._folder)
            times = [entry["at"] for entry in entries if entry["op"] == "granted"]
            if times and times[-1] - times[0] >= self._options.seconds:
                return
            await asyncio.sleep(0.2)
        raise StormFailed("the workers did not acquire permits long enough")
