"""The shutdown of a worker: in order, in time, without spending an attempt."""

import asyncio
import dataclasses
import threading
import time
from typing import Any

import pytest

from forge_jobs.core.errors import Unavailable
from forge_jobs.core.outcome import Failed, Snooze
from forge_jobs.core.selection import Filter
from forge_jobs.core.status import JobStatus
from forge_jobs.engine.running.context import Context
from forge_jobs.store.store import Store
from tests.engine.faulty import FaultyStore
from tests.engine.rig import FAST, Rig, until


async def test_A3_everything_stops_at_once_and_unfinished_jobs_are_released(rig: Rig) -> None:
    running = 0

    async def body(ctx: Context, given: Any) -> None:
        nonlocal running
        running += 1
        await asyncio.sleep(60)

    rig.on("work", body)
    await rig.add_many("work", 250)
    handle = await rig.runtime({"q": 200}).start()
    await until(lambda: running == 200)
    began = time.monotonic()
    await handle.shutdown_graceful(1)
    assert time.monotonic() - began < 30
    assert running == 200, "nothing was started while others were being stopped"
    assert await rig.counts() == {"pending": 250}
    page = await rig.store.jobs.page(Filter(), limit=300)
    assert {job.attempts for job in page.jobs} == {0}
    assert {job.errors for job in page.jobs} == {()}
    assert await rig.store.processes.all() == []


async def test_A3_jobs_that_finish_within_the_grace_are_recorded(rig: Rig) -> None:
    async def body(ctx: Context, given: Any) -> str:
        await asyncio.sleep(0.3)
        return "in time"

    rig.on("work", body)
    ids = await rig.add_many("work", 5)
    handle = await rig.runtime({"q": 5}).start()
    await until(lambda: handle.running == 5)
    await handle.shutdown_graceful(10)
    for job_id in ids:
        record = await rig.record(job_id)
        assert (record.status, record.result) == (JobStatus.DONE, b'"in time"')


@pytest.mark.parametrize("answer", ["failed", "error", "done", "snooze"])
async def test_A2_outcomes_of_handlers_during_the_shutdown(rig: Rig, answer: str) -> None:
    started = asyncio.Event()

    async def body(ctx: Context, given: Any) -> Any:
        started.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            if answer == "error":
                raise ValueError("interrupted") from None
            return {"failed": Failed("stopped"), "done": 1, "snooze": Snooze("1h")}[answer]

    rig.on("work", body)
    job_id = await rig.add("work")
    handle = await rig.runtime().start()
    await started.wait()
    await handle.shutdown_graceful(0)
    record = await rig.record(job_id)
    expected = {
        "failed": (JobStatus.PENDING, 0),
        "error": (JobStatus.PENDING, 0),
        "done": (JobStatus.DONE, 1),
        "snooze": (JobStatus.SCHEDULED, 0),
    }
    assert (record.status, record.attempts) == expected[answer]
    assert record.errors == ()


async def test_jobs_of_threads_that_do_not_end_are_released_too(rig: Rig) -> None:
    release, told = threading.Event(), threading.Event()

    def body(ctx: Context, given: Any) -> None:
        while not ctx.cancelled:
            time.sleep(0.005)
        told.set()
        release.wait(60)

    rig.on("work", body)
    job_id = await rig.add("work")
    handle = await rig.runtime().start()
    await until(lambda: handle.running == 1)
    try:
        await handle.shutdown_graceful(0)
        assert told.is_set()
        record = await rig.record(job_id)
        assert (record.status, record.attempts) == (JobStatus.PENDING, 0)
    finally:
        release.set()


async def test_the_shutdown_is_in_time_although_the_store_is_down(store: Store) -> None:
    faulty = FaultyStore(store)
    rig = Rig(faulty)  # type: ignore[arg-type]

    async def body(ctx: Context, given: Any) -> None:
        await asyncio.sleep(60)

    class Dead:
        def __getattr__(self, name: str) -> Any:
            async def call(*args: Any, **kwargs: Any) -> Any:
                await asyncio.sleep(60)

            return call

    rig.on("work", body)
    await rig.add_many("work", 5)
    handle = await rig.runtime(settings=dataclasses.replace(FAST, shutdown_s=1.5)).start()
    await until(lambda: handle.running == 5)
    faulty.jobs.hanging = asyncio.Event()
    handle._process._registration._processes = Dead()
    began = time.monotonic()
    await handle.shutdown_graceful(1)
    assert time.monotonic() - began < 30
    faulty.jobs.hanging.set()


async def test_shutdown_while_the_store_refuses(store: Store) -> None:
    faulty = FaultyStore(store)
    rig = Rig(faulty)  # type: ignore[arg-type]

    async def body(ctx: Context, given: Any) -> None:
        return None

    rig.on("work", body)
    await rig.add_many("work", 5)
    faulty.jobs.before = lambda request: Unavailable("down") if request.finish else None
    handle = await rig.runtime(settings=dataclasses.replace(FAST, shutdown_s=5.0)).start()
    await until(lambda: any(request.finish for request in faulty.jobs.requests))
    await handle.shutdown_graceful(0)
    assert await rig.counts() == {"pending": 5}


async def test_a_worker_leaves_nothing_behind(rig: Rig) -> None:
    async def body(ctx: Context, given: Any) -> None:
        return None

    rig.on("work", body)
    rig.on("thread", lambda ctx, given: None)
    before = set(asyncio.all_tasks())
    threads = {thread.name for thread in threading.enumerate()}
    for _ in range(3):
        async with rig.working():
            await rig.runs("work")
            await rig.runs("thread")
    # The store notifies others of the deregistration after the call has returned.
    await until(lambda: set(asyncio.all_tasks()) == before, "our tasks end")

    def ours() -> set[str]:
        names = {thread.name for thread in threading.enumerate()} - threads
        return {name for name in names if name.startswith(("forge-job", "forge-io"))}

    await until(lambda: not ours(), "our threads end")
    assert await rig.store.processes.all() == []


async def test_stopping_twice_is_fine_and_the_leadership_is_released(rig: Rig) -> None:
    settings = dataclasses.replace(FAST, lease_s=5.0)
    handle = await rig.runtime(settings=settings).start()

    async def leads() -> bool:
        return await handle._process._leadership.is_leader()

    await until(leads)
    await handle.shutdown_graceful(0)
    await handle.shutdown_graceful(0)
    async with rig.working(settings=settings) as successor:
        assert await successor._process._leadership.is_leader()


async def test_an_impatient_stop_still_tears_everything_down(rig: Rig) -> None:
    async def body(ctx: Context, given: Any) -> None:
        await asyncio.sleep(60)

    rig.on("work", body)
    job_id = await rig.add("work")
    before = set(asyncio.all_tasks())
    handle = await rig.runtime().start()
    await until(lambda: handle.running == 1)
    stopping = asyncio.create_task(handle.shutdown_graceful(60))
    await asyncio.sleep(0.1)
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    assert set(asyncio.all_tasks()) - before - {stopping} == set()
    record = await rig.record(job_id)
    assert (record.status, record.attempts) == (JobStatus.PENDING, 0)


def test_a_loop_that_is_torn_down_under_a_worker_does_not_hang(tmp_path: Any) -> None:
    """No shutdown at all: asyncio.run cancels everything and must come to an end."""
    from forge_jobs.backends.memory.store import MemoryStore

    async def main() -> None:
        rig = Rig(MemoryStore())

        async def body(ctx: Context, given: Any) -> None:
            await asyncio.sleep(60)

        rig.on("work", body)
        await rig.add_many("work", 30)
        handle = await rig.runtime({"q": 5}).start()
        await until(lambda: handle.running == 5)

    asyncio.run(main())
