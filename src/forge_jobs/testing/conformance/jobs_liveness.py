"""Jobs of processes that are dead or deregister: reap, deregister, remove_dead."""

import asyncio

import pytest

from forge_jobs.core.job import Successor
from forge_jobs.core.outcome import Done
from forge_jobs.core.selection import BulkAction, Selection
from forge_jobs.core.status import JobStatus
from forge_jobs.store.job_upkeep import Reaped
from forge_jobs.store.jobs import Verdict, Want
from forge_jobs.store.store import Store
from forge_jobs.testing.clock import MovableClock

from .worker import LEASE_S, Process, all_jobs, claim_of, enqueue, job_counts, new_job, record

NOTE = "the worker process that ran it died"


async def _reap(store: Store, limit: int = 100) -> Reaped:
    return await store.jobs.reap(crash_note=NOTE, limit=limit)


@pytest.mark.asyncio
class TestReap:
    """``JobStore.reap``."""

    async def test_a_started_job_spends_its_attempt_and_counts_a_crash(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        answer = await enqueue(store)
        await worker.claim_one()
        clock.advance(LEASE_S)
        assert await _reap(store) == Reaped(pending=1)
        job = await record(store, answer.id)
        assert (job.status, job.attempts, job.crashes, job.epoch) == (JobStatus.PENDING, 1, 1, 2)
        assert [(error.attempt, error.message) for error in job.errors] == [(1, NOTE)]
        assert job.last_error == NOTE

    async def test_a_prefetched_job_counts_no_crash(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        answer = await enqueue(store)
        await worker.claim(free=0, prefetch=1)
        clock.advance(LEASE_S)
        assert await _reap(store) == Reaped(pending=1)
        job = await record(store, answer.id)
        assert (job.status, job.attempts, job.crashes, job.epoch) == (JobStatus.PENDING, 0, 0, 2)
        assert job.errors == ()

    async def test_a_prefetched_job_that_was_marked_started_counts_a_crash(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        answer = await enqueue(store)
        [job] = await worker.claim(free=0, prefetch=1)
        await worker.exchange(started=[claim_of(job)])
        clock.advance(LEASE_S)
        await _reap(store)
        stored = await record(store, answer.id)
        assert (stored.attempts, stored.crashes) == (1, 1)

    async def test_a_reaped_job_is_due_at_once_and_keeps_its_order(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        await enqueue(store, kind="first")
        await worker.claim_one()
        clock.advance(1)
        await enqueue(store, kind="second")
        clock.advance(LEASE_S)
        await _reap(store)
        other = await Process.register(store, clock, host_id="host-2")
        claims = await other.claim(free=5)
        assert [(job.kind, job.attempts, job.crashes) for job in claims] == [
            ("first", 2, 1),
            ("second", 1, 0),
        ]

    async def test_without_an_attempt_left_it_is_dead_and_stores_its_successor(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        answer = await enqueue(store, max_attempts=1, on_dead=Successor("tell", "ops"))
        await worker.claim_one()
        clock.advance(LEASE_S)
        assert await _reap(store) == Reaped(dead=1)
        job = await record(store, answer.id)
        assert (job.status, job.attempts, job.last_error) == (JobStatus.DEAD, 1, NOTE)
        assert job.finished_at == clock.now()
        assert await job_counts(store) == {("q", JobStatus.DEAD): 1, ("ops", JobStatus.PENDING): 1}

    async def test_reap_applies_a_cancel_request(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        answer = await enqueue(store)
        await worker.claim_one()
        await store.jobs.act(
            BulkAction.CANCEL, Selection(ids=(answer.id,)), reason="enough", limit=1
        )
        clock.advance(LEASE_S)
        assert await _reap(store) == Reaped(cancelled=1)
        job = await record(store, answer.id)
        assert (job.status, job.last_error) == (JobStatus.CANCELLED, "enough")

    async def test_the_living_keep_their_jobs(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        other = await Process.register(store, clock, host_id="host-2")
        await store.jobs.enqueue([new_job(), new_job()])
        mine, lost = await worker.claim_one(), await other.claim_one()
        await worker.advance(LEASE_S - 1)
        clock.advance(2)
        assert await _reap(store) == Reaped(pending=1)
        stati = {job.key: job.status for job in await all_jobs(store)}
        assert stati == {mine.key: JobStatus.RUNNING, lost.key: JobStatus.PENDING}

    async def test_a_pass_stops_at_its_limit(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        await store.jobs.enqueue([new_job() for _ in range(5)])
        await worker.claim(free=5)
        clock.advance(LEASE_S)
        assert await _reap(store, limit=3) == Reaped(pending=3, more=True)
        assert await _reap(store, limit=3) == Reaped(pending=2)
        assert await _reap(store, limit=3) == Reaped()

    async def test_two_reapers_at_once_reap_each_job_once(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        await store.jobs.enqueue([new_job() for _ in range(30)])
        await worker.claim(free=30)
        clock.advance(LEASE_S)
        passes = await asyncio.gather(*(_reap(store) for _ in range(4)))
        assert sum(done.pending for done in passes) == 30
        assert {(job.crashes, job.epoch) for job in await all_jobs(store)} == {(1, 2)}

    async def test_a_late_heartbeat_before_any_reaper_renews_the_lease(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        await enqueue(store)
        job = await worker.claim_one()
        clock.advance(LEASE_S * 3)
        assert (await worker.heartbeat()).alive
        assert await _reap(store) == Reaped()
        assert await worker.finish(job, Done()) is Verdict.APPLIED

    async def test_dead_is_final(self, store: Store, worker: Process, clock: MovableClock) -> None:
        await enqueue(store)
        job = await worker.claim_one()
        clock.advance(LEASE_S)
        await _reap(store)
        assert not (await worker.heartbeat()).alive
        round_ = await worker.exchange(finish=[worker.build_finish(job)], want=[Want("q", 1)])
        assert (list(round_.verdicts), round_.alive) == ([Verdict.STALE], False)
        assert await worker.claim() == []
        again = await Process.register(store, clock, host_id=worker.host_id)
        assert again.key != worker.key
        assert len(await again.claim()) == 1

    async def test_an_idle_process_is_declared_dead_too(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        clock.advance(LEASE_S)
        await _reap(store)
        assert not (await worker.heartbeat()).alive

    async def test_a_replaced_process_is_dead_at_once(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        await enqueue(store)
        await worker.claim_one()
        other = await Process.register(store, clock, host_id="host-2", replaces=worker.host_id)
        assert not (await worker.heartbeat()).alive
        assert await _reap(store) == Reaped(pending=1)
        assert len(await other.claim()) == 1

    async def test_replacing_an_unknown_process_is_fine(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        await Process.register(store, clock, host_id="host-2", replaces="host-unknown")
        assert (await worker.heartbeat()).alive


@pytest.mark.asyncio
class TestDeregister:
    """``ProcessStore.deregister`` and ``remove_dead``."""

    async def test_A3_deregister_releases_everything_without_spending(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        await store.jobs.enqueue([new_job(max_attempts=1) for _ in range(4)])
        jobs = await worker.claim(free=2, prefetch=2)
        await store.processes.deregister(worker.key)
        for job in await all_jobs(store):
            assert (job.status, job.attempts, job.crashes) == (JobStatus.PENDING, 0, 0)
            assert job.errors == ()
        late = [worker.build_finish(job) for job in jobs]
        assert await worker.send_finishes(*late) == [Verdict.STALE] * 4
        other = await Process.register(store, clock, host_id="host-2")
        assert len(await other.claim(free=9)) == 4

    async def test_deregister_applies_a_cancel_request(self, store: Store, worker: Process) -> None:
        answer = await enqueue(store)
        await worker.claim_one()
        await store.jobs.act(
            BulkAction.CANCEL, Selection(ids=(answer.id,)), reason="enough", limit=1
        )
        await store.processes.deregister(worker.key)
        assert (await record(store, answer.id)).status is JobStatus.CANCELLED

    async def test_deregister_is_idempotent(self, store: Store, worker: Process) -> None:
        await store.processes.deregister(worker.key)
        await store.processes.deregister(worker.key)
        assert not (await worker.heartbeat()).alive
        assert await store.processes.all() == []

    async def test_dead_processes_are_removed_once_they_own_nothing(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        await store.jobs.enqueue([new_job(), new_job()])
        await worker.claim(free=2)
        clock.advance(LEASE_S)
        await _reap(store, limit=1)
        assert await store.processes.remove_dead() == 0
        await _reap(store)
        assert await store.processes.remove_dead() == 1
        assert await store.processes.remove_dead() == 0

    async def test_living_processes_are_not_removed(self, store: Store, worker: Process) -> None:
        assert await store.processes.remove_dead() == 0
        assert (await worker.heartbeat()).alive
