"""Real worker processes that are stopped, killed and terminated, on one SQLite file."""

import asyncio
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from forge_jobs.backends.url import open_store
from forge_jobs.core.selection import Filter
from forge_jobs.core.status import JobStatus
from forge_jobs.engine.running.context import Context
from tests import between_writes
from tests.engine.rig import FAST, Rig, until
from tests.engine.worker_script import Marks, registry

pytestmark = pytest.mark.processes

Worker = subprocess.Popen[bytes]
Start = Callable[..., Worker]
LEASE_S = 2.0


@pytest.fixture
def marks(tmp_path: Path) -> Marks:
    folder = tmp_path / "marks"
    folder.mkdir()
    return Marks(folder)


@pytest.fixture
def url(tmp_path: Path) -> str:
    """One backend is enough here: tests/crash runs the like on each that processes can share."""
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def start(url: str, marks: Marks, project_root: Path) -> Iterator[Start]:
    workers: list[Worker] = []

    def run(*, slots: int = 10, grace_s: float = 5.0) -> Worker:
        settings = json.dumps({"lease_s": LEASE_S, "control_s": 0.2})
        worker = subprocess.Popen(
            [
                sys.executable, "-m", "tests.engine.worker_script",
                url, str(slots), str(grace_s), settings,
            ],
            cwd=project_root,
            env={**os.environ, "FORGE_TEST_MARKS": str(marks.folder)},
            start_new_session=True,
        )  # fmt: skip
        workers.append(worker)
        return worker

    yield run
    for worker in workers:
        if worker.poll() is None:
            os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()


@pytest.fixture
async def rig(url: str) -> Any:
    store = open_store(url)
    await store.open()
    yield Rig(store)
    await store.close()


async def test_M1_a_process_stopped_past_its_lease_is_refused_and_its_handler_interrupted(
    rig: Rig, start: Start, marks: Marks, url: str
) -> None:
    job_id = await rig.add("wait")
    stopped = start()
    await until(lambda: marks.count("started") == 1)
    between_writes.stop(stopped.pid, url)

    async def second(ctx: Context, given: Any) -> str:
        return "second"

    rig.on("wait", second)
    async with rig.working(settings=dataclasses.replace(FAST, lease_s=LEASE_S)):
        record = await rig.reaches(job_id, JobStatus.DONE)
        stopped.send_signal(signal.SIGCONT)
        await until(lambda: marks.count("told") == 1, "the first handler is told to stop")
        stopped.terminate()
        await until(lambda: stopped.poll() == 0)
    after = await rig.record(job_id)
    assert (after.result, after.attempts, after.crashes) == (b'"second"', 2, 1)
    assert after.epoch == record.epoch


async def test_a_killed_workers_job_starts_again(rig: Rig, start: Start, marks: Marks) -> None:
    job_id = await rig.add("wait", {"seconds": 60})
    first = start()
    await until(lambda: marks.count(f"started.{job_id}") == 1)
    second = start()
    await until(lambda: marks.count("ready") == 2)
    first.kill()
    killed_at = time.monotonic()
    await until(lambda: marks.count(f"started.{job_id}") == 2)
    assert time.monotonic() - killed_at < LEASE_S + 5
    assert second.poll() is None


async def test_sigterm_with_200_running_jobs(rig: Rig, start: Start, marks: Marks) -> None:
    await rig.add_many("wait", 220)
    worker = start(slots=200, grace_s=1.0)
    await until(lambda: marks.count("started") == 200)
    began = time.monotonic()
    worker.terminate()
    while worker.poll() is None:
        assert time.monotonic() - began < 60
        await asyncio.sleep(0.02)
    assert worker.returncode == 0
    assert marks.count("left") == 1
    assert await rig.counts() == {"pending": 220}
    page = await rig.store.jobs.page(Filter(), limit=300)
    assert {(job.attempts, job.crashes) for job in page.jobs} == {(0, 0)}


@pytest.mark.slow
async def test_a_job_that_kills_its_worker_is_dead_alone(
    rig: Rig, start: Start, marks: Marks
) -> None:
    await rig.add_many("quick", 500)
    deadly = await rig.add("deadly")
    await rig.add_many("quick", 500)
    workers: list[Worker] = []

    async def over() -> bool:
        # What a parent process does: it starts its worker again.
        if not workers or workers[-1].poll() is not None:
            assert len(workers) < 10
            workers.append(start(slots=20))
        return await rig.counts() == {"done": 1_000, "dead": 1}

    await until(over)
    record = await rig.record(deadly)
    assert record.status is JobStatus.DEAD
    assert record.crashes == 3
    assert 3 <= marks.count("deadly") <= 6
    workers[-1].terminate()
    await until(lambda: workers[-1].poll() == 0)


def test_the_script_knows_its_kinds() -> None:
    assert sorted(registry().kinds()) == ["deadly", "quick", "wait"]
