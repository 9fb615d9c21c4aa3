"""Cancelling: local at once, from elsewhere within a second, and Done always stands."""

import asyncio
import threading
import time
from typing import Any

import pytest

from forge_jobs.config import EngineSettings
from forge_jobs.core.errors import Unavailable
from forge_jobs.core.ids import job_id
from forge_jobs.core.outcome import Snooze
from forge_jobs.core.selection import BulkAction, Selection
from forge_jobs.core.status import JobStatus
from forge_jobs.engine.running.context import Context
from tests.engine.faulty import FaultyStore
from tests.engine.rig import Rig, until


async def test_a_local_cancel_ends_the_handler_and_the_job(rig: Rig) -> None:
    started = asyncio.Event()

    async def body(ctx: Context, given: Any) -> None:
        started.set()
        await asyncio.sleep(60)

    rig.on("work", body)
    async with rig.working() as handle:
        running = await rig.add("work")
        await started.wait()
        assert handle.request_cancel(running) is True
        assert (await rig.reaches(running)).status is JobStatus.CANCELLED
        assert handle.request_cancel(running) is False
        assert handle.request_cancel("no such id") is False
        assert handle.request_cancel(job_id(999_999, 1, rig.store.tag)) is False


async def test_a_local_cancel_may_come_from_another_thread(rig: Rig) -> None:
    started = asyncio.Event()

    async def body(ctx: Context, given: Any) -> None:
        started.set()
        await asyncio.sleep(60)

    rig.on("work", body)
    async with rig.working() as handle:
        running = await rig.add("work")
        await started.wait()
        assert await asyncio.to_thread(handle.request_cancel, running)
        assert (await rig.reaches(running)).status is JobStatus.CANCELLED


async def test_a_handler_may_cancel_its_own_job(rig: Rig) -> None:
    async def body(ctx: Context, given: Any) -> str:
        assert handle.request_cancel(ctx.job.id)
        if given.get("waits"):
            await asyncio.sleep(60)
        return "finished"

    async def fine(ctx: Context, given: Any) -> None:
        await asyncio.sleep(0)

    rig.on("work", body)
    rig.on("fine", fine)
    async with rig.working({"q": 1}) as handle:
        assert (await rig.runs("work", {"waits": True})).status is JobStatus.CANCELLED
        assert (await rig.runs("work")).status is JobStatus.DONE
        assert (await rig.runs("fine")).status is JobStatus.DONE


async def test_a_thread_sees_the_cancel_and_ends_by_itself(rig: Rig) -> None:
    started = threading.Event()

    def body(ctx: Context, given: Any) -> None:
        started.set()
        while True:
            ctx.raise_if_cancelled()
            time.sleep(0.005)

    rig.on("work", body)
    async with rig.working() as handle:
        running = await rig.add("work")
        await until(started.is_set)
        assert handle.request_cancel(running)
        assert (await rig.reaches(running)).status is JobStatus.CANCELLED


async def test_a_cancel_from_elsewhere_arrives(rig: Rig) -> None:
    started = asyncio.Event()

    async def body(ctx: Context, given: Any) -> None:
        started.set()
        await asyncio.sleep(60)

    rig.on("work", body)
    async with rig.working():
        running = await rig.add("work")
        await started.wait()
        asked_at = time.monotonic()
        acted = await rig.store.jobs.act(
            BulkAction.CANCEL, Selection(ids=(running,)), reason="stop it", limit=1
        )
        assert acted.requested == 1
        record = await rig.reaches(running)
        assert (record.status, record.last_error) == (JobStatus.CANCELLED, "stop it")
        assert time.monotonic() - asked_at < 30


async def test_p34_a_cancel_from_elsewhere_is_notified_and_waits_for_no_heartbeat(rig: Rig) -> None:
    started = asyncio.Event()

    async def body(ctx: Context, given: Any) -> None:
        started.set()
        await asyncio.sleep(600)

    rig.on("work", body)
    # Heartbeats and polls of minutes, so that only the notification can explain the end.
    slow = EngineSettings(
        lease_s=900.0, heartbeat_s=300.0, poll_s=300.0, control_s=300.0, shutdown_s=10.0
    )
    async with rig.working(settings=slow):
        running = await rig.add("work")
        await started.wait()

        async def is_marked() -> bool:
            return (await rig.record(running)).started_at is not None

        # The exchange that stores the mark would bring the request too.
        await until(is_marked)
        await rig.store.jobs.act(BulkAction.CANCEL, Selection(ids=(running,)), limit=1)
        record = await rig.reaches(running)
        assert record.status is JobStatus.CANCELLED


async def test_M2_a_late_cancel_does_not_rewrite_done(rig: Rig) -> None:
    started, release = asyncio.Event(), asyncio.Event()

    async def body(ctx: Context, given: Any) -> int:
        started.set()
        try:
            await release.wait()
        except asyncio.CancelledError:
            return 42
        return 0

    rig.on("work", body)
    async with rig.working() as handle:
        running = await rig.add("work")
        await started.wait()
        assert handle.request_cancel(running)
        record = await rig.reaches(running)
        assert (record.status, record.result) == (JobStatus.DONE, b"42")


@pytest.mark.parametrize("answer", ["snooze", "error"])
async def test_any_other_answer_to_a_cancel_is_cancelled(rig: Rig, answer: str) -> None:
    started = asyncio.Event()

    async def body(ctx: Context, given: Any) -> Any:
        started.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            if answer == "snooze":
                return Snooze("1m")
            raise ValueError("I am not finished") from None

    rig.on("work", body)
    async with rig.working() as handle:
        running = await rig.add("work")
        await started.wait()
        assert handle.request_cancel(running)
        assert (await rig.reaches(running)).status is JobStatus.CANCELLED


async def test_L4_deleting_a_running_job_asks_it_to_stop(rig: Rig) -> None:
    started = asyncio.Event()

    async def body(ctx: Context, given: Any) -> None:
        started.set()
        await asyncio.sleep(60)

    rig.on("work", body)
    async with rig.working():
        running = await rig.add("work")
        await started.wait()
        acted = await rig.store.jobs.act(BulkAction.DELETE, Selection(ids=(running,)), limit=1)
        assert (acted.changed, acted.requested) == (0, 1)
        assert (await rig.reaches(running)).status is JobStatus.CANCELLED
        acted = await rig.store.jobs.act(BulkAction.DELETE, Selection(ids=(running,)), limit=1)
        assert (acted.changed, acted.requested) == (1, 0)


async def test_the_finish_waits_until_the_cancel_is_recorded(rig: Rig) -> None:
    started = asyncio.Event()

    async def body(ctx: Context, given: Any) -> None:
        started.set()
        await asyncio.sleep(60)

    rig.on("work", body)
    faulty = FaultyStore(rig.store)
    real, tries = faulty.jobs._inner.act, 0

    async def hesitant(*args: Any, **kwargs: Any) -> Any:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise Unavailable("not now")
        return await real(*args, **kwargs)

    faulty.jobs.act = hesitant  # type: ignore[attr-defined]
    watched = Rig(faulty)  # type: ignore[arg-type]
    watched.registry = rig.registry
    async with watched.working() as handle:
        running = await rig.add("work")
        await started.wait()
        assert handle.request_cancel(running)
        assert (await rig.reaches(running)).status is JobStatus.CANCELLED
    assert tries == 3
