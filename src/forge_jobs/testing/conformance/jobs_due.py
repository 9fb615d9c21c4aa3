"""Waiting jobs: promotion, expiry, and unhold."""

import asyncio

import pytest

from forge_jobs.core.instant import SECOND
from forge_jobs.core.outcome import Done
from forge_jobs.core.status import JobStatus
from forge_jobs.store.store import Store
from forge_jobs.testing.clock import MovableClock

from .worker import Process, all_jobs, claim_of, enqueue, job_counts, new_job, record


@pytest.mark.asyncio
class TestExpiry:
    """A job that expired while it waited never starts."""

    async def test_an_expired_pending_job_is_not_claimed(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        answer = await enqueue(store, expires_s=5.0)
        await enqueue(store, kind="lasting")
        clock.advance(6)
        assert [job.kind for job in await worker.claim(free=5)] == ["lasting"]
        await store.jobs.promote(limit=100)
        stored = await record(store, answer.id)
        assert (stored.status, stored.attempts) == (JobStatus.CANCELLED, 0)
        assert stored.last_error

    async def test_the_claim_cancels_a_due_job_that_expired(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        answer = await enqueue(store, delay_s=3.0, expires_s=5.0, priority=9)
        await enqueue(store, kind="lasting")
        clock.advance(6)
        assert [job.kind for job in await worker.claim(free=1)] == ["lasting"]
        assert (await record(store, answer.id)).status is JobStatus.CANCELLED

    async def test_it_may_start_up_to_its_expiry(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        await enqueue(store, expires_s=5.0)
        clock.advance(4.999)
        assert len(await worker.claim()) == 1

    async def test_expiry_does_not_touch_a_running_job(self, store: Store, worker: Process) -> None:
        answer = await enqueue(store, expires_s=5.0)
        job = await worker.claim_one()
        await worker.advance(60)
        await store.jobs.promote(limit=100)
        assert (await record(store, answer.id)).status is JobStatus.RUNNING
        await worker.finish(job, Done())
        assert (await record(store, answer.id)).status is JobStatus.DONE

    async def test_a_job_that_expired_while_it_ran_does_not_start_again(
        self, store: Store, worker: Process
    ) -> None:
        answer = await enqueue(store, expires_s=20.0)
        job = await worker.claim_one()
        await worker.advance(60)
        await worker.exchange(release=[claim_of(job)])
        assert await worker.claim() == []
        await store.jobs.promote(limit=100)
        assert (await record(store, answer.id)).status is JobStatus.CANCELLED


@pytest.mark.asyncio
class TestPromote:
    """``JobStore.promote``, which repeats what ``exchange`` does for its queues."""

    async def test_promote_takes_due_jobs_and_returns_the_next_due_time(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        await enqueue(store, kind="soon", delay_s=10.0)
        await enqueue(store, kind="later", delay_s=60.0, queue="other")
        await enqueue(store, kind="never", delay_s=500.0, expires_s=9.0)
        clock.advance(12)
        answer = await store.jobs.promote(limit=100)
        assert (answer.promoted, answer.expired, answer.more) == (1, 1, False)
        assert answer.next_due == clock.now() + 48 * SECOND
        stati = {job.kind: job.status for job in await all_jobs(store)}
        assert stati == {
            "soon": JobStatus.PENDING,
            "later": JobStatus.SCHEDULED,
            "never": JobStatus.CANCELLED,
        }

    async def test_next_due_may_be_an_expiry(self, store: Store, clock: MovableClock) -> None:
        await enqueue(store, expires_s=7.0)
        assert (await store.jobs.promote(limit=100)).next_due == clock.now() + 7 * SECOND

    async def test_promote_stops_at_its_limit_and_resumes(
        self, store: Store, clock: MovableClock
    ) -> None:
        await store.jobs.enqueue([new_job(delay_s=1.0) for _ in range(25)])
        clock.advance(1)
        promoted: list[int] = []
        for _ in range(10):
            answer = await store.jobs.promote(limit=10)
            promoted.append(answer.promoted)
            if not answer.more:
                break
        assert sum(promoted) == 25
        assert max(promoted) <= 10
        assert await job_counts(store) == {("q", JobStatus.PENDING): 25}

    async def test_an_empty_store_has_nothing_due(self, store: Store) -> None:
        answer = await store.jobs.promote(limit=100)
        assert (answer.promoted, answer.expired, answer.next_due) == (0, 0, None)

    async def test_concurrent_promotes_promote_each_job_once(
        self, store: Store, clock: MovableClock
    ) -> None:
        await store.jobs.enqueue([new_job(delay_s=1.0) for _ in range(40)])
        clock.advance(1)
        passes = await asyncio.gather(*(store.jobs.promote(limit=100) for _ in range(4)))
        assert sum(answer.promoted for answer in passes) == 40

    async def test_unhold_takes_the_oldest_first(self, store: Store, worker: Process) -> None:
        for n in range(5):
            await enqueue(store, kind=f"k{n}", hold=True, limit_key="host:a")
        await enqueue(store, kind="other", hold=True, limit_key="host:b")
        assert await worker.claim(free=10) == []
        assert await store.jobs.unhold("host:a", limit=2) == 2
        assert [job.kind for job in await worker.claim(free=10)] == ["k0", "k1"]
        assert await store.jobs.unhold("host:a", limit=100) == 3
        assert await store.jobs.unhold("host:a", limit=100) == 0
