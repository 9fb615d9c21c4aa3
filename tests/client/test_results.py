"""Job handles: waiting for results, cancelling, reading; one poller for all that is awaited."""

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from forge_jobs import (
    BadDuration,
    Context,
    Dead,
    Forge,
    Invalid,
    JobFailed,
    JobStatus,
    NotFound,
    Refused,
    ResultTimeout,
    Retry,
    Unavailable,
)
from forge_jobs.client import result_poller
from forge_jobs.store.jobs import Peek


@dataclass
class Point:
    x: int


async def test_a_result_comes_back_typed(forge: Forge) -> None:
    @forge.task
    async def make(x: int) -> Point:
        return Point(x)

    @forge.task
    def nothing() -> None: ...

    point, none = await make.aenqueue(3), await nothing.aenqueue()
    report = await forge.drain()
    assert (report.ran, report.done) == (2, 2)
    assert await point.aresult(timeout=60) == Point(3)
    assert await none.aresult(timeout=60) is None
    assert await forge.job(point.id).aresult(timeout=60) == Point(3)
    assert point.status is JobStatus.DONE


def test_sync_callers_wait_for_a_worker_elsewhere(forge: Forge) -> None:
    @forge.task
    async def double(n: int) -> int:
        return 2 * n

    started, leave = threading.Event(), threading.Event()

    async def work() -> None:
        async with forge.worker(queues=["default"]):
            started.set()
            await asyncio.to_thread(leave.wait)

    thread = threading.Thread(target=lambda: asyncio.run(work()))
    thread.start()
    try:
        assert started.wait(30)
        jobs = double.enqueue_many([(n,) for n in range(20)])
        assert [job.result(timeout=30) for job in jobs] == [2 * n for n in range(20)]
        assert jobs[0].refresh().attempts == 1
    finally:
        leave.set()
        thread.join()


async def test_jobs_that_end_badly(forge: Forge) -> None:
    @forge.task
    async def dies() -> None:
        raise Dead("no such address")

    @forge.task(max_attempts=1)
    async def breaks() -> None:
        raise OSError("disk on fire")

    @forge.task
    async def waits() -> None: ...

    dead, broken = await dies.aenqueue(), await breaks.aenqueue()
    await forge.drain()
    cancelled = await waits.aenqueue()
    assert await cancelled.acancel(reason="changed my mind") is True
    for job, status, text in (
        (dead, "dead", "no such address"),
        (broken, "dead", "disk on fire"),
        (cancelled, "cancelled", "changed my mind"),
    ):
        with pytest.raises(JobFailed) as caught:
            await job.aresult(timeout=60)
        assert (caught.value.job_id, caught.value.status) == (job.id, status)
        assert text in (caught.value.error or "")
        assert text in ((await job.arefresh()).error or "")
    assert await dead.acancel() is False


async def test_a_result_that_is_late(forge: Forge) -> None:
    @forge.task
    def never() -> None: ...

    job = await never.aenqueue()
    for timeout in (0, 0.05, "50ms"):
        with pytest.raises(ResultTimeout, match=f"job {job.id} has not ended within"):
            await job.aresult(timeout=timeout)
        with pytest.raises(ResultTimeout):
            await asyncio.to_thread(job.result, timeout)
    with pytest.raises(BadDuration, match="timeout"):
        await job.aresult(timeout=-1)
    assert forge.client.poller._waiters == {}


async def test_a_timeout_of_zero_reads_once(forge: Forge) -> None:
    @forge.task
    def one() -> int:
        return 1

    job = await one.aenqueue()
    await forge.drain()
    assert await job.aresult(timeout=0) == 1
    assert await asyncio.to_thread(job.result, 0) == 1


async def test_jobs_that_do_not_exist(forge: Forge) -> None:
    @forge.task
    def job() -> None: ...

    handle = await job.aenqueue()
    gone = forge.job(handle.id[:-3] + "ZZZ")
    for look in (gone.arefresh, gone.aresult, gone.acancel, lambda: gone.aresult(timeout=0)):
        with pytest.raises(NotFound, match=f"job {gone.id} does not exist here"):
            await look()


async def test_an_unread_handle_says_how_to_read_it(forge: Forge) -> None:
    handle = forge.job("01ARZ3NDEKTSV4RRFFQ69G5FAV")
    with pytest.raises(Invalid, match=r"call job\.refresh\(\)"):
        _ = handle.attempts
    with pytest.raises(Invalid, match="has not been read yet"):
        _ = handle.status
    assert "not read yet" in repr(handle)


async def test_the_job_log_can_be_read(forge: Forge) -> None:
    @forge.task(tags=["vip"])
    async def chatty(ctx: Context) -> None:
        ctx.log.info("one %d", 1)
        ctx.log.warning("two")
        ctx.progress(0.25, "a quarter")

    job = await chatty.aenqueue()
    await forge.drain()
    assert [(line.level, line.message) for line in await job.alogs()] == [
        ("info", "one 1"),
        ("warning", "two"),
    ]
    assert [line.message for line in await asyncio.to_thread(job.logs)] == ["one 1", "two"]
    await job.arefresh()
    assert (job.progress, job.progress_note) == (1.0, "a quarter")
    assert job.started_at is not None
    assert job.finished_at is not None
    assert job.finished_at >= job.started_at >= job.run_at
    assert job.errors == ()


async def test_failed_attempts_are_listed(forge: Forge) -> None:
    @forge.task(retry=Retry(delays=[0, 0]), max_attempts=3)
    async def flaky(ctx: Context) -> str:
        if ctx.job.attempts < 3:
            raise OSError(f"try {ctx.job.attempts}")
        return "at last"

    job = await flaky.aenqueue()
    await forge.drain()
    await job.arefresh()
    assert (job.status, job.attempts) == (JobStatus.DONE, 3)
    assert ["try 1" in job.errors[0].message, "try 2" in job.errors[1].message] == [True, True]


async def test_cancelling_a_job_that_runs_here_stops_it(forge: Forge) -> None:
    running = asyncio.Event()

    @forge.task
    async def long() -> None:
        running.set()
        await asyncio.sleep(600)

    async with forge.worker(queues=["default"]):
        job = await long.aenqueue()
        await asyncio.wait_for(running.wait(), 30)
        assert await job.acancel() is True
        with pytest.raises(JobFailed, match="cancelled"):
            await job.aresult(timeout=30)
    assert (await job.arefresh()).status is JobStatus.CANCELLED


async def test_a_blocking_wait_on_the_workers_own_loop_is_refused(forge: Forge) -> None:
    @forge.task
    async def job() -> int:
        return 1

    async with forge.worker(queues=["default"]):
        handle = await job.aenqueue()
        with pytest.raises(Refused, match=r"use await job\.aresult\(\)"):
            handle.result(timeout=5)
        assert await asyncio.to_thread(handle.result, 30) == 1


class Counting:
    """Passes queries on to the real store and counts them; fails the first few."""

    def __init__(self, jobs: Any, refuse: int = 0) -> None:
        self._jobs = jobs
        self.refuse = refuse
        self.looks: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._jobs, name)

    async def peek(self, job_ids: Sequence[str]) -> list[Peek | None]:
        self.looks.append(len(job_ids))
        if self.refuse > 0:
            self.refuse -= 1
            raise Unavailable("not now")
        return await self._jobs.peek(job_ids)


async def test_one_poll_serves_all_waiters(forge: Forge, monkeypatch: pytest.MonkeyPatch) -> None:
    @forge.task
    async def job(n: int) -> int:
        return n

    store = await forge.aready()
    counting = Counting(store.jobs)
    monkeypatch.setattr(store, "jobs", counting)
    handles = await job.aenqueue_many([(n,) for n in range(200)])
    waiters = [asyncio.create_task(handle.aresult(timeout=60)) for handle in handles]
    waiters += [asyncio.create_task(handles[0].aresult(timeout=60)) for _ in range(50)]
    async with asyncio.timeout(60):
        while 200 not in counting.looks:
            await asyncio.sleep(0.01)
    await forge.drain()
    assert await asyncio.gather(*waiters) == [*range(200), *[0] * 50]
    assert max(counting.looks) == 200, "one call asks for each awaited job once"
    async with asyncio.timeout(60):
        while forge.client.poller._running:
            await asyncio.sleep(0.01)
    after = len(counting.looks)
    await asyncio.sleep(0.3)
    assert len(counting.looks) == after, "the poller rests when nobody waits"


async def test_a_short_outage_does_not_disturb_who_waits(
    forge: Forge, monkeypatch: pytest.MonkeyPatch
) -> None:
    @forge.task
    async def job() -> int:
        return 5

    handle = await job.aenqueue()
    await forge.drain()
    store = await forge.aready()
    counting = Counting(store.jobs, refuse=3)
    monkeypatch.setattr(store, "jobs", counting)
    assert await handle.aresult(timeout=30) == 5
    assert len(counting.looks) == 4


async def test_a_long_outage_reaches_who_waits(
    forge: Forge, monkeypatch: pytest.MonkeyPatch
) -> None:
    @forge.task
    async def job() -> int:
        return 5

    handle = await job.aenqueue()
    store = await forge.aready()
    monkeypatch.setattr(result_poller, "MAX_OUTAGE_S", 0.2)
    counting = Counting(store.jobs, refuse=10_000)
    monkeypatch.setattr(store, "jobs", counting)
    with pytest.raises(Unavailable):
        await handle.aresult(timeout=60)
    monkeypatch.undo()
    await forge.drain()
    assert await handle.aresult(timeout=30) == 5


def test_waiting_in_many_threads(forge: Forge) -> None:
    @forge.task
    async def job(n: int) -> int:
        return n

    handles = job.enqueue_many([(n,) for n in range(30)])
    found: dict[int, int] = {}
    threads = [
        threading.Thread(target=lambda n=n: found.update({n: handles[n].result(timeout=60)}))
        for n in range(30)
    ]
    for thread in threads:
        thread.start()
    asyncio.run(_drained(forge))
    for thread in threads:
        thread.join()
    assert found == {n: n for n in range(30)}


async def _drained(forge: Forge) -> None:
    await forge.drain()


async def test_u15d_a_handle_by_id_decodes_by_the_task_of_its_kind(any_url: str) -> None:
    forge = Forge(any_url)

    @forge.task
    async def make(x: int) -> Point:
        return Point(x)

    job_id = (await make.aenqueue(3)).id
    await forge.drain()
    assert await forge.job(job_id).aresult(timeout=60) == Point(3)
    assert await forge.job(job_id).aresult(timeout=0) == Point(3)
    assert await (await forge.job(job_id).arefresh()).aresult(timeout=0) == Point(3)
    for timeout in (0, 60):
        assert await asyncio.to_thread(forge.job(job_id).result, timeout) == Point(3)
    await forge.aclose()


async def test_u15d_without_the_task_the_result_is_plain_json(shared_url: str) -> None:
    forge, elsewhere = Forge(shared_url), Forge(shared_url)

    @forge.task
    async def make(x: int) -> Point:
        return Point(x)

    job_id = (await make.aenqueue(3)).id
    await forge.drain()
    assert await elsewhere.job(job_id).aresult(timeout=60) == {"x": 3}
    await forge.aclose()
    await elsewhere.aclose()


async def test_u15f_a_result_timeout_is_a_timeout_error(forge: Forge) -> None:
    @forge.task
    async def later() -> None: ...

    job = await later.using(delay="1h").aenqueue()
    for timeout in (0, 0.05):
        with pytest.raises(TimeoutError) as caught:
            await job.aresult(timeout=timeout)
        assert isinstance(caught.value, ResultTimeout)
        with pytest.raises(TimeoutError, match="has not ended within"):
            await asyncio.to_thread(job.result, timeout)
    assert caught.value.code == "result_timeout"


async def test_times_of_errors_and_log_lines_are_datetimes_too(forge: Forge) -> None:
    @forge.task(max_attempts=1)
    async def fail(ctx: Context) -> None:
        ctx.log.info("about to fail")
        raise ValueError("no")

    before = datetime.now(UTC)
    job = await fail.aenqueue()
    assert not job.ended
    await forge.drain()
    [error] = (await job.arefresh()).errors
    [line] = await job.alogs()
    assert job.ended
    for moment in (error.moment, line.moment):
        assert before - timedelta(seconds=5) < moment < datetime.now(UTC) + timedelta(seconds=5)


def test_a_hook_changes_a_job_without_another_library(forge: Forge) -> None:
    @forge.task
    def nothing() -> None: ...

    changed = nothing.bind().replace(tags=("a",), priority=3)
    assert (changed.kind, changed.tags, changed.priority) == ("nothing", ("a",), 3)
    assert nothing.bind().tags == ()
