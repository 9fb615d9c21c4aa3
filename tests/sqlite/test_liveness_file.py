"""Liveness files: a kill is seen at once, a stop after its lease, and a probe is harmless."""

import asyncio
import os
import signal
from pathlib import Path

import psutil
import pytest

from forge_jobs.backends.sqlite.os.database_file import DatabaseFile
from forge_jobs.backends.sqlite.os.liveness_file import LivenessFile, LivenessRecord, probe
from forge_jobs.backends.sqlite.store import SqliteStore
from forge_jobs.core.job import NewJob
from forge_jobs.store.job_upkeep import Reaped
from forge_jobs.store.processes import NewProcess, ProcessStats
from tests.sqlite.conftest import Start, read_line


async def reaped(store: SqliteStore) -> Reaped:
    return await store.jobs.reap(crash_note="gone", limit=100)


@pytest.mark.processes
async def test_a_killed_process_is_dead_at_once(
    store: SqliteStore, path: Path, start: Start
) -> None:
    await store.jobs.enqueue([NewJob(kind="k", queue="q")] * 3)
    child = start("work", path, "victim", 3600)
    key, claimed = read_line(child).split()
    assert claimed == "3"
    assert [process.host_id for process in await store.processes.all()] == ["victim"]
    assert await reaped(store) == Reaped()
    child.kill()
    child.wait()
    assert await store.processes.all() == []
    assert await reaped(store) == Reaped(pending=3)
    assert not (await store.processes.heartbeat(int(key), ProcessStats())).alive
    assert await store.processes.remove_dead() == 1
    assert os.listdir(f"{path}-forge/live") == []


async def test_files_without_a_process_are_removed(store: SqliteStore, path: Path) -> None:
    database = DatabaseFile.at(path)
    left = LivenessFile(database, "left")
    left.publish(LivenessRecord(7, 15.0, 5))
    await store.processes.register(
        NewProcess(host_id="h", label="h", queues=("q",), pid=1, hostname="here")
    )
    assert await store.processes.remove_dead() == 0
    assert sorted(os.listdir(database.part("live"))) == ["h", "left"]
    left.close()
    assert await store.processes.remove_dead() == 0
    assert os.listdir(database.part("live")) == ["h"]


@pytest.mark.processes
async def test_a_stopped_process_is_dead_after_its_lease(
    store: SqliteStore, path: Path, start: Start
) -> None:
    await store.jobs.enqueue([NewJob(kind="k", queue="q")])
    child = start("work", path, "sleeper", 1)
    read_line(child)
    psutil.Process(child.pid).send_signal(signal.SIGSTOP)
    async with asyncio.timeout(30):
        while (await reaped(store)).pending == 0:
            await asyncio.sleep(0.1)
    assert await store.processes.all() == []
    psutil.Process(child.pid).send_signal(signal.SIGCONT)


async def test_a_probe_neither_takes_nor_breaks_the_lock(store: SqliteStore, path: Path) -> None:
    database = DatabaseFile.at(path)
    key = await store.processes.register(
        NewProcess(host_id="h", label="h", queues=("q",), pid=1, hostname="here", lease_s=60)
    )
    for _ in range(20):
        record = probe(database, "h")
        assert record is not None
        assert record.key == key
    stats = ProcessStats(running=2, slots={"q": 5}, memory_bytes=99)
    assert (await store.processes.heartbeat(key, stats)).alive
    record = probe(database, "h")
    assert record is not None
    assert record.stats == stats


async def test_a_torn_file_is_read_again_and_a_broken_one_is_ignored(
    store: SqliteStore, path: Path
) -> None:
    database = DatabaseFile.at(path)
    file = LivenessFile(database, "torn")
    file.publish(LivenessRecord(1, 15.0, 5))
    assert probe(database, "torn") == LivenessRecord(1, 15.0, 5)
    with open(database.part("live", "torn"), "r+b") as other:
        other.write(b"0000")
    assert probe(database, "torn") is None
    file.write(LivenessRecord(1, 15.0, 6))
    assert probe(database, "torn") == LivenessRecord(1, 15.0, 6)
    file.remove()
    assert probe(database, "torn") is None
    assert os.listdir(database.part("live")) == []


async def test_a_second_registration_ends_the_first(store: SqliteStore) -> None:
    me = NewProcess(host_id="h", label="h", queues=("q",), pid=1, hostname="here")
    first = await store.processes.register(me)
    second = await store.processes.register(me)
    assert not (await store.processes.heartbeat(first, ProcessStats())).alive
    assert (await store.processes.heartbeat(second, ProcessStats())).alive
    assert [process.key for process in await store.processes.all()] == [second]
    await store.processes.deregister(first)
    assert (await store.processes.heartbeat(second, ProcessStats())).alive
