"""Lanes: one job at a time in the order of enqueueing, and the effect of a retry on the others."""

import pytest

from forge_jobs.core.job import Enqueued, LaneOrder
from forge_jobs.core.limits import Declared, key_bucket, lane_bucket
from forge_jobs.core.outcome import Dead, Failed
from forge_jobs.core.retry import Backoff
from forge_jobs.core.selection import BulkAction, Selection
from forge_jobs.core.status import JobStatus
from forge_jobs.store.jobs import Want
from forge_jobs.store.store import Store
from forge_jobs.testing.clock import MovableClock

from .worker import Process, claim_of, enqueue, job_counts, new_job, record

SERIAL, STRICT, NONE = LaneOrder.SERIAL, LaneOrder.STRICT, LaneOrder.NONE
_SOON = Backoff(base_s=10.0, jitter=0.0)


async def put(store: Store, lane: str, order: LaneOrder, **options: object) -> Enqueued:
    """Store a job in a lane."""
    return await enqueue(store, lane=lane, order=order, **options)


@pytest.mark.asyncio
class TestLanes:
    """The orders ``serial``, ``strict`` and ``none``."""

    @pytest.mark.parametrize("order", [SERIAL, STRICT], ids=str)
    async def test_one_at_a_time_in_the_order_of_enqueueing(
        self, store: Store, worker: Process, order: LaneOrder
    ) -> None:
        made = [
            await put(store, lane, order, priority=priority)
            for lane, priority in (("a", 5), ("a", 0), ("b", 0), ("a", -5))
        ]
        seen: list[int] = []
        for _ in range(3):
            jobs = await worker.claim(free=9)
            lanes = {job.limit_key for job in jobs}
            assert len(lanes) == len(jobs)
            seen += [job.key for job in jobs if job.key != made[2].key]
            await worker.send_finishes(*(worker.build_finish(job) for job in jobs))
        assert seen == [made[0].key, made[1].key, made[3].key]
        assert await job_counts(store) == {("q", JobStatus.DONE): 4}

    async def test_those_that_come_due_together_keep_their_order(
        self, store: Store, worker: Process
    ) -> None:
        """In a lane the order of enqueueing, in a limit key that of priorities; not ``run_at``."""
        await store.limits.publish([Declared(name="task:fetch", concurrency=1, per="args.host")])
        first = await put(store, "a", SERIAL, delay_s=8.0)
        await put(store, "a", SERIAL, delay_s=2.0)
        key = key_bucket("fetch", "x")
        await enqueue(store, kind="fetch", limit_key=key, delay_s=2.0)
        urgent = await enqueue(store, kind="fetch", limit_key=key, delay_s=8.0, priority=-1)
        await worker.advance(10)
        assert {job.key for job in await worker.claim(free=9)} == {first.key, urgent.key}
        assert await job_counts(store) == {("q", JobStatus.RUNNING): 2, ("q", JobStatus.HELD): 2}

    async def test_order_none_binds_no_job(self, store: Store, worker: Process) -> None:
        for _ in range(3):
            await put(store, "a", NONE)
        assert len(await worker.claim(free=9)) == 3

    async def test_a_lane_belongs_to_its_queue(self, store: Store, worker: Process) -> None:
        await put(store, "a", SERIAL)
        await put(store, "a", SERIAL, queue="other")
        answer = await worker.exchange(want=[Want("q", 5), Want("other", 5)])
        assert len(answer.claims) == 2

    async def test_within_one_call(self, store: Store, worker: Process) -> None:
        answers = await store.jobs.enqueue(
            [new_job(lane=lane, order=SERIAL) for lane in ("a", "b", "a", "b")]
        )
        states = [answer.status for answer in answers]
        assert states == [JobStatus.PENDING] * 2 + [JobStatus.HELD] * 2
        held = await record(store, answers[2].id)
        assert (held.limit_bucket, held.lane) == (lane_bucket("q", "a"), "a")
        assert len(await worker.claim(free=9)) == 2

    async def test_serial_does_not_wait_for_a_retry(self, store: Store, worker: Process) -> None:
        first = await put(store, "a", SERIAL)
        second = await put(store, "a", SERIAL)
        third = await put(store, "a", SERIAL)
        await worker.finish(await worker.claim_one(), Failed("x"), backoff=_SOON)
        job = await worker.claim_one()
        assert job.key == second.key
        await worker.advance(11)
        # The retry is due: it does not overlap, and starts before jobs enqueued after it.
        assert await worker.claim(free=9) == []
        await worker.finish(job, Dead("x"))
        job = await worker.claim_one()
        assert job.key == first.key
        await worker.finish(job, Dead("x"))
        assert (await worker.claim_one()).key == third.key

    async def test_strict_waits_until_its_head_has_ended(
        self, store: Store, worker: Process
    ) -> None:
        first = await put(store, "a", STRICT)
        second = await put(store, "a", STRICT)
        await put(store, "b", STRICT)
        jobs = await worker.claim(free=9)
        assert jobs[0].key == first.key
        await worker.finish(jobs[0], Failed("x"), backoff=_SOON)
        assert await worker.claim(free=9) == []
        assert (await record(store, second.id)).status is JobStatus.HELD
        bucket = await store.limits.bucket(lane_bucket("q", "a"))
        assert (bucket.first, bucket.capacity) == (first.id, 1)
        await worker.advance(11)
        job = await worker.claim_one()
        assert job.key == first.key
        await worker.finish(job, Dead("x"))
        assert (await worker.claim_one()).key == second.key

    @pytest.mark.parametrize("how", ["cancel", "delete", "expire"])
    async def test_a_strict_head_that_is_gone_blocks_no_job(
        self, store: Store, worker: Process, clock: MovableClock, how: str
    ) -> None:
        first = await put(store, "a", STRICT, delay_s=60.0, expires_s=100.0)
        second = await put(store, "a", STRICT)
        assert second.status is JobStatus.HELD
        selection = Selection(ids=(first.id,))
        match how:
            case "cancel":
                await store.jobs.act(BulkAction.CANCEL, selection, reason="x", limit=1)
            case "delete":
                await store.jobs.act(BulkAction.DELETE, selection, limit=1)
            case _:
                await worker.advance(101)
                await store.jobs.promote(limit=10)
        assert (await worker.claim_one()).key == second.key

    async def test_a_released_job_keeps_its_lane(self, store: Store, worker: Process) -> None:
        first = await put(store, "a", SERIAL)
        await put(store, "a", SERIAL)
        job = await worker.claim_one()
        await worker.exchange(release=[claim_of(job)])
        assert [job.key for job in await worker.claim(free=9)] == [first.key]

    async def test_a_lane_and_a_key_bind_together(self, store: Store, worker: Process) -> None:
        await store.limits.publish([Declared(name="task:fetch", concurrency=1, per="args.host")])
        key = key_bucket("fetch", "a")
        first = await enqueue(store, kind="fetch", limit_key=key)
        holder = await put(store, "a", SERIAL, kind="fetch", limit_key=key)
        behind = await put(store, "a", SERIAL, kind="other")
        assert (await record(store, holder.id)).limit_bucket == key
        assert (await record(store, behind.id)).limit_bucket == lane_bucket("q", "a")
        [job] = await worker.claim(free=9)
        assert job.key == first.key
        await worker.finish(job, Dead("x"))
        [job] = await worker.claim(free=9)
        assert job.key == holder.key
        await worker.finish(job, Dead("x"))
        [job] = await worker.claim(free=9)
        assert job.key == behind.key

    async def test_a_dead_worker_frees_its_lane_once(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        first = await put(store, "a", SERIAL)
        await put(store, "a", SERIAL)
        await worker.claim_one()
        clock.advance(60)
        await store.jobs.reap(crash_note="x", limit=10)
        other = await Process.register(store, clock, host_id="host-2")
        assert [job.key for job in await other.claim(free=9)] == [first.key]
