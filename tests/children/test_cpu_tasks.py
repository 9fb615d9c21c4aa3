"""``@forge.task(cpu=True)`` with a complete worker process."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from forge_jobs import JobFailed
from forge_jobs.core.selection import Filter
from tests.children import forge_app
from tests.children.test_child_executor import written
from tests.children.test_child_process import gone_within


@pytest.fixture
async def worker() -> AsyncIterator[Any]:
    async with forge_app.forge.worker(queues=["cpu"]) as handle:
        yield handle


async def until_status(job: Any, status: str, seconds: float = 60) -> Any:
    deadline = time.monotonic() + seconds
    while (await job.arefresh()).status != status:
        assert time.monotonic() < deadline, f"{job.status}, not {status}"
        await asyncio.sleep(0.05)
    return job


async def test_a_cpu_task_runs_in_a_child_and_reports_everything(worker: Any) -> None:
    job = await forge_app.square.aenqueue(12)
    result = await job.aresult(timeout=60)
    assert result["square"] == 144
    assert result["pid"] != os.getpid()
    store = await forge_app.forge.aready()
    record = await store.jobs.get(job.id)
    assert record is not None
    assert (record.progress, record.progress_note) == (1.0, "half")
    lines = await store.metrics.logs(job.id)
    assert [line.message for line in lines] == ["squaring 12"]
    # The job that on_done carried was stored and runs.
    for _ in range(200):
        successors = [job for job in await _all(store) if job.kind == "collect"]
        if successors and successors[0].status == "done":
            break
        await asyncio.sleep(0.05)
    assert [job.result for job in successors] == [b"144"]


async def test_a_timeout_kills_the_child(worker: Any, tmp_path: Path) -> None:
    path = tmp_path / "pid"
    for _ in range(30):
        job = await forge_app.too_long.aenqueue(str(path))
        with pytest.raises(JobFailed, match="timed out after 1 s"):
            await job.aresult(timeout=60)
        # On a busy machine the second may be over before the child gets to run the job.
        if path.exists() and path.read_text():
            break
    assert gone_within(await written(path), 30)


async def test_a_cancellation_kills_the_child(worker: Any, tmp_path: Path) -> None:
    path = tmp_path / "pid"
    job = await forge_app.endless.aenqueue(str(path))
    pids = await written(path)
    await job.acancel()
    await until_status(job, "cancelled")
    assert gone_within(pids, 30)


async def test_three_crashes_make_the_job_dead(worker: Any) -> None:
    job = await forge_app.fatal.aenqueue()
    await until_status(job, "dead")
    record = await (await forge_app.forge.aready()).jobs.get(job.id)
    assert record is not None
    assert (record.crashes, record.attempts) == (3, 3)
    assert record.last_error == "child process died: exit code 1"


async def test_a_failure_is_retried_and_then_dead(worker: Any) -> None:
    job = await forge_app.fails.aenqueue()
    await until_status(job, "dead")
    record = await (await forge_app.forge.aready()).jobs.get(job.id)
    assert record is not None
    assert [error.message for error in record.errors] == [
        "RuntimeError: attempt 1",
        "RuntimeError: attempt 2",
    ]


async def test_a_shutdown_releases_jobs_that_run_in_children(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    async with forge_app.forge.worker(queues=["cpu"], shutdown_timeout=0.2):
        job = await forge_app.endless.aenqueue(str(path))
        pids = await written(path)
    assert gone_within(pids, 30)
    record = await (await forge_app.forge.aready()).jobs.get(job.id)
    assert record is not None
    assert (record.status, record.attempts) == ("pending", 0)
    await job.acancel()


async def _all(store: Any) -> list[Any]:
    return list((await store.jobs.page(Filter(), limit=100)).jobs)


async def test_a_child_learns_of_its_soft_timeout(worker: Any) -> None:
    job = await forge_app.wraps_up.aenqueue()
    assert await job.aresult(timeout=60) is False
    sooner = await forge_app.wraps_up.using(soft_timeout="50ms").aenqueue()
    assert await sooner.aresult(timeout=60) is False
    # With an hour to go the handler waits, in the same warm child.
    later = await forge_app.wraps_up.using(timeout="2h", soft_timeout="1h").aenqueue()
    await until_status(later, "running")
    await asyncio.sleep(2)
    assert (await later.arefresh()).status == "running"
    await later.acancel()
    await until_status(later, "cancelled")


async def test_u1_a_child_sends_the_traceback_of_its_handler(worker: Any) -> None:
    job = await forge_app.fails.aenqueue()
    await until_status(job, "dead")
    for error in job.errors:
        assert error.traceback is not None
        head, first, code, *rest = error.traceback.splitlines()
        assert head == "Traceback (most recent call last):"
        assert first.startswith(f'  File "{forge_app.__file__}", line ')
        assert code == '    raise RuntimeError(f"attempt {ctx.job.attempts}")'
        assert rest == [f"RuntimeError: attempt {error.attempt}"]


async def test_u1_a_crash_of_a_child_keeps_its_last_output_and_frames(worker: Any) -> None:
    job = await forge_app.segfaults.aenqueue()
    await until_status(job, "dead")
    assert "Segmentation fault" in job.traceback
    assert "in segfaults" in job.traceback
    assert "token=*** in the last words" in job.traceback
