"""Dedupe keys: one job per kind and key, for as long as the job's options say."""

import asyncio

import pytest

from forge_jobs.core.job import Enqueued, UniqueWhile
from forge_jobs.core.outcome import Dead, Done, Failed, Snooze
from forge_jobs.core.selection import BulkAction, Filter, Selection
from forge_jobs.core.status import JobStatus
from forge_jobs.store.jobs import Retention
from forge_jobs.store.store import Store
from forge_jobs.testing.clock import MovableClock

from .worker import Process, all_jobs, claim_of, enqueue, job_counts, new_job

WAITING = UniqueWhile.WAITING
DAY = 86_400.0


@pytest.mark.asyncio
class TestDedupe:
    """Enqueueing with a key that is taken."""

    async def test_a_taken_key_gives_the_existing_job(self, store: Store) -> None:
        first = await enqueue(store, dedupe_key="a", payload=b"1")
        second = await enqueue(store, dedupe_key="a", payload=b"2", delay_s=60.0)
        assert not first.duplicate
        assert second == Enqueued(first.key, first.id, True, JobStatus.PENDING)
        assert [job.payload for job in await all_jobs(store)] == [b"1"]

    async def test_within_one_call(self, store: Store) -> None:
        keys = ["a", "b", "a", None, "b", None, "a"]
        answers = await store.jobs.enqueue([new_job(dedupe_key=key) for key in keys])
        duplicates = [False, False, True, False, True, False, True]
        assert [answer.duplicate for answer in answers] == duplicates
        assert answers[0].id == answers[2].id == answers[6].id
        assert answers[1].id == answers[4].id
        assert await job_counts(store) == {("q", JobStatus.PENDING): 4}

    async def test_the_scope_of_a_key_is_its_kind_not_its_queue(self, store: Store) -> None:
        await enqueue(store, kind="a", queue="one", dedupe_key="k")
        other_kind = await enqueue(store, kind="b", queue="one", dedupe_key="k")
        other_queue = await enqueue(store, kind="a", queue="two", dedupe_key="k")
        assert (other_kind.duplicate, other_queue.duplicate) == (False, True)

    async def test_keys_are_compared_exactly(self, store: Store) -> None:
        texts = ["key", "Key", "key ", " key", "kéy", "ke\u0301y", "k%y", "k_y", "0", "00", "1e2"]
        answers = [await enqueue(store, dedupe_key=text) for text in texts]
        assert not any(answer.duplicate for answer in answers)
        again = [await enqueue(store, dedupe_key=text) for text in texts]
        assert [answer.id for answer in again] == [answer.id for answer in answers]

    async def test_the_answer_has_the_state_of_the_existing_job(
        self, store: Store, worker: Process
    ) -> None:
        await enqueue(store, dedupe_key="a")
        job = await worker.claim_one()
        assert (await enqueue(store, dedupe_key="a")).status is JobStatus.RUNNING
        await worker.finish(job, Failed("x"))
        assert (await enqueue(store, dedupe_key="a")).status is JobStatus.FAILED

    async def test_racing_tasks_make_one_job(self, store: Store) -> None:
        answers = await asyncio.gather(*(enqueue(store, dedupe_key="a") for _ in range(40)))
        assert sum(not answer.duplicate for answer in answers) == 1
        assert len({answer.id for answer in answers}) == 1

    async def test_racing_threads_make_one_job_per_key(self, store: Store) -> None:
        keys = [f"k{n}" for n in range(10)]

        def call(turn: int) -> list[Enqueued]:
            # Calls with different orders of keys deadlock if keys are locked in request order.
            order = keys[turn % 10 :] + keys[: turn % 10]
            return asyncio.run(store.jobs.enqueue([new_job(dedupe_key=key) for key in order]))

        calls = await asyncio.gather(*(asyncio.to_thread(call, turn) for turn in range(6)))
        assert sum(not answer.duplicate for answers in calls for answer in answers) == 10
        assert len(await all_jobs(store)) == 10

    async def test_racing_sync_and_async_calls_make_one_job(self, store: Store) -> None:
        if not store.capabilities.sync_calls:
            return

        def call() -> Enqueued:
            [answer] = store.enqueue_sync([new_job(dedupe_key="a")])
            return answer

        answers = await asyncio.gather(
            *(asyncio.to_thread(call) for _ in range(4)),
            *(enqueue(store, dedupe_key="a") for _ in range(4)),
        )
        assert sum(not answer.duplicate for answer in answers) == 1


@pytest.mark.asyncio
class TestKeyRelease:
    """When a key is free again."""

    @pytest.mark.parametrize("status", ["done", "dead", "cancelled"])
    async def test_it_is_free_when_the_job_has_ended(
        self, store: Store, worker: Process, status: str
    ) -> None:
        await _ended(store, worker, status)
        assert not (await enqueue(store, dedupe_key="a")).duplicate

    @pytest.mark.parametrize("status", ["done", "dead", "cancelled"])
    async def test_dedupe_for_keeps_it_after_the_end(
        self, store: Store, worker: Process, status: str
    ) -> None:
        answer = await _ended(store, worker, status, dedupe_for_s=60.0)
        await worker.advance(59)
        again = await enqueue(store, dedupe_key="a")
        assert (again.id, again.duplicate, again.status) == (answer.id, True, JobStatus(status))
        await worker.advance(2)
        assert not (await enqueue(store, dedupe_key="a")).duplicate

    async def test_dedupe_for_counts_from_the_end_not_from_the_enqueue(
        self, store: Store, worker: Process
    ) -> None:
        await enqueue(store, dedupe_key="a", dedupe_for_s=60.0, delay_s=300.0)
        await worker.advance(301)
        await worker.finish(await worker.claim_one(), Done())
        await worker.advance(30)
        assert (await enqueue(store, dedupe_key="a")).duplicate

    async def test_it_is_taken_through_retries_and_snoozes(
        self, store: Store, worker: Process
    ) -> None:
        await enqueue(store, dedupe_key="a")
        for outcome in (Failed("x"), Snooze(20)):
            await worker.finish(await worker.claim_one(), outcome)
            assert (await enqueue(store, dedupe_key="a")).duplicate
            await worker.advance(40)
        await worker.exchange(release=[claim_of(await worker.claim_one())])
        assert (await enqueue(store, dedupe_key="a")).duplicate

    async def test_unique_while_waiting_frees_it_at_the_start(
        self, store: Store, worker: Process
    ) -> None:
        first = await enqueue(store, dedupe_key="a", unique_while=WAITING)
        assert (await enqueue(store, dedupe_key="a", unique_while=WAITING)).duplicate
        job = await worker.claim_one()
        second = await enqueue(store, dedupe_key="a", unique_while=WAITING)
        assert (second.duplicate, second.id == first.id) == (False, False)
        assert (await enqueue(store, dedupe_key="a", unique_while=WAITING)).id == second.id
        await worker.finish(job, Done())
        assert (await enqueue(store, dedupe_key="a", unique_while=WAITING)).id == second.id

    async def test_unique_while_waiting_is_not_freed_by_a_prefetch(
        self, store: Store, worker: Process
    ) -> None:
        await enqueue(store, dedupe_key="a", unique_while=WAITING)
        [job] = await worker.claim(free=0, prefetch=1)
        assert (await enqueue(store, dedupe_key="a", unique_while=WAITING)).duplicate
        await worker.exchange(started=[claim_of(job)])
        assert not (await enqueue(store, dedupe_key="a", unique_while=WAITING)).duplicate

    async def test_unique_while_waiting_is_freed_by_a_run_that_was_never_marked(
        self, store: Store, worker: Process
    ) -> None:
        await enqueue(store, dedupe_key="a", unique_while=WAITING)
        [job] = await worker.claim(free=0, prefetch=1)
        await worker.finish(job, Failed("x"))
        assert not (await enqueue(store, dedupe_key="a", unique_while=WAITING)).duplicate

    async def test_it_is_free_when_the_job_is_deleted(self, store: Store, worker: Process) -> None:
        answer = await enqueue(store, dedupe_key="a")
        await store.jobs.act(BulkAction.DELETE, Selection(ids=(answer.id,)), limit=1)
        fresh = await enqueue(store, dedupe_key="a", dedupe_for_s=DAY)
        assert not fresh.duplicate
        await worker.finish(await worker.claim_one(), Done())
        await store.jobs.act(BulkAction.DELETE, Selection(ids=(fresh.id,)), limit=1)
        assert not (await enqueue(store, dedupe_key="a")).duplicate

    async def test_deleting_an_old_job_leaves_the_key_of_the_new_one(
        self, store: Store, worker: Process
    ) -> None:
        old = await _ended(store, worker, "done")
        new = await enqueue(store, dedupe_key="a")
        await store.jobs.act(BulkAction.DELETE, Selection(ids=(old.id,)), limit=1)
        assert (await enqueue(store, dedupe_key="a")).id == new.id

    async def test_retention_does_not_cut_dedupe_for_short(
        self, store: Store, worker: Process
    ) -> None:
        answer = await _ended(store, worker, "done", dedupe_for_s=30 * DAY)
        await worker.advance(10 * DAY)
        keep = Retention(done_s=DAY)
        assert await store.jobs.purge(keep, limit=10) == 0
        assert (await enqueue(store, dedupe_key="a")).id == answer.id
        await worker.advance(21 * DAY)
        assert await store.jobs.purge(keep, limit=10) == 1
        assert not (await enqueue(store, dedupe_key="a")).duplicate


@pytest.mark.asyncio
class TestRetryAndKeys:
    """A retry never makes two live jobs with one key."""

    async def test_M4_retry_is_skipped_while_another_live_job_holds_the_key(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        old = await _ended(store, worker, "dead")
        new = await enqueue(store, dedupe_key="a")
        acted = await store.jobs.act(BulkAction.RETRY, Selection(ids=(old.id,)), limit=1)
        assert (acted.changed, acted.skipped) == (0, 1)
        await worker.finish(await worker.claim_one(), Done())
        acted = await store.jobs.act(BulkAction.RETRY, Selection(ids=(old.id,)), limit=1)
        assert (acted.changed, acted.skipped) == (1, 0)
        assert (await enqueue(store, dedupe_key="a")).id == old.id != new.id

    async def test_a_retried_job_holds_its_key_again(self, store: Store, worker: Process) -> None:
        old = await _ended(store, worker, "dead")
        await store.jobs.act(BulkAction.RETRY, Selection(ids=(old.id,)), limit=1)
        answer = await enqueue(store, dedupe_key="a")
        assert (answer.id, answer.duplicate) == (old.id, True)
        await worker.finish(await worker.claim_one(), Done())
        assert not (await enqueue(store, dedupe_key="a")).duplicate

    async def test_its_own_kept_key_does_not_block_a_retry(
        self, store: Store, worker: Process
    ) -> None:
        old = await _ended(store, worker, "dead", dedupe_for_s=60.0)
        acted = await store.jobs.act(BulkAction.RETRY, Selection(ids=(old.id,)), limit=1)
        assert acted.changed == 1
        await worker.advance(120)
        assert (await enqueue(store, dedupe_key="a")).id == old.id

    async def test_a_failed_job_does_not_block_its_own_retry(
        self, store: Store, worker: Process
    ) -> None:
        answer = await enqueue(store, dedupe_key="a")
        await worker.finish(await worker.claim_one(), Failed("x"))
        acted = await store.jobs.act(BulkAction.RETRY, Selection(ids=(answer.id,)), limit=1)
        assert (acted.changed, acted.skipped) == (1, 0)
        assert (await enqueue(store, dedupe_key="a")).id == answer.id

    async def test_an_ended_job_does_not_block_a_retry(self, store: Store, worker: Process) -> None:
        old = await _ended(store, worker, "dead")
        await _ended(store, worker, "done", dedupe_for_s=DAY)
        acted = await store.jobs.act(BulkAction.RETRY, Selection(ids=(old.id,)), limit=1)
        assert (acted.changed, acted.skipped) == (1, 0)
        assert (await enqueue(store, dedupe_key="a")).id == old.id

    @pytest.mark.parametrize("by", ["ids", "filter"])
    async def test_A7_one_job_per_key_in_a_bulk_retry(
        self, store: Store, worker: Process, by: str
    ) -> None:
        dead = [await _ended(store, worker, "dead", key=f"k{n % 3}") for n in range(12)]
        free = [await _ended(store, worker, "dead", key=None) for _ in range(4)]
        ids = tuple(answer.id for answer in dead + free)
        selection = Selection(ids=ids) if by == "ids" else Selection(filter=Filter(queue="q"))
        acted = await store.jobs.act(BulkAction.RETRY, selection, limit=100)
        assert (acted.changed, acted.skipped, acted.next) == (7, 9, None)
        live = [job for job in await all_jobs(store) if job.status is JobStatus.PENDING]
        assert sorted(job.dedupe_key or "" for job in live) == ["", "", "", "", "k0", "k1", "k2"]

    async def test_A7_a_bulk_retry_over_taken_keys_comes_to_an_end(
        self, store: Store, worker: Process
    ) -> None:
        for n in range(7):
            await _ended(store, worker, "dead", key=f"k{n}")
            await enqueue(store, dedupe_key=f"k{n}", delay_s=600.0)
        selection = Selection(filter=Filter(statuses=(JobStatus.DEAD,)))
        skipped, cursor = 0, None
        for _ in range(10):
            acted = await store.jobs.act(BulkAction.RETRY, selection, limit=2, after=cursor)
            assert acted.changed == 0
            assert acted.skipped <= 2
            skipped += acted.skipped
            cursor = acted.next
            if cursor is None:
                break
        assert (skipped, cursor) == (7, None)


async def _ended(
    store: Store,
    worker: Process,
    status: str,
    *,
    key: str | None = "a",
    dedupe_for_s: float | None = None,
) -> Enqueued:
    answer = await enqueue(store, dedupe_key=key, dedupe_for_s=dedupe_for_s, priority=-1)
    if status == "cancelled":
        await store.jobs.act(BulkAction.CANCEL, Selection(ids=(answer.id,)), reason="x", limit=1)
    else:
        job = await worker.claim_one()
        assert job.key == answer.key
        await worker.finish(job, Done() if status == "done" else Dead("x"))
    return answer
