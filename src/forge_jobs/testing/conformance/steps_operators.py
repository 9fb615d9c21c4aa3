"""What operators and retention do to steps and waits."""

import pytest

from forge_jobs.core.decide import StepProgress
from forge_jobs.core.errors import KeyTaken, NotFound
from forge_jobs.core.job import Enqueued
from forge_jobs.core.outcome import Dead, Done
from forge_jobs.core.selection import BulkAction, Filter, Selection
from forge_jobs.core.status import JobStatus
from forge_jobs.core.steps import StepKind
from forge_jobs.store.jobs import Retention, Want
from forge_jobs.store.store import Store

from .step_requests import (
    history,
    kinds,
    park,
    send,
    status_of,
    step,
    suspended,
    topics_of,
    wait,
    write_steps,
)
from .worker import Process, enqueue, job_counts, record


async def act(store: Store, action: BulkAction, job: Enqueued) -> int:
    """Apply an action to one job; how many were changed."""
    return (await store.jobs.act(action, Selection(ids=(job.id,)), limit=1)).changed


async def suspended_with_steps(store: Store, worker: Process) -> Enqueued:
    """A suspended job with one stored step."""
    answer = await enqueue(store)
    job = await worker.claim_one()
    await write_steps(worker, step(job, "a"))
    await park(worker, job)
    return answer


async def dead_with_steps(store: Store, worker: Process, **options: object) -> Enqueued:
    """A dead job with steps that began at 10, 20, 20 and 30."""
    answer = await enqueue(store, **options)
    job = await worker.claim_one()
    began = {"d": 10, "c": 20, "b": 20, "a": 30}
    await write_steps(worker, *(step(job, name, began_at=at) for name, at in began.items()))
    await worker.finish(job, Dead("x"), progress=StepProgress(stored=True))
    return answer


@pytest.mark.asyncio
class TestStepActions:
    """Bulk actions and retention."""

    async def test_run_now_forgets_the_wait_without_a_step(
        self, store: Store, worker: Process
    ) -> None:
        answer = await suspended_with_steps(store, worker)
        assert await act(store, BulkAction.RUN_NOW, answer) == 1
        found = await record(store, answer.id)
        assert (found.status, found.run_at) == (JobStatus.PENDING, worker.clock.now())
        assert await topics_of(store, answer.id) == []
        assert await send(store) == 0
        job = await worker.claim_one()
        assert await kinds(store, answer.id) == {"a": StepKind.STEP}
        await park(worker, job)
        assert await status_of(store, answer.id) is JobStatus.PENDING

    async def test_run_now_ends_a_sleep(self, store: Store, worker: Process) -> None:
        answer = await suspended(store, worker, wake_at=worker.clock.now() + 10**12)
        assert await act(store, BulkAction.RUN_NOW, answer) == 1
        assert (await worker.claim_one()).key == answer.key

    async def test_cancel_removes_the_waits_and_keeps_the_steps(
        self, store: Store, worker: Process
    ) -> None:
        answer = await suspended_with_steps(store, worker)
        assert await act(store, BulkAction.CANCEL, answer) == 1
        assert await status_of(store, answer.id) is JobStatus.CANCELLED
        assert await topics_of(store, answer.id) == []
        assert await send(store) == 0
        assert list(await history(store, answer.id)) == ["a"]
        assert await act(store, BulkAction.RETRY, answer) == 1
        job = await worker.claim_one()
        assert job.steps is not None
        assert [one.name for one in job.steps.records] == ["a"]

    async def test_reschedule_skips_a_suspended_job(self, store: Store, worker: Process) -> None:
        answer = await suspended_with_steps(store, worker)
        assert await act(store, BulkAction.RESCHEDULE, answer) == 0
        assert await topics_of(store, answer.id) == [("paid", "1")]

    async def test_delete_removes_steps_and_waits(self, store: Store, worker: Process) -> None:
        answer = await suspended_with_steps(store, worker)
        assert await act(store, BulkAction.DELETE, answer) == 1
        assert await store.events.waits(limit=10) == []
        assert await history(store, answer.id) == {}
        assert await send(store) == 0
        assert await job_counts(store) == {}

    async def test_actions_by_filter_find_suspended_jobs(
        self, store: Store, worker: Process
    ) -> None:
        answers = [await suspended(store, worker) for _ in range(3)]
        await enqueue(store)
        chosen = Filter(statuses=(JobStatus.SUSPENDED,))
        page = await store.jobs.page(chosen, limit=2)
        assert [job.id for job in page.jobs] == [answers[2].id, answers[1].id]
        last = await store.jobs.page(chosen, limit=2, after=page.next)
        assert [job.id for job in last.jobs] == [answers[0].id]
        acted = await store.jobs.act(
            BulkAction.CANCEL, Selection(filter=chosen), reason="x", limit=10
        )
        assert acted.changed == 3
        assert await job_counts(store) == {
            ("q", JobStatus.CANCELLED): 3, ("q", JobStatus.PENDING): 1,
        }  # fmt: skip

    async def test_a_job_keeps_its_dedupe_key_while_suspended(
        self, store: Store, worker: Process
    ) -> None:
        answer = await suspended(store, worker, dedupe_key="k")
        again = await enqueue(store, dedupe_key="k")
        assert (again.duplicate, again.status) == (True, JobStatus.SUSPENDED)
        await send(store)
        await worker.send_finishes(worker.build_finish(await worker.claim_one()))
        assert await status_of(store, answer.id) is JobStatus.DONE
        assert not (await enqueue(store, dedupe_key="k")).duplicate

    async def test_retention_deletes_steps_with_their_job(
        self, store: Store, worker: Process
    ) -> None:
        old = await enqueue(store)
        job = await worker.claim_one()
        reply = await worker.exchange(
            steps=[step(job, "a")], finish=[worker.build_finish(job, Done())], want=[Want("q", 1)]
        )
        assert list(reply.claims) == []
        kept = await suspended_with_steps(store, worker)
        await worker.advance(100)
        assert await store.jobs.purge(Retention(done_s=50.0), limit=10) == 1
        assert await store.jobs.get(old.id) is None
        assert await history(store, old.id) == {}
        assert list(await history(store, kept.id)) == ["a"]
        assert await topics_of(store, kept.id) == [("paid", "1")]


@pytest.mark.asyncio
class TestRetryFrom:
    """``StepStore.retry_from``."""

    async def test_steps_that_began_at_or_after_the_chosen_one_are_deleted(
        self, store: Store, worker: Process
    ) -> None:
        answer = await dead_with_steps(store, worker)
        assert await store.steps.retry_from(answer.id, "b") is True
        found = await record(store, answer.id)
        assert (found.status, found.attempts, found.run_at) == (
            JobStatus.PENDING, 0, worker.clock.now(),
        )  # fmt: skip
        assert list(await history(store, answer.id)) == ["d"]
        job = await worker.claim_one()
        assert job.steps is not None
        assert [one.name for one in job.steps.records] == ["d"]

    async def test_from_the_first_step_nothing_is_left(self, store: Store, worker: Process) -> None:
        answer = await dead_with_steps(store, worker)
        assert await store.steps.retry_from(answer.id, "d") is True
        assert await history(store, answer.id) == {}
        job = await worker.claim_one()
        assert job.steps is None or job.steps.records == ()

    async def test_an_unknown_job_or_step_is_not_found(self, store: Store, worker: Process) -> None:
        answer = await dead_with_steps(store, worker)
        for job_id, name in ((answer.id, "x"), ("01ARZ3NDEKTSV4RRFFQ69G5FAV", "a"), ("no", "a")):
            with pytest.raises(NotFound):
                await store.steps.retry_from(job_id, name)
        assert await status_of(store, answer.id) is JobStatus.DEAD
        assert len(await history(store, answer.id)) == 4

    async def test_a_job_that_is_live_or_done_is_left_alone(
        self, store: Store, worker: Process
    ) -> None:
        waiting = await suspended_with_steps(store, worker)
        running = await enqueue(store)
        job = await worker.claim_one()
        await write_steps(worker, step(job, "a"))
        for answer in (waiting, running):
            assert await store.steps.retry_from(answer.id, "a") is False
            assert list(await history(store, answer.id)) == ["a"]
        await worker.send_finishes(worker.build_finish(job))
        assert await store.steps.retry_from(running.id, "a") is False
        assert await status_of(store, running.id) is JobStatus.DONE

    async def test_a_taken_dedupe_key_changes_nothing(self, store: Store, worker: Process) -> None:
        answer = await dead_with_steps(store, worker, dedupe_key="k")
        await enqueue(store, dedupe_key="k")
        with pytest.raises(KeyTaken):
            await store.steps.retry_from(answer.id, "b")
        assert await status_of(store, answer.id) is JobStatus.DEAD
        assert len(await history(store, answer.id)) == 4

    async def test_a_cancelled_job_can_be_retried_from_a_step(
        self, store: Store, worker: Process
    ) -> None:
        answer = await suspended_with_steps(store, worker)
        await act(store, BulkAction.CANCEL, answer)
        assert await store.steps.retry_from(answer.id, "a") is True
        job = await worker.claim_one()
        await park(worker, job, wait())
        assert await status_of(store, answer.id) is JobStatus.SUSPENDED
