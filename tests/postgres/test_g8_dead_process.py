"""G8: a killed worker's jobs and slots are free within seconds where another process of the machine
can tell that it is dead; a living worker without a connection keeps both."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from forge_jobs.backends.postgres import liveness_socket
from forge_jobs.backends.postgres.liveness_socket import LivenessSocket, is_dead
from forge_jobs.backends.postgres.store import PostgresStore
from forge_jobs.core.job import NewJob
from forge_jobs.core.selection import Filter
from forge_jobs.core.status import JobStatus
from forge_jobs.kit.entropy import SYSTEM_ENTROPY
from forge_jobs.testing.clock import MovableClock
from forge_jobs.testing.conformance.worker import Process
from rigs.storms.history import now
from tests.crash.conftest import Site

from .proxy import faulty_proxy

LEASE_S = 15.0
SOON_S = 8.0
HOLD = """
import sys
from forge_jobs.backends.postgres.liveness_socket import LivenessSocket
from forge_jobs.kit.entropy import SYSTEM_ENTROPY
kept = LivenessSocket(SYSTEM_ENTROPY)
print(kept.machine, flush=True)
sys.stdin.read()
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="abstract sockets are Linux's")


@pytest.fixture
def site(url: str, project_root: Path, tmp_path: Path) -> Iterator[Site]:
    made = Site(project_root, tmp_path, url)
    yield made
    made.end()


@pytest.mark.processes
def test_g8_a_socket_tells_a_dead_process_from_a_stopped_one() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        machine = process.stdout.readline().strip()
        assert not is_dead(machine)
        process.send_signal(signal.SIGSTOP)
        assert not is_dead(machine)
        process.kill()
        process.wait()
        assert is_dead(machine)
        assert is_dead(machine)
        # The same name elsewhere says nothing.
        place, _, token = machine.rpartition("/")
        assert not is_dead(f"{place}1/{token}")


@pytest.mark.processes
def test_g8_a_forked_child_does_not_keep_its_parent_alive() -> None:
    fork = f"{HOLD.replace('sys.stdin.read()', '')}\nimport os, time\nif os.fork() == 0:\n" + (
        "    print('child', os.getpid(), flush=True)\n    time.sleep(60)\nsys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", fork], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        machine = process.stdout.readline().strip()
        child = int(process.stdout.readline().split()[1])
        assert not is_dead(machine)
        process.kill()
        process.wait()
        try:
            assert is_dead(machine)
        finally:
            os.kill(child, signal.SIGKILL)


async def test_g8_a_silent_process_without_its_socket_is_dead(store: PostgresStore) -> None:
    """Both are needed: a process that still sends heartbeats is alive."""
    worker = await Process.register(store, MovableClock(), lease_s=0.9)
    await store.jobs.enqueue([NewJob(kind="work", queue="q")] * 2)
    await worker.claim(free=2)
    store.processes._liveness[worker.key].close()
    assert (await store.jobs.reap(crash_note="x", limit=9)).pending == 0
    silent_at = store.processes._silent_at
    assert silent_at is not None
    assert await store.processes.next_expiry() == silent_at
    await asyncio.sleep(0.35)
    await worker.heartbeat()
    assert (await store.jobs.reap(crash_note="x", limit=9)).pending == 0
    await asyncio.sleep(0.4)
    assert (await store.jobs.reap(crash_note="x", limit=9)).pending == 2
    assert not (await worker.heartbeat()).alive


async def test_g8_a_process_elsewhere_has_its_whole_lease(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = await Process.register(store, MovableClock(), lease_s=0.9)
    store.processes._liveness[worker.key].close()
    monkeypatch.setattr(liveness_socket, "_namespace", lambda: "elsewhere/net:[1]")
    await asyncio.sleep(0.5)
    await store.jobs.reap(crash_note="x", limit=9)
    assert (await worker.heartbeat()).alive


async def test_g8_a_cut_connection_of_a_living_worker_takes_nothing_from_it(url: str) -> None:
    """Its connections end at the server, as those of a dead process do; the socket does not."""
    other = PostgresStore(url)
    await other.open()
    async with faulty_proxy(url) as (proxy, through):
        store = PostgresStore(through)
        await store.open()
        worker = await Process.register(store, MovableClock(), lease_s=1.5)
        await store.jobs.enqueue([NewJob(kind="work", queue="q")])
        [job] = await worker.claim()
        for task in list(proxy._tasks):
            task.cancel()
        await asyncio.sleep(0.8)
        assert (await other.jobs.reap(crash_note="x", limit=9)).pending == 0
        assert (await worker.heartbeat()).alive
        [record] = (await other.jobs.page(Filter(), limit=9)).jobs
        assert (record.status, record.epoch) == (JobStatus.RUNNING, job.epoch)
        await store.close()
    await other.close()


async def test_g8_the_leadership_of_a_dead_process_is_free(store: PostgresStore) -> None:
    first = await Process.register(store, MovableClock())
    assert await store.processes.lead("services", first.key, ttl_s=600)
    second = await Process.register(store, MovableClock(), host_id="b")
    assert not await store.processes.lead("services", second.key, ttl_s=600)
    third = await Process.register(store, MovableClock(), host_id="c", replaces=first.host_id)
    assert await store.processes.lead("services", third.key, ttl_s=600)


def test_g8_a_name_is_freed_when_the_registration_ends() -> None:
    kept = LivenessSocket(SYSTEM_ENTROPY)
    assert kept.machine is not None
    assert not is_dead(kept.machine)
    kept.close()
    assert is_dead(kept.machine)


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize("successor", ["was there before", "starts afterwards"])
def test_g8_a_killed_workers_job_starts_again_soon_with_the_default_lease(
    site: Site, successor: str
) -> None:
    """One slot for all: the job can only start when the dead process's slot is free too. Slow: it
    waits for a heartbeat that does not come, 5 s."""
    killed = site.worker(lease=LEASE_S, slots=1)
    job = site.enqueue("cancel_then_finish", "again")
    site.until(lambda: bool(site.noted("start", "again")))
    if successor == "was there before":
        site.worker(lease=LEASE_S, slots=1)
        site.until_started(2)
    killed.kill()
    killed_at = now()
    killed.wait()
    if successor == "starts afterwards":
        site.worker(lease=LEASE_S, slots=1)
    site.until_status(job, "done")
    _, second = site.noted("start", "again")
    assert second["at"] - killed_at <= SOON_S
