"""The metrics contract: counters and minutes."""

import pytest

from forge_jobs.core.counters import CappedCount, Minute
from forge_jobs.core.histogram import histogram
from forge_jobs.core.instant import MINUTE, SECOND
from forge_jobs.core.outcome import Dead, Done, Failed
from forge_jobs.core.selection import BulkAction, Filter, Selection
from forge_jobs.core.status import JobStatus
from forge_jobs.store.store import Store
from forge_jobs.testing.clock import MovableClock

from .worker import LEASE_S, Process, enqueue, job_counts, new_job


async def _minutes(store: Store, clock: MovableClock, queue: str | None = None) -> list[Minute]:
    since = clock.now() - 1_000 * MINUTE
    return await store.metrics.minutes(since=since, until=clock.now() + MINUTE, queue=queue)


@pytest.mark.asyncio
class TestCounters:
    """``counts``, ``count``, ``roll_up``, ``stamp`` and ``oldest_due``."""

    async def test_A15_counts_follow_every_transition(self, store: Store, worker: Process) -> None:
        assert await job_counts(store) == {}
        await store.jobs.enqueue([new_job() for _ in range(4)] + [new_job(delay_s=9.0)])
        await enqueue(store, queue="other", hold=True, limit_key="a")
        pending, running = JobStatus.PENDING, JobStatus.RUNNING
        scheduled = {("q", JobStatus.SCHEDULED): 1, ("other", JobStatus.HELD): 1}
        assert await job_counts(store) == {("q", pending): 4, **scheduled}
        jobs = await worker.claim(free=3)
        assert await job_counts(store) == {("q", pending): 1, ("q", running): 3, **scheduled}
        outcomes = (Done(), Failed("x"), Dead("x"))
        finishes = [
            worker.build_finish(job, finish) for job, finish in zip(jobs, outcomes, strict=True)
        ]
        await worker.send_finishes(*finishes)
        await store.metrics.roll_up(limit=1_000)
        assert await job_counts(store) == {
            ("q", pending): 1,
            ("q", JobStatus.DONE): 1,
            ("q", JobStatus.FAILED): 1,
            ("q", JobStatus.DEAD): 1,
            **scheduled,
        }

    async def test_roll_up_ends(self, store: Store, worker: Process) -> None:
        for _ in range(5):
            await enqueue(store)
        for _ in range(100):
            if not await store.metrics.roll_up(limit=1):
                break
        assert not await store.metrics.roll_up(limit=1)
        assert await job_counts(store) == {("q", JobStatus.PENDING): 5}

    async def test_the_stamp_follows_every_commit(self, store: Store, worker: Process) -> None:
        seen = [await store.metrics.stamp()]
        await enqueue(store)
        seen.append(await store.metrics.stamp())
        job = await worker.claim_one()
        seen.append(await store.metrics.stamp())
        await worker.finish(job, Done())
        seen.append(await store.metrics.stamp())
        await store.queues.ensure("other", slots=3)
        seen.append(await store.metrics.stamp())
        assert len(set(seen)) == len(seen)

    async def test_a_count_stops_at_its_cap(self, store: Store) -> None:
        await store.jobs.enqueue([new_job() for _ in range(12)])
        count = store.metrics.count
        assert await count(Filter(queue="q"), cap=10) == CappedCount(10, True)
        assert await count(Filter(queue="q"), cap=12) == CappedCount(12, False)
        assert await count(Filter(queue="none"), cap=10) == CappedCount(0, False)

    async def test_the_longest_waiting_job_of_each_queue(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        assert await store.metrics.oldest_due() == {}
        first = clock.now()
        await enqueue(store, priority=9)
        clock.advance(1)
        second = clock.now()
        await enqueue(store)
        await enqueue(store, queue="other")
        await enqueue(store, queue="later", delay_s=60.0)
        clock.advance(1)
        assert await store.metrics.oldest_due() == {"q": first, "other": second}
        await worker.claim(free=1)
        assert (await store.metrics.oldest_due())["q"] == first
        await worker.claim(free=1)
        assert await store.metrics.oldest_due() == {"other": second}

    async def test_a_held_job_waits_too(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        first_held = clock.now()
        for key, queue in (("b", "q"), ("b", "q"), ("a", "other"), ("c", "q")):
            await enqueue(store, limit_key=key, hold=True, queue=queue, priority=3)
            clock.advance(1)
        await enqueue(store)
        assert len(await worker.claim(free=9)) == 1
        assert await store.metrics.oldest_due() == {
            "q": first_held,
            "other": first_held + 2 * SECOND,
        }

    async def test_the_longest_waiting_counts_from_when_it_was_due(
        self, store: Store, clock: MovableClock
    ) -> None:
        await enqueue(store, delay_s=10.0)
        due = clock.now() + 10_000_000
        clock.advance(60)
        await store.jobs.promote(limit=10)
        assert await store.metrics.oldest_due() == {"q": due}


@pytest.mark.asyncio
class TestMinutes:
    """``minutes`` and ``purge_minutes``."""

    async def test_each_minute_queue_and_kind(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        start = clock.now() - clock.now() % MINUTE
        await store.jobs.enqueue([new_job(kind="a") for _ in range(4)])
        await enqueue(store, kind="b", queue="other")
        await worker.advance(60)
        jobs = await worker.claim(free=3)
        await worker.send_finishes(
            worker.build_finish(jobs[0], waited_s=1.0, ran_s=0.5),
            worker.build_finish(jobs[1], Failed("x"), waited_s=2.0, ran_s=0.25),
            worker.build_finish(jobs[2], Dead("x"), waited_s=1.0),
        )
        [left] = (
            await store.jobs.page(Filter(statuses=(JobStatus.PENDING,), queue="q"), limit=9)
        ).jobs
        await store.jobs.act(BulkAction.CANCEL, Selection(ids=(left.id,)), reason="x", limit=1)
        expected = [
            Minute(at=start, queue="other", kind="b", enqueued=1),
            Minute(at=start, queue="q", kind="a", enqueued=4),
            Minute(
                at=start + MINUTE,
                queue="q",
                kind="a",
                started=3,
                done=1,
                retried=1,
                dead=1,
                cancelled=1,
                waited=histogram([1.0, 2.0, 1.0]),
                ran=histogram([0.5, 0.25, 0.0]),
                took=histogram([60.0]),
            ),
        ]
        for _ in range(2):
            seen = sorted(await _minutes(store, clock), key=lambda row: (row.at, row.queue))
            assert seen == expected
            await store.metrics.roll_up(limit=1_000)
        assert len(await _minutes(store, clock, "q")) == 2

    async def test_the_range_excludes_its_end(self, store: Store, clock: MovableClock) -> None:
        start = clock.now() - clock.now() % MINUTE
        for _ in range(3):
            await enqueue(store)
            clock.advance(60)
        rows = await store.metrics.minutes(since=start, until=start + 2 * MINUTE)
        assert [row.at for row in rows] == [start, start + MINUTE]
        rows = await store.metrics.minutes(since=start + MINUTE, until=start + 9 * MINUTE)
        assert [row.at for row in rows] == [start + MINUTE, start + 2 * MINUTE]

    async def test_a_repeated_or_stale_finish_is_not_counted(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        await store.jobs.enqueue([new_job(), new_job()])
        first, second = await worker.claim(free=2)
        finish = worker.build_finish(first, ran_s=1.0)
        await worker.send_finishes(finish)
        await worker.send_finishes(finish)
        clock.advance(LEASE_S)
        await store.jobs.reap(crash_note="x", limit=10)
        await worker.send_finishes(worker.build_finish(second, ran_s=1.0))
        rows = await _minutes(store, clock)
        assert sum(row.done for row in rows) == 1
        assert sum(row.ran_s for row in rows) == 1.0

    async def test_a_duplicate_is_not_counted_as_enqueued(
        self, store: Store, clock: MovableClock
    ) -> None:
        await store.jobs.enqueue([new_job(dedupe_key="a") for _ in range(3)])
        assert sum(row.enqueued for row in await _minutes(store, clock)) == 1

    async def test_A16_what_happened_outlives_the_job(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        answer = await enqueue(store)
        await worker.finish(await worker.claim_one(), Done())
        await store.jobs.act(BulkAction.DELETE, Selection(ids=(answer.id,)), limit=1)
        assert sum(row.done for row in await _minutes(store, clock)) == 1

    async def test_A16_old_minutes_are_forgotten_in_batches(
        self, store: Store, clock: MovableClock
    ) -> None:
        for _ in range(6):
            await enqueue(store)
            clock.advance(60)
        for _ in range(100):
            if not await store.metrics.roll_up(limit=100):
                break
        before = clock.now() - clock.now() % MINUTE - 2 * MINUTE
        removed = [await store.metrics.purge_minutes(before=before, limit=3) for _ in range(3)]
        assert removed == [3, 1, 0]
        rows = await _minutes(store, clock)
        assert len(rows) == 2
        assert all(row.at >= before for row in rows)
        assert await job_counts(store) == {("q", JobStatus.PENDING): 6}
