"""Real worker processes on Postgres: killed, and with the server restarted under them."""

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forge_jobs.core.select import Filter
from forge_jobs.core.status import JobStatus
from forge_jobs.store.bundle import Store
from tests.crash.conftest import Site

from .server import PrivateServer, private_server

pytestmark = pytest.mark.processes

JOBS = 300


@pytest.fixture
def site(project_root: Path, tmp_path: Path, url: str) -> Iterator[Site]:
    made = Site(project_root, tmp_path, url)
    yield made
    made.end()


def look(site: Site, work: Any) -> Any:
    return site.forge.sender.access.run(work)


async def _counts(store: Store) -> dict[JobStatus, int]:
    return {count.status: count.jobs for count in await store.ledger.counts()}


async def _finishes(store: Store) -> int:
    return sum(minute.done for minute in await store.ledger.minutes(since=0, until=1 << 62))


async def _crashes(store: Store) -> int:
    page = await store.jobs.page(Filter(), limit=JOBS + 100)
    return sum(job.crashes for job in page.jobs)


def fill(site: Site, seconds: float) -> None:
    for n in range(JOBS):
        site.enqueue("rest", f"job {n}", seconds=seconds, max_attempts=100)


def all_done(site: Site) -> bool:
    return look(site, _counts) == {JobStatus.DONE: JOBS}


@pytest.mark.slow
def test_kill_storm(site: Site) -> None:
    """Workers die at random moments: nothing is lost, and nothing is finished twice."""
    dice = random.Random(11)
    workers = [site.worker(lease=2) for _ in range(2)]
    fill(site, 0.2)
    site.until(lambda: site.noted("start"))
    for _ in range(6):
        time.sleep(dice.uniform(0.1, 0.6))
        victim = dice.randrange(2)
        workers[victim].kill()
        workers[victim].wait()
        workers[victim] = site.worker(lease=2)
    site.until(lambda: all_done(site), 60)
    assert look(site, _finishes) == JOBS
    # The kills hit something.
    assert look(site, _crashes) > 0
    for worker in workers:
        worker.terminate()
    for worker in workers:
        assert worker.wait(20) == 0


@pytest.mark.slow
def test_workers_outlive_a_crash_of_the_server(project_root: Path, tmp_path: Path) -> None:
    """No worker exits, work goes on by itself, and nobody is held for dead."""
    with private_server() as server:
        site = Site(project_root, tmp_path, server.url(schema="flow"))
        try:
            _ride_out_a_restart(site, server)
        finally:
            site.end()


def _ride_out_a_restart(site: Site, server: PrivateServer) -> None:
    workers = [site.worker(lease=5) for _ in range(2)]
    fill(site, 0.1)
    site.until(lambda: len(site.noted("end")) > JOBS // 10)
    server.stop(immediate=True)
    time.sleep(2)
    server.start()
    back = time.monotonic()
    ended = len(site.noted("end"))
    site.until(lambda: len(site.noted("end")) > ended + 20, 20)
    assert time.monotonic() - back < 10
    site.until(lambda: all_done(site), 60)
    assert look(site, _finishes) == JOBS
    assert look(site, _crashes) == 0
    assert [worker.poll() for worker in workers] == [None, None]
    for worker in workers:
        worker.terminate()
    for worker in workers:
        assert worker.wait(20) == 0
