"""Reaping, promoting, cleaning and leading."""

import asyncio
import dataclasses
from typing import Any

import pytest

from forge_jobs.backends.memory.store import MemoryStore
from forge_jobs.config import EngineSettings
from forge_jobs.core.errors import Unavailable
from forge_jobs.core.job import NewJob
from forge_jobs.core.outcome import Dead
from forge_jobs.core.status import JobStatus
from forge_jobs.engine.drain import drain
from forge_jobs.engine.running.context import Context
from forge_jobs.engine.running.registry import HandlerRegistry
from forge_jobs.engine.runtime import QueueRuntime
from forge_jobs.engine.services import CleanupReport, cleanup_once, reap_stale_jobs
from forge_jobs.engine.services.cleanup import Cleanup
from forge_jobs.engine.services.leadership import Leadership
from forge_jobs.engine.services.promote import Promote
from forge_jobs.engine.services.reaper import Reaper
from forge_jobs.store.jobs import Exchange, Want
from forge_jobs.store.processes import NewProcess, ProcessStats
from forge_jobs.testing.clock import MovableClock
from tests.engine.rig import FAST, Rig, until


async def _member(store: Any, host_id: str, lease_s: float = 600.0) -> int:
    return await store.processes.register(
        NewProcess(
            host_id=host_id, label=host_id, queues=("q",), pid=1, hostname="h", lease_s=lease_s
        )
    )


async def _claim(store: Any, owner: int, count: int = 1) -> None:
    answer = await store.jobs.exchange(Exchange(owner=owner, number=1, want=[Want("q", count)]))
    assert len(answer.claims) == count


async def test_a_living_worker_takes_over_the_jobs_of_a_dead_one(rig: Rig) -> None:
    async def body(ctx: Context, given: Any) -> int:
        return ctx.job.attempts

    rig.on("work", body)
    job_id = await rig.add("work")
    await _claim(rig.store, await _member(rig.store, "gone", lease_s=1.0))
    async with rig.working(settings=dataclasses.replace(FAST, lease_s=3.0)):
        record = await rig.reaches(job_id, JobStatus.DONE)
    assert (record.result, record.crashes) == (b"2", 1)
    assert record.errors[0].message == "the worker process died while running this job"


async def test_L1_two_reapers_at_once_count_one_crash(rig: Rig) -> None:
    ids = await rig.add_many("work", 20)
    owner = await _member(rig.store, "gone")
    await _claim(rig.store, owner, 20)
    await rig.store.processes.register(
        NewProcess(host_id="new", label="new", queues=(), pid=1, hostname="h", lease_s=600),
        replaces="gone",
    )
    reaped = await asyncio.gather(*(reap_stale_jobs(rig.store) for _ in range(4)))
    assert sum(step.pending for step in reaped) == 20
    for job_id in ids:
        record = await rig.record(job_id)
        assert (record.status, record.crashes, record.attempts) == (JobStatus.PENDING, 1, 1)


async def test_reaping_once_ends_jobs_without_attempts_left(rig: Rig) -> None:
    last = await rig.add("work", max_attempts=1)
    await _claim(rig.store, await _member(rig.store, "gone"))
    await rig.store.processes.register(
        NewProcess(host_id="new", label="new", queues=(), pid=1, hostname="h", lease_s=600),
        replaces="gone",
    )
    reaped = await reap_stale_jobs(rig.store)
    assert (reaped.pending, reaped.dead, reaped.more) == (0, 1, False)
    assert (await rig.record(last)).status is JobStatus.DEAD


async def test_a_reaper_that_could_not_write_waits_for_one_lease() -> None:
    clock = MovableClock()
    store = MemoryStore(clock)
    await store.jobs.enqueue([NewJob(kind="work", queue="q")])
    other = await _member(store, "other", lease_s=15.0)
    await _claim(store, other)
    good_since = float("inf")
    reaper = Reaper(
        store, lease_s=15.0, clock=clock, store_now=clock.now, unbroken_since=lambda: good_since
    )
    clock.advance(60)

    async def is_running() -> bool:
        return any(count.status is JobStatus.RUNNING for count in await store.metrics.counts())

    await reaper.tick()
    assert await is_running(), "our own beats fail: everybody looks dead"
    good_since = clock.mono()
    clock.advance(10)
    following = await reaper.tick()
    assert following.after_s == pytest.approx(5)
    assert await is_running()
    assert (await store.processes.heartbeat(other, ProcessStats())).alive, (
        "the other one came back in time"
    )
    clock.advance(5)
    await reaper.tick()
    assert await is_running()
    clock.advance(15.1)
    await reaper.tick()
    assert not await is_running()


async def test_a_reaper_that_failed_itself_waits_too() -> None:
    clock = MovableClock()
    store = MemoryStore(clock)
    real, down = store.jobs.reap, True

    async def reap(**options: Any) -> Any:
        if down:
            raise Unavailable("down")
        return await real(**options)

    store.jobs.reap = reap  # type: ignore[method-assign]
    reaper = Reaper(
        store,
        lease_s=15.0,
        clock=clock,
        store_now=clock.now,
        unbroken_since=lambda: -float("inf"),
    )
    with pytest.raises(Unavailable):
        await reaper.tick()
    down = False
    assert (await reaper.tick()).after_s == pytest.approx(15)
    clock.advance(15)
    assert (await reaper.tick()).after_s == pytest.approx(5)


async def test_the_reaper_ticks_again_when_the_next_lease_expires() -> None:
    clock = MovableClock()
    store = MemoryStore(clock)
    await _member(store, "other", lease_s=4.0)
    reaper = Reaper(
        store,
        lease_s=15.0,
        clock=clock,
        # A wall clock that is hours off must not matter.
        store_now=clock.now,
        unbroken_since=lambda: -float("inf"),
    )
    assert (await reaper.tick()).after_s == pytest.approx(4.05)


async def test_the_promote_service_serves_queues_that_no_worker_claims_from() -> None:
    clock = MovableClock()
    store = MemoryStore(clock)
    await store.jobs.enqueue(
        [
            NewJob(kind="work", queue="unserved", delay_s=2.0),
            NewJob(kind="work", queue="unserved", delay_s=3_600.0, expires_s=3.0),
        ]
    )
    service = Promote(store, store_now=clock.now)
    assert (await service.tick()).after_s == pytest.approx(2.5)
    clock.advance(10)
    assert (await service.tick()).after_s == pytest.approx(5)
    counts = {
        count.status.value: count.jobs for count in await store.metrics.counts() if count.jobs
    }
    assert counts == {"pending": 1, "cancelled": 1}


async def test_cleanup_removes_in_batches_what_is_past_its_retention() -> None:
    clock = MovableClock()
    store = MemoryStore(clock)
    registry = HandlerRegistry()
    rig = Rig(store)
    rig.registry = registry

    async def body(ctx: Context, given: Any) -> None:
        if given.get("dies"):
            raise Dead("no")

    rig.on("work", body)
    await rig.add_many("work", 1_200)
    await rig.add_many("work", 3, {"dies": True})
    await drain(store, registry, clock=clock)
    assert await rig.counts() == {"done": 1_200, "dead": 3}
    assert await cleanup_once(store, clock=clock) == CleanupReport()
    clock.advance(8 * 86_400)
    service = Cleanup(store, settings=EngineSettings())
    assert (await service.tick()).after_s == pytest.approx(0.05), "there is more"
    assert (await rig.counts())["done"] == 700
    report = await cleanup_once(store, clock=clock)
    assert report.jobs == 700
    assert await rig.counts() == {"dead": 3}
    clock.advance(31 * 86_400)
    report = await cleanup_once(store, clock=clock)
    assert report.jobs == 3
    assert report.minutes > 0
    assert await rig.counts() == {}


async def test_p44_minutes_are_kept_for_thirty_days() -> None:
    clock = MovableClock()
    store = MemoryStore(clock)
    await Rig(store).add("work")
    while await store.metrics.roll_up(limit=100):
        pass
    clock.advance(30 * 86_400 - 60)
    assert (await cleanup_once(store, clock=clock)).minutes == 0
    clock.advance(180)
    assert (await cleanup_once(store, clock=clock)).minutes == 1


async def test_p63_a_worker_that_gets_no_notification_finds_jobs_by_its_poll(rig: Rig) -> None:
    class Deaf:
        """The store, with a subscription that never calls."""

        def __getattr__(self, name: str) -> Any:
            return getattr(rig.store, name)

        async def subscribe(self, queues: Any, notify: Any) -> Any:
            return await rig.store.subscribe(["another"], lambda: None)

    async def body(ctx: Context, given: Any) -> None: ...

    rig.on("work", body)
    runtime = QueueRuntime(Deaf(), rig.registry, settings=FAST).with_queues({"q": 10})  # type: ignore[arg-type]
    async with runtime:
        for _ in range(3):
            assert (await rig.runs("work")).status is JobStatus.DONE


async def test_one_leads_and_releases_the_lead_at_once() -> None:
    clock = MovableClock()
    store = MemoryStore(clock)
    first, second = await _member(store, "a"), await _member(store, "b")
    one = Leadership(store.processes, lambda: first, clock=clock)
    two = Leadership(store.processes, lambda: second, clock=clock)
    assert await one.is_leader()
    assert not await two.is_leader()
    clock.advance(14)
    assert await one.is_leader(), "renewed"
    clock.advance(14)
    assert not await two.is_leader()
    await one.release()
    clock.advance(5)
    assert await two.is_leader()
    clock.advance(16)
    assert await one.is_leader(), "the other one fell silent"


async def test_A24_future_jobs_and_people_wake_the_worker(rig: Rig) -> None:
    from forge_jobs.core.selection import BulkAction, Selection

    async def body(ctx: Context, given: Any) -> None:
        if given.get("dies") and ctx.job.attempts == 1 and not again:
            raise Dead("no")

    again: list[int] = []
    rig.on("work", body)
    # A slow poll, so that only a wake-up can explain what happens.
    async with rig.working(settings=dataclasses.replace(FAST, poll_s=600.0)):
        ids = await rig.add_many("work", 40)
        for job_id in ids:
            await rig.reaches(job_id, JobStatus.DONE)
        soon = await rig.add("work", delay_s=0.5)
        await rig.reaches(soon, JobStatus.DONE)
        later = await rig.add("work", delay_s=3_600.0)
        await rig.store.jobs.act(BulkAction.RUN_NOW, Selection(ids=(later,)), limit=1)
        await rig.reaches(later, JobStatus.DONE)
        dead = await rig.add("work", {"dies": True})
        await rig.reaches(dead, JobStatus.DEAD)
        again.append(1)
        await rig.store.jobs.act(BulkAction.RETRY, Selection(ids=(dead,)), limit=1)
        await rig.reaches(dead, JobStatus.DONE)


async def test_H3_a_queue_without_a_worker_is_logged(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.on("work", lambda ctx, given: None)
    await rig.add("work", queue="forgotten")
    await rig.add("work", queue="later", delay_s=3_600.0)
    async with rig.working():
        await until(lambda: any(record.name == "forge_jobs.queues" for record in caplog.records))
    named = [record for record in caplog.records if record.name == "forge_jobs.queues"]
    assert {record.queue for record in named} == {"forgotten"}  # type: ignore[attr-defined]
    assert "no worker serves" in named[0].getMessage()


async def test_H2_one_subscription_per_process(rig: Rig) -> None:
    subscribed: list[Any] = []
    real = rig.store.subscribe

    class Counting:
        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

        async def subscribe(self, queues: Any, notify: Any) -> Any:
            subscribed.append(tuple(queues))
            return await real(queues, notify)

    store = rig.store
    counted = Rig(Counting())  # type: ignore[arg-type]
    counted.registry = rig.registry
    rig.on("work", lambda ctx, given: None)
    async with counted.working({"q": 10, "r": 10}):
        for _ in range(5):
            await rig.runs("work")
        await until(lambda: bool(subscribed))
    assert subscribed == [("q", "r")]
