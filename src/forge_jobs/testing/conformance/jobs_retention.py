"""Retention of terminal jobs."""

import pytest

from forge_jobs.core.job import LogLine
from forge_jobs.core.outcome import Dead, Done
from forge_jobs.core.selection import BulkAction, Selection
from forge_jobs.core.status import JobStatus
from forge_jobs.store.jobs import Note, Retention
from forge_jobs.store.queues import QueueChange
from forge_jobs.store.store import Store

from .worker import Process, all_jobs, claim_of, enqueue, job_counts, new_job

DAY = 86_400.0
FOR_EVER = Retention(done_s=None, dead_s=None, cancelled_s=None)


async def _end_one(store: Store, worker: Process, status: JobStatus, queue: str) -> str:
    answer = await enqueue(store, queue=queue)
    if status is JobStatus.CANCELLED:
        await store.jobs.act(BulkAction.CANCEL, Selection(ids=(answer.id,)), reason="x", limit=1)
    else:
        outcome = Done() if status is JobStatus.DONE else Dead("x")
        await worker.finish(await worker.claim_one(queue), outcome)
    return answer.id


@pytest.mark.asyncio
class TestRetention:
    """``JobStore.purge``."""

    async def test_A17_a_queue_without_settings_is_cleaned_too(
        self, store: Store, worker: Process
    ) -> None:
        for status in (JobStatus.DONE, JobStatus.DEAD, JobStatus.CANCELLED):
            await _end_one(store, worker, status, "undeclared")
        keep = Retention(done_s=DAY, dead_s=3 * DAY, cancelled_s=2 * DAY)
        left: list[set[JobStatus]] = []
        for _ in range(4):
            assert await store.jobs.purge(keep, limit=100) == (1 if left else 0)
            left.append({status for _, status in await job_counts(store)})
            await worker.advance(DAY + 1)
        done, dead, cancelled = JobStatus.DONE, JobStatus.DEAD, JobStatus.CANCELLED
        assert left == [{done, dead, cancelled}, {dead, cancelled}, {dead}, set()]

    async def test_a_queues_own_setting_wins(self, store: Store, worker: Process) -> None:
        await store.queues.ensure("short", slots=1)
        await store.queues.ensure("ever", slots=1)
        await store.queues.change("short", QueueChange(retain_done_s=60.0))
        await store.queues.change("ever", QueueChange(retain_done_s=None))
        for queue in ("short", "ever", "undeclared"):
            await _end_one(store, worker, JobStatus.DONE, queue)
        await worker.advance(61)
        assert await store.jobs.purge(Retention(done_s=30 * DAY), limit=100) == 1
        assert [job.queue for job in await all_jobs(store)] == ["ever", "undeclared"]
        await worker.advance(365 * DAY)
        assert await store.jobs.purge(Retention(done_s=30 * DAY), limit=100) == 1
        assert [job.queue for job in await all_jobs(store)] == ["ever"]

    async def test_a_retention_for_one_queue_overrides_its_settings(
        self, store: Store, worker: Process
    ) -> None:
        await store.queues.ensure("ever", slots=1)
        change = QueueChange(retain_done_s=None, retain_dead_s=None, retain_cancelled_s=None)
        await store.queues.change("ever", change)
        for queue in ("ever", "other"):
            for status in (JobStatus.DONE, JobStatus.DEAD, JobStatus.CANCELLED):
                await _end_one(store, worker, status, queue)
        waiting = await enqueue(store, queue="ever", delay_s=0.5)
        await worker.advance(10)
        keep = Retention(queue="ever", done_s=11.0, dead_s=None, cancelled_s=5.0)
        assert await store.jobs.purge(keep, limit=100) == 1
        await worker.advance(1)
        assert await store.jobs.purge(keep, limit=100) == 1
        everyone = [(job.queue, job.status) for job in await all_jobs(store)]
        assert [status for queue, status in everyone if queue == "ever"][:1] == [JobStatus.DEAD]
        assert [queue for queue, _ in everyone].count("other") == 3
        assert (await store.jobs.get(waiting.id)) is not None
        all_of_it = Retention(queue="ever", done_s=0.0, dead_s=0.0, cancelled_s=0.0)
        assert await store.jobs.purge(all_of_it, limit=100) == 1
        assert [job.id for job in await all_jobs(store) if job.queue == "ever"] == [waiting.id]

    async def test_a_fresh_queue_has_the_defaults(self, store: Store, worker: Process) -> None:
        await store.queues.ensure("q", slots=1)
        await _end_one(store, worker, JobStatus.DONE, "q")
        await worker.advance(7 * DAY - 10)
        assert await store.jobs.purge(Retention(done_s=0.0), limit=100) == 0
        await worker.advance(20)
        assert await store.jobs.purge(FOR_EVER, limit=100) == 1

    async def test_A28_it_works_in_batches(self, store: Store, worker: Process) -> None:
        await store.jobs.enqueue([new_job(queue=f"q{n % 3}") for n in range(25)])
        for n in range(3):
            jobs = await worker.claim(f"q{n}", free=100)
            await worker.send_finishes(*(worker.build_finish(job) for job in jobs))
        await worker.advance(DAY)
        keep = Retention(done_s=60.0)
        removed = [await store.jobs.purge(keep, limit=10) for _ in range(4)]
        assert (sum(removed), max(removed), removed[-1]) == (25, 10, 0)
        assert await job_counts(store) == {}

    async def test_nothing_but_ended_jobs_is_removed(self, store: Store, worker: Process) -> None:
        await store.jobs.enqueue([new_job(), new_job(hold=True, limit_key="a"), new_job()])
        await worker.claim_one()
        await enqueue(store, delay_s=2 * DAY)
        await worker.advance(365 * DAY)
        nothing = Retention(done_s=0.0, dead_s=0.0, cancelled_s=0.0)
        assert await store.jobs.purge(nothing, limit=100) == 0
        assert len(await all_jobs(store)) == 4

    async def test_it_counts_from_the_end(self, store: Store, worker: Process) -> None:
        await enqueue(store)
        await worker.advance(10 * DAY)
        await worker.finish(await worker.claim_one(), Done())
        await worker.advance(DAY / 2)
        assert await store.jobs.purge(Retention(done_s=DAY), limit=100) == 0
        await worker.advance(DAY)
        assert await store.jobs.purge(Retention(done_s=DAY), limit=100) == 1

    async def test_a_retried_job_is_safe(self, store: Store, worker: Process) -> None:
        job_id = await _end_one(store, worker, JobStatus.DEAD, "q")
        await worker.advance(60 * DAY)
        await store.jobs.act(BulkAction.RETRY, Selection(ids=(job_id,)), limit=1)
        assert await store.jobs.purge(Retention(dead_s=DAY), limit=100) == 0
        await worker.finish(await worker.claim_one(), Dead("x"))
        assert await store.jobs.purge(Retention(dead_s=DAY), limit=100) == 0

    async def test_old_jobs_are_found_among_young_ones(self, store: Store, worker: Process) -> None:
        for day in range(6):
            for _ in range(day % 3 + 1):
                await _end_one(store, worker, JobStatus.DONE, "q")
            await _end_one(store, worker, JobStatus.DEAD, "q")
            await worker.advance(DAY)
        for days in (5, 3, 0):
            await store.jobs.purge(Retention(done_s=days * DAY, dead_s=None), limit=100)
            left = [job for job in await all_jobs(store) if job.status is JobStatus.DONE]
            assert len(left) == {5: 9, 3: 5, 0: 0}[days]
        assert len(await all_jobs(store)) == 6

    async def test_A16_what_a_job_wrote_goes_with_it(self, store: Store, worker: Process) -> None:
        answer = await enqueue(store, payload=b'{"text": "%s"}' % (b"x" * 5_000))
        job = await worker.claim_one()
        line = LogLine(worker.clock.now(), "info", "hello")
        await worker.exchange(notes=[Note(claim_of(job), lines=(line,))])
        await worker.finish(job, Done())
        assert len(await store.metrics.logs(answer.id)) == 1
        await worker.advance(DAY)
        assert await store.jobs.purge(Retention(done_s=1.0), limit=100) == 1
        assert await store.metrics.logs(answer.id) == []

    async def test_a_removed_job_is_gone_everywhere(self, store: Store, worker: Process) -> None:
        job_id = await _end_one(store, worker, JobStatus.DONE, "q")
        await worker.advance(DAY)
        await store.jobs.purge(Retention(done_s=1.0), limit=100)
        assert await store.jobs.get(job_id) is None
        assert await store.jobs.peek([job_id]) == [None]
        assert await store.metrics.logs(job_id) == []
