"""U2: a producer that comes first. The first worker that has the task gives the job what it
declares, before its handler runs."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from forge_jobs import BadOption, Context, Forge, JobRecord, JobStatus, Retry
from forge_jobs.core.selection import Filter
from tests.declared.conftest import DEADLINE_S, SETTINGS, application, publish


async def _record(forge: Forge, job_id: str) -> JobRecord:
    found = await (await forge.aready()).jobs.get(job_id)
    assert found is not None
    return found


async def _until_ended(forge: Forge, job_id: str) -> JobRecord:
    async with asyncio.timeout(DEADLINE_S):
        while True:
            record = await _record(forge, job_id)
            if record.status in (JobStatus.DONE, JobStatus.DEAD, JobStatus.CANCELLED):
                return record
            await asyncio.sleep(0.02)


async def test_u2_a_payment_enqueued_first_runs_once(shared_url: str, other: Forge) -> None:
    job = await other.aenqueue("charge", {"account": "a1"}, queue="pay")
    stored = await _record(other, job.id)
    assert stored.options == {"undeclared": []}
    app = application(shared_url)
    async with app.worker(queues=["pay"]):
        record = await _until_ended(other, job.id)
    assert (record.status, record.attempts, record.max_attempts) == (JobStatus.DEAD, 1, 1)
    assert (record.priority, record.timeout_s, record.tags) == (7, 30.0, ("billing",))
    assert (record.lane, record.limit_key) == ("ledger", "task:charge/a1")
    assert record.options == {"soft_timeout_s": 20.0}
    assert len(record.errors) == 1
    page = await (await other.aready()).jobs.page(Filter(kind="tell"), limit=10)
    assert [letter.queue for letter in page.jobs] == ["desk"]
    await app.aclose()


async def test_u2_a_job_without_a_queue_moves_to_the_one_its_worker_publishes(
    shared_url: str, other: Forge
) -> None:
    """No worker serves the default queue, where the producer's job had to wait."""
    job = await other.aenqueue("charge", {"account": "a1"})
    later = await other.aenqueue("charge", {"account": "a2"}, delay="1s")
    named = await other.aenqueue("charge", {"account": "a3"}, queue="default")
    assert (await _record(other, job.id)).queue == "default"
    app = application(shared_url)
    async with app.worker():
        records = [await _until_ended(other, one.id) for one in (job, later)]
    for record in records:
        assert (record.status, record.attempts, record.queue) == (JobStatus.DEAD, 1, "pay")
        assert (record.max_attempts, record.options) == (1, {"soft_timeout_s": 20.0})
    assert (await _record(other, named.id)).queue == "default"
    await app.aclose()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"max_attempts": 5}, {"max_attempts": 5}),
        ({"max_attempts": 3, "priority": 0}, {"max_attempts": 3, "priority": 0}),
        ({"tags": []}, {"tags": ()}),
        ({"tags": ["mine"]}, {"tags": ("mine",)}),
        ({"timeout": None}, {"timeout_s": None}),
        ({"timeout": "5s"}, {"timeout_s": 5.0}),
        ({"soft_timeout": None}, {"timeout_s": 30.0}),
        ({"lane": "own"}, {"lane": "own", "timeout_s": 30.0}),
    ],
)
async def test_u2_what_the_producer_gave_comes_first(
    shared_url: str, other: Forge, given: dict[str, Any], expected: dict[str, Any]
) -> None:
    job = await other.aenqueue("charge", {"account": "a1"}, queue="pay", **given)
    app = Forge(shared_url, settings=SETTINGS)

    @app.task(
        queue="pay",
        max_attempts=1,
        priority=7,
        timeout="30s",
        soft_timeout="20s",
        tags=["billing"],
        lane="ledger",
    )
    def charge(account: str, ctx: Context) -> bool:
        return ctx.deadline is not None

    async with app.worker(queues=["pay"]):
        record = await _until_ended(other, job.id)
    assert record.status is JobStatus.DONE
    found = {name: getattr(record, name) for name in expected}
    assert found == expected
    has_deadline = given != {"timeout": None}
    assert record.result == (b"true" if has_deadline else b"false")
    if given == {"soft_timeout": None}:
        assert record.options == {"soft_timeout_s": None}
    if given == {"timeout": "5s"}:
        assert record.options == {"soft_timeout_s": 4.5}, "time is left to wrap up"
    await app.aclose()


async def test_u2_a_lane_and_a_limit_hold_for_jobs_that_came_first(
    shared_url: str, other: Forge
) -> None:
    jobs = [await other.aenqueue("visit", {"host": "a"}, queue="q") for _ in range(6)]
    app = Forge(shared_url, settings=SETTINGS)
    inside, most = 0, 0

    @app.task(queue="q", concurrency=1, per="args.host", retry=Retry(base="10ms"))
    async def visit(host: str) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0.02)
        inside -= 1

    async with app.worker(queues=["q:6"]):
        records = [await _until_ended(other, job.id) for job in jobs]
    assert [record.status for record in records] == [JobStatus.DONE] * 6
    assert most == 1
    await app.aclose()


async def test_u2_using_timeout_none_removes_the_tasks_timeout(any_url: str) -> None:
    forge = Forge(any_url, settings=SETTINGS)

    @forge.task(timeout="30s")
    async def job(ctx: Context) -> bool:
        return ctx.deadline is not None

    limited = await job.aenqueue()
    free = await job.using(timeout=None).aenqueue()
    by_kind = await forge.aenqueue("job", {}, timeout=None)
    await forge.drain()
    assert await limited.aresult(timeout=5) is True
    assert await free.aresult(timeout=5) is False
    assert await by_kind.aresult(timeout=5) is False
    await forge.aclose()


async def test_u2_a_soft_timeout_by_kind_is_compared_with_the_tasks_timeout(
    shared_url: str, other: Forge
) -> None:
    app = application(shared_url)
    with pytest.raises(BadOption, match=r"soft_timeout= \(40 s\) must be shorter"):
        await app.aenqueue("charge", {"account": "a"}, soft_timeout="40s")
    await publish(app)
    with pytest.raises(BadOption, match=r"soft_timeout= \(40 s\) must be shorter"):
        await other.aenqueue("charge", {"account": "a"}, soft_timeout="40s")
    await app.aclose()


async def test_u2_drain_runs_jobs_that_came_first(any_url: str) -> None:
    forge = Forge(any_url, settings=SETTINGS)
    job = await forge.aenqueue("late", {}, queue="q")
    seen: list[int] = []

    @forge.task(queue="q", max_attempts=1)
    async def late(ctx: Context) -> None:
        seen.append(ctx.job.max_attempts)
        raise OSError

    await forge.drain()
    assert (await job.arefresh()).status is JobStatus.DEAD
    assert seen == [1]
    await forge.aclose()


_SCRIPT = """
import asyncio, os, sys
from forge_jobs import EngineSettings, Forge

forge = Forge(sys.argv[1], settings=EngineSettings(lease_s=2.0))

@forge.task(queue="pay", max_attempts=1)
def charge() -> None:
    with open(sys.argv[2], "a") as file:
        file.write("ran\\n")
    os.kill(os.getpid(), 9)

async def main() -> None:
    async with forge.worker(queues=["pay"]):
        await asyncio.sleep(120)

asyncio.run(main())
"""


async def test_u2_a_payment_whose_first_worker_is_killed_does_not_run_again(
    shared_url: str, other: Forge, tmp_path: Path
) -> None:
    job = await other.aenqueue("charge", {}, queue="pay")
    script, runs = tmp_path / "script.py", tmp_path / "runs"
    script.write_text(_SCRIPT)
    arguments = [sys.executable, str(script), shared_url, str(runs)]
    first = await asyncio.create_subprocess_exec(*arguments, stderr=subprocess.DEVNULL)
    assert await asyncio.wait_for(first.wait(), DEADLINE_S) == -signal.SIGKILL
    second = await asyncio.create_subprocess_exec(*arguments, stderr=subprocess.DEVNULL)
    try:
        record = await _until_ended(other, job.id)
    finally:
        if second.returncode is None:
            os.kill(second.pid, signal.SIGKILL)
        await second.wait()
    assert runs.read_text() == "ran\n"
    assert (record.status, record.max_attempts) == (JobStatus.DEAD, 1)
