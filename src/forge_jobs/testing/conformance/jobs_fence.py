"""Fencing: which claims may write a job, and what remains after a lost reply."""

import asyncio

import pytest
from msgspec import structs

from forge_jobs.core.job import Claim
from forge_jobs.core.outcome import Dead, Done, Failed
from forge_jobs.core.selection import BulkAction, Selection
from forge_jobs.core.status import JobStatus
from forge_jobs.store.jobs import Exchange, Owned, Verdict, Want
from forge_jobs.store.store import Store
from forge_jobs.testing.clock import MovableClock

from .worker import LEASE_S, Process, all_jobs, claim_of, enqueue, job_counts, new_job, record


@pytest.mark.asyncio
class TestFence:
    """Verdicts: applied, already, stale."""

    async def test_H1_stale_worker_cannot_overwrite(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        answer = await enqueue(store)
        old = await worker.claim_one()
        clock.advance(LEASE_S + 1)
        await store.jobs.reap(crash_note="gone", limit=10)
        other = await Process.register(store, clock, host_id="host-2")
        new = await other.claim_one()
        before = await record(store, answer.id)
        for outcome in (Done(), Failed("late"), Dead("late")):
            assert await worker.finish(old, outcome, result=b'"late"') is Verdict.STALE
        assert await record(store, answer.id) == before
        assert await other.finish(new, Done(), result=b'"good"') is Verdict.APPLIED
        assert (await record(store, answer.id)).result == b'"good"'
        assert await worker.finish(old, Done(), result=b'"late"') is Verdict.STALE
        assert (await record(store, answer.id)).result == b'"good"'

    async def test_a_repeated_finish_is_recognised(self, store: Store, worker: Process) -> None:
        answer = await enqueue(store)
        job = await worker.claim_one()
        finish = worker.build_finish(job, result=b"1", jobs=(new_job(kind="next"),))
        assert await worker.send_finishes(finish) == [Verdict.APPLIED]
        before = await record(store, answer.id)
        worker.clock.advance(1)
        assert await worker.send_finishes(finish) == [Verdict.ALREADY]
        assert await record(store, answer.id) == before
        assert [row.kind for row in await all_jobs(store)] == ["work", "next"]

    @pytest.mark.parametrize("outcome", [Failed("x"), Dead("x")], ids=["failed", "dead"])
    async def test_a_repeated_failure_counts_once(
        self, store: Store, worker: Process, outcome: Failed | Dead
    ) -> None:
        answer = await enqueue(store)
        finish = worker.build_finish(await worker.claim_one(), outcome)
        assert await worker.send_finishes(finish) == [Verdict.APPLIED]
        assert await worker.send_finishes(finish) == [Verdict.ALREADY]
        stored = await record(store, answer.id)
        assert (stored.attempts, len(stored.errors)) == (1, 1)

    async def test_the_same_finish_twice_in_one_exchange(
        self, store: Store, worker: Process
    ) -> None:
        await enqueue(store)
        finish = worker.build_finish(await worker.claim_one(), jobs=(new_job(kind="next"),))
        assert await worker.send_finishes(finish, finish) == [Verdict.APPLIED, Verdict.ALREADY]
        assert await job_counts(store) == {("q", JobStatus.DONE): 1, ("q", JobStatus.PENDING): 1}

    async def test_a_finish_after_the_job_was_claimed_again_changes_nothing(
        self, store: Store, worker: Process
    ) -> None:
        answer = await enqueue(store)
        first = await worker.claim_one()
        finish = worker.build_finish(first, Failed("x"))
        await worker.send_finishes(finish)
        await worker.advance(20)
        await worker.claim_one()
        before = await record(store, answer.id)
        assert await worker.send_finishes(finish) != [Verdict.APPLIED]
        assert await record(store, answer.id) == before

    async def test_a_released_claim_is_stale(self, store: Store, worker: Process) -> None:
        answer = await enqueue(store)
        job = await worker.claim_one()
        await worker.exchange(release=[claim_of(job)])
        assert await worker.finish(job, Done()) is Verdict.STALE
        assert (await record(store, answer.id)).status is JobStatus.PENDING

    async def test_finish_wins_over_release_in_one_exchange(
        self, store: Store, worker: Process
    ) -> None:
        answer = await enqueue(store)
        job = await worker.claim_one()
        round_ = await worker.exchange(finish=[worker.build_finish(job)], release=[claim_of(job)])
        assert list(round_.verdicts) == [Verdict.APPLIED]
        assert (await record(store, answer.id)).status is JobStatus.DONE

    async def test_foreign_and_invented_claims_are_stale(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        other = await Process.register(store, clock, host_id="host-2")
        answer = await enqueue(store)
        job = await worker.claim_one()
        finish = worker.build_finish(job)
        assert await other.send_finishes(finish) == [Verdict.STALE]
        later = worker.build_finish(structs.replace(job, epoch=job.epoch + 1))
        earlier = worker.build_finish(structs.replace(job, epoch=job.epoch - 1))
        unknown = worker.build_finish(structs.replace(job, key=job.key + 1_000))
        assert await worker.send_finishes(later, earlier, unknown) == [Verdict.STALE] * 3
        assert (await record(store, answer.id)).status is JobStatus.RUNNING

    async def test_a_deleted_job_cannot_be_finished(self, store: Store, worker: Process) -> None:
        answer = await enqueue(store)
        finish = worker.build_finish(await worker.claim_one())
        await worker.send_finishes(finish)
        await store.jobs.act(BulkAction.DELETE, Selection(ids=(answer.id,)), limit=1)
        assert await worker.send_finishes(finish) == [Verdict.STALE]
        assert await all_jobs(store) == []

    async def test_verdicts_are_in_the_order_of_the_finishes(
        self, store: Store, worker: Process
    ) -> None:
        await store.jobs.enqueue([new_job() for _ in range(6)])
        jobs = await worker.claim(free=6)
        await worker.exchange(
            finish=[worker.build_finish(jobs[1]), worker.build_finish(jobs[4], Failed("x"))],
            release=[claim_of(jobs[2])],
        )
        verdicts = await worker.send_finishes(*(worker.build_finish(job) for job in jobs))
        applied, already, stale = Verdict.APPLIED, Verdict.ALREADY, Verdict.STALE
        assert verdicts == [applied, already, stale, applied, already, applied]

    async def test_an_expired_lease_alone_does_not_void_a_claim(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        answer = await enqueue(store)
        job = await worker.claim_one()
        clock.advance(LEASE_S * 2)
        round_ = await worker.exchange(finish=[worker.build_finish(job)])
        assert (list(round_.verdicts), round_.alive) == ([Verdict.APPLIED], False)
        assert (await record(store, answer.id)).status is JobStatus.DONE

    async def test_two_finishes_at_once_apply_once(self, store: Store, worker: Process) -> None:
        await enqueue(store)
        job = await worker.claim_one()
        finishes = [worker.build_finish(job, jobs=(new_job(kind="next"),)) for _ in range(6)]
        answers = await asyncio.gather(*(worker.send_finishes(finish) for finish in finishes))
        verdicts = [verdict for [verdict] in answers]
        assert verdicts.count(Verdict.APPLIED) == 1
        assert verdicts.count(Verdict.ALREADY) == 5
        assert len(await all_jobs(store)) == 2


@pytest.mark.asyncio
class TestLostReplies:
    """A lost reply must not leave a job claimed for ever."""

    async def test_owned_shows_which_exchange_made_each_claim(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        other = await Process.register(store, clock, host_id="host-2")
        await store.jobs.enqueue([new_job() for _ in range(4)])
        [first] = await worker.claim(free=1)
        [second, third] = await worker.claim(free=1, prefetch=1)
        await other.claim(free=1)
        owned = sorted(await store.jobs.owned(worker.key), key=lambda row: row.claim.key)
        assert owned == [
            Owned(claim_of(first), 1, True),
            Owned(claim_of(second), 2, True),
            Owned(claim_of(third), 2, False),
        ]
        assert await store.jobs.owned(worker.key + 1_000) == []

    async def test_a_lost_claim_can_be_found_and_released(
        self, store: Store, worker: Process
    ) -> None:
        answer = await enqueue(store)
        lost = Exchange(owner=worker.key, number=7, want=[Want("q", 1)])
        await store.jobs.exchange(lost)
        [row] = await store.jobs.owned(worker.key)
        assert row.exchange == 7
        await worker.exchange(release=[row.claim])
        stored = await record(store, answer.id)
        assert (stored.status, stored.attempts) == (JobStatus.PENDING, 0)

    async def test_a_lost_claim_can_be_adopted(self, store: Store, worker: Process) -> None:
        answer = await enqueue(store)
        await store.jobs.exchange(Exchange(owner=worker.key, number=7, want=[Want("q", 1)]))
        [row] = await store.jobs.owned(worker.key)
        stored = await record(store, answer.id)
        assert row.claim == Claim(stored.key, stored.epoch)
        assert stored.owner == worker.key

    async def test_a_finished_job_is_not_owned_any_more(
        self, store: Store, worker: Process
    ) -> None:
        await enqueue(store)
        await worker.finish(await worker.claim_one(), Done())
        assert await store.jobs.owned(worker.key) == []
