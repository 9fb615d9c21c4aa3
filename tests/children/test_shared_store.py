"""``cpu=True`` on SQLite and Postgres: children open the worker's store themselves."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from forge_jobs import Forge, JobStatus
from forge_jobs.core.selection import Filter
from tests.children.test_child_process import gone_within

DEADLINE_S = 60


@pytest.fixture
async def forge(shared_url: str, project_root: Path, tmp_path: Path) -> AsyncIterator[Forge]:
    """A client of a store; a worker process with child processes serves it."""
    made = Forge(shared_url)
    await made.aready()
    with (tmp_path / "worker.log").open("wb") as log:
        worker = subprocess.Popen(
            [
                sys.executable, "-m", "forge_jobs.cli.worker_child",
                "tests.children.shared_app:forge", "--queues", "cpu:4", "--grace", "1",
            ],
            cwd=project_root,
            env={**os.environ, "CHILDREN_URL": shared_url},
            stdout=log,
            stderr=log,
        )  # fmt: skip
        try:
            yield made
        finally:
            worker.send_signal(signal.SIGTERM)
            try:
                worker.wait(DEADLINE_S)
            finally:
                worker.kill()
                worker.wait()
            await made.aclose()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not holds():
            await asyncio.sleep(0.05)


async def test_a_child_stores_jobs_and_takes_permits(forge: Forge) -> None:
    job = await forge.aenqueue("spread", {"number": 7}, queue="cpu")
    result = await job.aresult(timeout=DEADLINE_S)
    assert result["pid"] != result["parent"] != os.getpid()
    store = await forge.aready()
    record = await store.jobs.get(job.id)
    assert record is not None
    assert (record.progress, record.progress_note) == (1.0, "half")
    assert [line.message for line in await store.metrics.logs(job.id)] == ["spreading 7"]
    ways: set[str] = set()
    async with asyncio.timeout(DEADLINE_S):
        while len(ways) < 2:
            page = await store.jobs.page(Filter(kind="collect"), limit=9)
            ended = [one for one in page.jobs if one.status is JobStatus.DONE]
            assert {one.limit_key for one in page.jobs} <= {"task:collect/7"}
            ways = {(one.result or b"").decode() for one in ended}
            await asyncio.sleep(0.05)
    assert ways == {'"by kind"', '"on done"'}


async def test_children_that_die_or_time_out(forge: Forge, tmp_path: Path) -> None:
    marks = [str(tmp_path / name) for name in ("dies", "long", "endless")]
    dies = await forge.aenqueue("dies_once", {"mark": marks[0]}, queue="cpu")
    long = await forge.aenqueue("too_long", {"mark": marks[1]}, queue="cpu", max_attempts=1)
    endless = await forge.aenqueue("endless", {"mark": marks[2]}, queue="cpu")
    survivor = await dies.aresult(timeout=DEADLINE_S)
    assert survivor != int(Path(marks[0]).read_text())
    record = await (await forge.aready()).jobs.get(dies.id)
    assert record is not None
    assert (record.attempts, record.crashes) == (2, 1)
    await until(lambda: Path(marks[2]).exists() and Path(marks[2]).read_text() != "")
    await endless.acancel()
    async with asyncio.timeout(DEADLINE_S):
        while (await long.arefresh()).status != "dead" or (
            await endless.arefresh()
        ).status != "cancelled":
            await asyncio.sleep(0.05)
    # On a busy machine the time of too_long may be up before its child gets to run it.
    pids = [int(Path(mark).read_text()) for mark in marks[1:] if Path(mark).exists()]
    assert await asyncio.to_thread(gone_within, pids, DEADLINE_S)
