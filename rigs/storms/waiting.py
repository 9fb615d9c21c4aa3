"""The waiting storm: half a million jobs of a full limit key are held; other keys start at once.

The first job of the full key runs for as long as the storm lasts. Meanwhile jobs of other keys are
enqueued one by one, and the time until each one starts is measured.
"""

import asyncio
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

from forge_jobs import Forge
from forge_jobs.core.job import NewJob
from forge_jobs.core.limits import key_bucket
from rigs.storms.arguments import StormArguments
from rigs.storms.databases import Database, open_database, states
from rigs.storms.front_door import ForgeWorker, worker_command
from rigs.storms.history import now, read_all
from rigs.storms.rig import StormFailed

BACKENDS = ("sqlite", "postgres")
BATCH = 5_000


@dataclass(frozen=True)
class WaitingOptions:
    """``jobs`` of the full key wait; ``samples`` of others are timed."""

    jobs: int = 500_000
    samples: int = 100
    median_s: float = 0.05
    seed: int = 0


QUICK = WaitingOptions(jobs=20_000, samples=30, median_s=0.25)


def storm(backend: str, arguments: StormArguments) -> bool:
    """Run the storm; True if every check passed."""
    options = arguments.apply(WaitingOptions(), QUICK)
    print(f"Waiting storm on {backend}: {options.jobs:,} jobs of a full key.", flush=True)
    try:
        with arguments.folder() as folder, open_database(backend, folder) as database:
            asyncio.run(_run_storm(options, folder, database))
    except StormFailed as failure:
        print(f"FAILED: {failure}")
        return False
    return True


async def _run_storm(options: WaitingOptions, folder: Path, database: Database) -> None:
    environment = {"STORM_URL": database.url, "STORM_FOLDER": str(folder)}
    command = worker_command("rigs.storms.limited_jobs:forge", "keyed:10", grace_s=0.1)
    forge = Forge(database.url)
    with (folder / "worker.log").open("ab") as log:
        worker = ForgeWorker(command, environment, log)
        try:
            await _until_published(forge)
            await _enqueue_jobs(forge, options)
            left = states(database)
            if not left.get("held", 0):
                raise StormFailed(f"no job is held, so the run proves nothing: {left}")
            if left["held"] < options.jobs - 1:
                raise StormFailed(f"not all jobs are held: {left}")
            waits = await _sample(forge, folder, options)
        finally:
            worker.kill()
            await forge.aclose()
    waits.sort()
    median_s, late_s = statistics.median(waits), waits[int(len(waits) * 0.95)]
    print(f"  another key: {median_s * 1000:.1f} ms (median), {late_s * 1000:.1f} ms (p95)")
    if median_s > options.median_s:
        raise StormFailed(f"{median_s * 1000:.0f} ms are more than {options.median_s * 1000:.0f}")


async def _until_published(forge: Forge) -> None:
    end = time.monotonic() + 30
    store = await forge.aready()
    while time.monotonic() < end:
        if "task:parked" in {limit.name for limit in await store.limits.all()}:
            return
        await asyncio.sleep(0.1)
    raise StormFailed("the worker did not publish its limits")


async def _enqueue_jobs(forge: Forge, options: WaitingOptions) -> None:
    store, began = await forge.aready(), time.monotonic()
    full = key_bucket("parked", "full")
    first = b'{"key":"full","sent_at":0,"seconds":3600}'
    await store.jobs.enqueue([NewJob(kind="parked", queue="keyed", payload=first, limit_key=full)])
    waiting = NewJob(
        kind="parked", queue="keyed", payload=b'{"key":"full","sent_at":0}', limit_key=full
    )
    for start in range(0, options.jobs, BATCH):
        await store.jobs.enqueue([waiting] * min(BATCH, options.jobs - start))
    rate = options.jobs / (time.monotonic() - began)
    print(f"  stored {options.jobs:,} jobs at {rate:,.0f}/s", flush=True)


async def _sample(forge: Forge, folder: Path, options: WaitingOptions) -> list[float]:
    store = await forge.aready()
    for number in range(options.samples):
        payload = b'{"key":"key-%d","sent_at":%f}' % (number, now())
        key = key_bucket("parked", f"key-{number}")
        await store.jobs.enqueue(
            [NewJob(kind="parked", queue="keyed", payload=payload, limit_key=key)]
        )
        await asyncio.sleep(0.05)
    end = time.monotonic() + 30
    while time.monotonic() < end:
        entries = [e for e in read_all(folder) if e.get("group", "").startswith("key-")]
        if len(entries) >= options.samples:
            return [entry["at"] - entry["sent_at"] for entry in entries]
        await asyncio.sleep(0.2)
    raise StormFailed("jobs of other keys did not start")
