"""Cancel: waiting jobs never start, running ones get a cancel request, Done is never undone."""

import pytest

from forge_jobs.core.outcome import AnyOutcome, Dead, Done, Failed, Snooze, Stopped, Throttled
from forge_jobs.core.selection import Acted, BulkAction, Filter, Selection
from forge_jobs.core.status import JobStatus
from forge_jobs.store.jobs import Verdict
from forge_jobs.store.store import Store
from forge_jobs.testing.clock import MovableClock

from .worker import Process, claim_of, enqueue, new_job, record


async def _cancel(store: Store, *ids: str, reason: str = "enough") -> Acted:
    return await store.jobs.act(BulkAction.CANCEL, Selection(ids=ids), reason=reason, limit=10)


@pytest.mark.asyncio
class TestCancel:
    """``JobStore.cancel`` and what follows it."""

    async def test_a_waiting_job_never_starts(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        pending = await enqueue(store)
        scheduled = await enqueue(store, delay_s=5.0)
        held = await enqueue(store, hold=True, limit_key="a")
        answers = (pending, scheduled, held)
        assert await _cancel(store, *(answer.id for answer in answers)) == Acted(changed=3)
        clock.advance(10)
        await store.jobs.unhold("a", limit=10)
        await store.jobs.promote(limit=10)
        assert await worker.claim(free=10) == []
        for answer in answers:
            job = await record(store, answer.id)
            assert (job.status, job.last_error) == (JobStatus.CANCELLED, "enough")
            assert (job.attempts, job.started_at) == (0, None)

    async def test_a_running_job_is_asked_to_stop(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        other = await Process.register(store, clock, host_id="host-2")
        answer = await enqueue(store)
        await enqueue(store)
        job = await worker.claim_one()
        await other.claim_one()
        before = (await worker.exchange()).control_version
        assert await _cancel(store, answer.id) == Acted(requested=1)
        stored = await record(store, answer.id)
        assert (stored.status, stored.cancel_requested_at) == (JobStatus.RUNNING, clock.now())
        for _ in range(2):
            round_ = await worker.exchange()
            assert list(round_.cancels) == [job.key]
            assert round_.control_version != before
            control = await store.processes.control(worker.key)
            assert list(control.cancels) == [job.key]
        assert list((await other.exchange()).cancels) == []
        assert list((await store.processes.control(other.key)).cancels) == []
        round_ = await worker.exchange(finish=[worker.build_finish(job, Stopped())])
        assert list(round_.cancels) == []
        assert list((await store.processes.control(worker.key)).cancels) == []

    async def test_every_outcome_but_done_becomes_cancelled(
        self, store: Store, worker: Process
    ) -> None:
        outcomes: list[AnyOutcome] = [Stopped(), Failed("x"), Dead("x"), Snooze(5), Throttled(5)]
        for outcome in outcomes:
            answer = await enqueue(store)
            job = await worker.claim_one()
            await _cancel(store, answer.id)
            assert await worker.finish(job, outcome) is Verdict.APPLIED
            stored = await record(store, answer.id)
            assert (stored.status, stored.last_error) == (JobStatus.CANCELLED, "enough")
            await worker.advance(3_600)
            assert await worker.claim() == []

    async def test_M2_done_stands_after_a_cancel_request(
        self, store: Store, worker: Process
    ) -> None:
        answer = await enqueue(store)
        job = await worker.claim_one()
        await _cancel(store, answer.id)
        assert await worker.finish(job, Done(), result=b"1") is Verdict.APPLIED
        stored = await record(store, answer.id)
        assert (stored.status, stored.result) == (JobStatus.DONE, b"1")

    @pytest.mark.parametrize("jobs", [1, 3])
    async def test_a_done_job_keeps_no_cancel_request(
        self, store: Store, worker: Process, jobs: int
    ) -> None:
        answers = [await enqueue(store) for _ in range(jobs + 1)]
        *ended, still = await worker.claim(free=jobs + 1)
        await _cancel(store, *(answer.id for answer in answers))
        finishes = [worker.build_finish(job, Done()) for job in ended]
        assert list((await worker.exchange(finish=finishes)).cancels) == [still.key]
        assert list((await worker.exchange()).cancels) == [still.key]
        assert list((await store.processes.control(worker.key)).cancels) == [still.key]
        for answer in answers[:-1]:
            assert (await record(store, answer.id)).cancel_requested_at is None

    async def test_M2_a_late_cancel_leaves_an_ended_job_alone(
        self, store: Store, worker: Process
    ) -> None:
        answer = await enqueue(store)
        await worker.finish(await worker.claim_one(), Done(), result=b"1")
        before = await record(store, answer.id)
        assert await _cancel(store, answer.id) == Acted(skipped=1)
        assert await record(store, answer.id) == before

    async def test_a_released_job_that_was_asked_to_stop_ends(
        self, store: Store, worker: Process
    ) -> None:
        answer = await enqueue(store)
        job = await worker.claim_one()
        await _cancel(store, answer.id)
        await worker.exchange(release=[claim_of(job)])
        stored = await record(store, answer.id)
        assert (stored.status, stored.last_error) == (JobStatus.CANCELLED, "enough")

    async def test_asking_twice_is_asking_once(self, store: Store, worker: Process) -> None:
        answer = await enqueue(store)
        job = await worker.claim_one()
        assert (await _cancel(store, answer.id)).requested == 1
        assert (await _cancel(store, answer.id, reason="really")).requested == 1
        assert list((await worker.exchange()).cancels) == [job.key]

    async def test_a_retried_job_is_not_asked_to_stop_again(
        self, store: Store, worker: Process
    ) -> None:
        answer = await enqueue(store)
        job = await worker.claim_one()
        await _cancel(store, answer.id)
        await worker.finish(job, Stopped())
        await store.jobs.act(BulkAction.RETRY, Selection(ids=(answer.id,)), limit=1)
        again = await worker.claim_one()
        assert list((await worker.exchange()).cancels) == []
        assert await worker.finish(again, Failed("x")) is Verdict.APPLIED
        assert (await record(store, answer.id)).status is JobStatus.FAILED

    async def test_by_filter(self, store: Store, worker: Process) -> None:
        await store.jobs.enqueue([new_job(kind="a", delay_s=float(n)) for n in range(3)])
        await store.jobs.enqueue([new_job(kind="b"), new_job(kind="a", queue="other")])
        await worker.claim_one()
        selection = Selection(filter=Filter(kind="a", queue="q"))
        acted = await store.jobs.act(BulkAction.CANCEL, selection, reason="enough", limit=100)
        assert acted == Acted(changed=2, requested=1)
