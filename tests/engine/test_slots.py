"""Slots: what one job leaves behind never reaches the next, and time limits hold."""

import asyncio
import contextvars
import dataclasses
import threading
import time
from typing import Any

import pytest

from forge_jobs.core.outcome import Dead
from forge_jobs.core.status import JobStatus
from forge_jobs.engine.running.context import Context
from tests.engine.rig import FAST, Rig, until

MARK: contextvars.ContextVar[str] = contextvars.ContextVar("mark", default="clean")


@pytest.mark.parametrize("waits", [False, True])
async def test_context_variables_do_not_reach_the_next_job_of_a_slot(rig: Rig, waits: bool) -> None:
    seen: list[str] = []

    async def body(ctx: Context, given: Any) -> None:
        seen.append(MARK.get())
        MARK.set("dirty")
        if waits:
            await asyncio.sleep(0)

    rig.on("work", body)
    ids = await rig.add_many("work", 30)
    async with rig.working({"q": 1}):
        for job_id in ids:
            await rig.reaches(job_id, JobStatus.DONE)
    assert seen == ["clean"] * 30


async def test_context_variables_do_not_reach_the_next_job_of_a_thread(rig: Rig) -> None:
    seen: list[str] = []

    def body(ctx: Context, given: Any) -> None:
        seen.append(MARK.get())
        MARK.set("dirty")

    rig.on("work", body)
    ids = await rig.add_many("work", 30)
    async with rig.working({"q": 1}):
        for job_id in ids:
            await rig.reaches(job_id, JobStatus.DONE)
    assert seen == ["clean"] * 30


async def test_a_slot_runs_many_jobs_in_one_task(rig: Rig) -> None:
    tasks: list[object] = []

    async def body(ctx: Context, given: Any) -> None:
        tasks.append(asyncio.current_task())

    rig.on("work", body)
    await rig.add_many("work", 50)
    async with rig.working({"q": 1}):
        await until(lambda: len(tasks) == 50)
    assert len(set(tasks)) == 1


async def test_never_more_jobs_than_slots_and_all_slots_are_used(rig: Rig) -> None:
    running = most = 0

    async def body(ctx: Context, given: Any) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.005)
        running -= 1

    rig.on("work", body)
    await rig.add_many("work", 200)
    async with rig.working({"q": 7}):
        await until(lambda: _all_done(rig, 200))
    assert most == 7


async def test_threads_run_side_by_side_up_to_the_slots(rig: Rig) -> None:
    everyone = threading.Barrier(6)

    def body(ctx: Context, given: Any) -> None:
        everyone.wait(60)

    rig.on("work", body)
    ids = await rig.add_many("work", 12)
    async with rig.working({"q": 6}):
        for job_id in ids:
            await rig.reaches(job_id, JobStatus.DONE)


async def test_a_busy_queue_of_threads_does_not_starve_the_loop_or_another_queue(rig: Rig) -> None:
    release = threading.Event()

    def blocking(ctx: Context, given: Any) -> None:
        release.wait(60)

    async def quick(ctx: Context, given: Any) -> str:
        return "quick"

    rig.on("blocking", blocking)
    rig.on("quick", quick)
    rig.on("quick-def", lambda ctx, given: "quick")
    await rig.add_many("blocking", 20, queue="slow")
    async with rig.working({"slow": 4, "q": 2}):
        assert (await rig.runs("quick")).status is JobStatus.DONE
        assert (await rig.runs("quick-def")).status is JobStatus.DONE
        release.set()
        await until(lambda: _all_done(rig, 22))


@pytest.mark.parametrize("queues", [["a", "b"], ["a", "b", "c"]])
async def test_a_flooded_queue_does_not_starve_another(rig: Rig, queues: list[str]) -> None:
    order: list[str] = []

    async def body(ctx: Context, given: Any) -> None:
        order.append(ctx.job.queue)

    rig.on("work", body)
    for queue in queues:
        await rig.add_many("work", 1_500, queue=queue)
    async with rig.working(dict.fromkeys(queues, 50)):
        await until(lambda: _all_done(rig, 1_500 * len(queues)))
    first_half = order[: len(order) // 2]
    for queue in queues:
        assert first_half.count(queue) > len(first_half) / len(queues) / 6


async def test_A27_an_async_handler_is_cancelled_at_its_time_limit(rig: Rig) -> None:
    ended: list[str] = []

    async def body(ctx: Context, given: Any) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("tidied up")

    rig.on("work", body, timeout_s=0.05)
    async with rig.working({"q": 1}):
        record = await rig.runs("work")
        assert (record.status, record.last_error) == (JobStatus.FAILED, "timed out after 0.05 s")
        own = await rig.runs("work", timeout_s=0.01, max_attempts=1)
        assert (own.status, own.last_error) == (JobStatus.DEAD, "timed out after 0.01 s")
    assert ended == ["tidied up"] * 2


async def test_A27_a_timed_out_thread_keeps_its_row_until_it_ends(rig: Rig) -> None:
    release, told = threading.Event(), threading.Event()

    def body(ctx: Context, given: Any) -> str:
        while not ctx.cancelled:
            time.sleep(0.005)
        told.set()
        release.wait(60)
        return "too late"

    rig.on("work", body, timeout_s=0.05)
    async with rig.working({"q": 1}):
        job_id = await rig.add("work")
        await until(told.is_set)
        await asyncio.sleep(0.2)
        assert (await rig.record(job_id)).status is JobStatus.RUNNING
        release.set()
        record = await rig.reaches(job_id, JobStatus.FAILED)
        assert record.last_error == "timed out after 0.05 s"
        assert record.result is None


async def test_a_handler_that_swallows_its_cancellation_keeps_its_slot(rig: Rig) -> None:
    release = asyncio.Event()
    order: list[str] = []

    async def stubborn(ctx: Context, given: Any) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            order.append("cancelled")
        await release.wait()
        order.append("ended")

    async def after(ctx: Context, given: Any) -> None:
        order.append("next")

    rig.on("stubborn", stubborn, timeout_s=0.05)
    rig.on("after", after)
    async with rig.working({"q": 1}):
        job_id = await rig.add("stubborn")
        await until(lambda: bool(order))
        await rig.add("after")
        await asyncio.sleep(0.3)
        assert order == ["cancelled"]
        assert (await rig.record(job_id)).status is JobStatus.RUNNING
        release.set()
        record = await rig.reaches(job_id, JobStatus.FAILED)
        assert record.last_error == "timed out after 0.05 s"
        await until(lambda: order == ["cancelled", "ended", "next"])


async def test_an_outcome_chosen_after_the_time_limit_stands(rig: Rig) -> None:
    async def body(ctx: Context, given: Any) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise Dead("half done, do not repeat") from None

    rig.on("work", body, timeout_s=0.05)
    async with rig.working():
        record = await rig.runs("work")
        assert (record.status, record.last_error) == (JobStatus.DEAD, "half done, do not repeat")


async def test_quick_jobs_with_a_time_limit_leave_no_timers_behind(rig: Rig) -> None:
    async def body(ctx: Context, given: Any) -> None:
        return None

    rig.on("work", body, timeout_s=3_600)
    await rig.add_many("work", 500)
    async with rig.working():
        await until(lambda: _all_done(rig, 500))
        loop: Any = asyncio.get_running_loop()
        assert len([timer for timer in loop._scheduled if not timer.cancelled()]) < 30


async def test_the_context_knows_its_deadline(rig: Rig) -> None:
    seen: list[Any] = []

    async def body(ctx: Context, given: Any) -> None:
        seen.append(ctx.deadline)

    rig.on("limited", body, timeout_s=100)
    rig.on("free", body)
    async with rig.working():
        await rig.runs("limited")
        await rig.runs("free")
    left_s = seen[0].timestamp() - time.time()
    assert 60 < left_s <= 100
    assert seen[1] is None


async def test_strict_slots_wait_for_the_verdict(rig: Rig) -> None:
    async def body(ctx: Context, given: Any) -> None:
        return None

    rig.on("work", body)
    rig.on("thread", lambda ctx, given: None)
    await rig.add_many("work", 40)
    await rig.add_many("thread", 40)
    settings = dataclasses.replace(FAST, strict=True)
    async with rig.working({"q": 3}, settings=settings) as handle:
        await until(lambda: _all_done(rig, 80))
        local_queue = handle._process.parts.local_queues.by_name["q"]
        await until(lambda: local_queue.busy == 0)


async def _all_done(rig: Rig, count: int) -> bool:
    return (await rig.counts()).get("done") == count
