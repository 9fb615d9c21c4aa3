"""Several processes on one file: no errors, nothing lost or doubled, no writer starves."""

import asyncio
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from forge_jobs.backends.sqlite.store import SqliteStore
from forge_jobs.core.job import NewJob
from forge_jobs.core.status import JobStatus

from .conftest import Start, ended, read_line


def numbers(child: "subprocess.Popen[str]") -> dict[str, int]:
    words = (word.split("=") for word in ended(child).split())
    return {name: int(value) for name, value in words}


@pytest.mark.processes
async def test_four_processes_hammer_one_file(path: Path, start: Start) -> None:
    children = [start("hammer", path, f"host-{number}", 3) for number in range(4)]
    reported = [numbers(child) for child in children]
    enqueued = sum(each["enqueued"] for each in reported)
    applied = sum(each["verdict-applied"] for each in reported)
    assert all(set(each) <= {"enqueued", "verdict-applied"} for each in reported), reported
    store = SqliteStore(path)
    await store.open()
    counts = {count.status: count.jobs for count in await store.metrics.counts()}
    assert counts.get(JobStatus.DONE, 0) == applied
    assert sum(counts.values()) == enqueued
    assert set(counts) <= {JobStatus.DONE, JobStatus.PENDING}
    assert await store.processes.all() == []
    await store.close()


@pytest.mark.processes
async def test_one_dedupe_key_from_eight_processes_is_one_job(path: Path, start: Start) -> None:
    children = [start("dedupe", path, 1_000) for _ in range(8)]
    assert sum(int(ended(child)) for child in children) == 1
    store = SqliteStore(path)
    await store.open()
    assert [count.jobs for count in await store.metrics.counts()] == [1]
    await store.close()


@pytest.mark.processes
async def test_ten_processes_create_one_database_at_once(path: Path, start: Start) -> None:
    children = [start("open_only", path) for _ in range(10)]
    tags: set[str] = set()
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    for child in children:
        tags.add(ended(child).strip())
    assert len(tags) == 1
    store = SqliteStore(path)
    await store.open()
    assert [count.jobs for count in await store.metrics.counts()] == [10]
    await store.close()


@pytest.mark.processes
def test_the_fair_lock_starves_no_process(tmp_path: Path, start: Start) -> None:
    children = [start("take_turns", tmp_path, 2) for _ in range(4)]
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    counts = [int(ended(child).split()[0]) for child in children]
    assert min(counts) > sum(counts) / 4 / 3, counts


@pytest.mark.processes
async def test_a_stopped_holder_of_the_fair_lock_blocks_no_process(
    path: Path, start: Start
) -> None:
    store = SqliteStore(path)
    await store.open()
    child = start("hold_fair_lock", f"{path}-forge")
    assert read_line(child) == "mine"
    psutil.Process(child.pid).send_signal(signal.SIGSTOP)
    async with asyncio.timeout(60):
        await store.jobs.enqueue([NewJob(kind="k", queue="q")])
        for _ in range(20):
            store.enqueue_sync([NewJob(kind="k", queue="q")])
        await store.jobs.promote(limit=10)
        await store.close()


@pytest.mark.processes
async def test_a_foreign_writer_is_waited_for_without_an_error(path: Path, start: Start) -> None:
    store = SqliteStore(path)
    await store.open()
    child = start("lock", path)
    assert child.stdout is not None
    assert child.stdout.readline() == "locked\n"
    waiting = asyncio.create_task(store.jobs.enqueue([NewJob(kind="k", queue="q")]))
    await asyncio.sleep(0.3)
    assert not waiting.done()
    assert await store.metrics.counts() == []
    assert child.stdin is not None
    child.stdin.write("\n")
    child.stdin.flush()
    (answer,) = await asyncio.wait_for(waiting, 30)
    assert answer.key == 1
    await store.close()
