"""Bulk actions: each call makes progress, and every job is counted."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import pytest

from forge_jobs.core.decide import Budgets
from forge_jobs.core.errors import BadOption
from forge_jobs.core.instant import SECOND
from forge_jobs.core.job import LaneOrder
from forge_jobs.core.outcome import Crashed, Dead, Done, Failed, Throttled
from forge_jobs.core.selection import Acted, BulkAction, Cursor, Filter, Selection
from forge_jobs.core.status import RETRYABLE, JobStatus
from forge_jobs.store.store import Store
from forge_jobs.testing.clock import MovableClock

from .drivers import JobDriver
from .worker import Process, all_jobs, enqueue, job_counts, new_job, record

Verb: TypeAlias = Callable[[Store, Selection, int, Cursor | None], Awaitable[Acted]]

VERBS: dict[str, Verb] = {
    "cancel": lambda store, selection, limit, after: store.jobs.act(
        BulkAction.CANCEL, selection, reason="x", limit=limit, after=after
    ),
    "retry": lambda store, selection, limit, after: store.jobs.act(
        BulkAction.RETRY, selection, limit=limit, after=after
    ),
    "run_now": lambda store, selection, limit, after: store.jobs.act(
        BulkAction.RUN_NOW, selection, limit=limit, after=after
    ),
    "reschedule": lambda store, selection, limit, after: store.jobs.act(
        BulkAction.RESCHEDULE, selection, delay_s=60.0, limit=limit, after=after
    ),
    "delete": lambda store, selection, limit, after: store.jobs.act(
        BulkAction.DELETE, selection, limit=limit, after=after
    ),
}
# Per action: the states it changes. On a running job an action either records a cancel request
# (cancel, delete) or does nothing.
CHANGES = {
    "cancel": {"scheduled", "pending", "held", "failed", "suspended"},
    "retry": {str(status) for status in RETRYABLE},
    "run_now": {"scheduled", "failed", "suspended"},
    "reschedule": {"scheduled", "pending", "held", "failed"},
    "delete": {"scheduled", "pending", "held", "failed", "suspended", "done", "dead", "cancelled"},
}
REQUESTS = {"cancel", "delete"}


async def _one_of_each(store: Store, clock: MovableClock, worker: Process) -> dict[str, str]:
    ids: dict[str, str] = {}
    for status in JobStatus:
        driver = JobDriver(store, clock, worker, queue=f"q-{status}")
        await driver.bring_to(status)
        ids[str(status)] = driver.job_id
    return ids


def _total(acted: Acted) -> int:
    return acted.changed + acted.requested + acted.skipped


@pytest.mark.asyncio
@pytest.mark.parametrize("verb", VERBS)
class TestBulk:
    """Rules of all actions."""

    async def test_A6_by_ids_each_state_gets_what_it_allows(
        self, store: Store, clock: MovableClock, worker: Process, verb: str
    ) -> None:
        ids = await _one_of_each(store, clock, worker)
        selection = Selection(ids=(*ids.values(), "01ARZ3NDEKTSV4RRFFQ69G5FAV", "nonsense"))
        acted = await VERBS[verb](store, selection, 1, None)
        changed, requested = len(CHANGES[verb]), int(verb in REQUESTS)
        assert acted == Acted(
            changed=changed, requested=requested, skipped=len(ids) - changed - requested, missing=2
        )
        await self._check(store, ids, verb)

    async def test_A6_by_filter_each_state_gets_what_it_allows(
        self, store: Store, clock: MovableClock, worker: Process, verb: str
    ) -> None:
        ids = await _one_of_each(store, clock, worker)
        acted = await VERBS[verb](store, Selection(filter=Filter()), 100, None)
        changed, requested = len(CHANGES[verb]), int(verb in REQUESTS)
        assert acted == Acted(
            changed=changed, requested=requested, skipped=len(ids) - changed - requested
        )
        await self._check(store, ids, verb)

    async def _check(self, store: Store, ids: dict[str, str], verb: str) -> None:
        for status, job_id in ids.items():
            job = await store.jobs.get(job_id)
            if status not in CHANGES[verb]:
                assert job is not None
                assert str(job.status) == status
                requested = job.cancel_requested_at is not None
                assert requested == (verb in REQUESTS and status == "running")
            elif verb == "delete":
                assert job is None
            else:
                assert job is not None
                match verb:
                    case "cancel":
                        target = JobStatus.CANCELLED
                    case "reschedule":
                        target = JobStatus.FAILED if status == "failed" else JobStatus.SCHEDULED
                    case _:
                        target = JobStatus.PENDING
                assert job.status is target

    async def test_a_filter_is_worked_off_in_steps(
        self, store: Store, worker: Process, verb: str
    ) -> None:
        await enqueue(store, queue="other", delay_s=5.0)
        for limit in (1, 3, 7, 100):
            queue = f"q{limit}"
            for n in range(7):
                await enqueue(store, queue=queue)
                job = await worker.claim_one(queue)
                await worker.finish(job, Failed("x") if n % 2 else Dead("x"))
            steps = await self._steps(store, verb, Selection(filter=Filter(queue=queue)), limit)
            assert all(_total(step) <= limit for step in steps)
            assert sum(_total(step) for step in steps) == 7
            failed_only = verb in ("cancel", "run_now", "reschedule")
            assert sum(step.changed for step in steps) == (3 if failed_only else 7)
        assert (await job_counts(store))["other", JobStatus.SCHEDULED] == 1

    async def _steps(
        self, store: Store, verb: str, selection: Selection, limit: int
    ) -> list[Acted]:
        steps: list[Acted] = []
        cursor: Cursor | None = None
        for _ in range(10):
            steps.append(await VERBS[verb](store, selection, limit, cursor))
            cursor = steps[-1].next
            if cursor is None:
                return steps
        raise AssertionError(f"{verb} does not end")

    async def test_it_ends_although_jobs_keep_coming(self, store: Store, verb: str) -> None:
        await store.jobs.enqueue([new_job(delay_s=60.0) for _ in range(6)])
        selection = Selection(filter=Filter(queue="q"))
        cursor: Cursor | None = None
        met = 0
        for _ in range(12):
            acted = await VERBS[verb](store, selection, 2, cursor)
            met += _total(acted)
            cursor = acted.next
            if cursor is None:
                break
            await store.jobs.enqueue([new_job(delay_s=60.0) for _ in range(3)])
        assert (met, cursor) == (6, None)

    async def test_an_empty_selection_changes_nothing(self, store: Store, verb: str) -> None:
        await enqueue(store, delay_s=5.0)
        for nothing in (Selection(), Selection(filter=Filter(queue="none"))):
            assert await VERBS[verb](store, nothing, 10, None) == Acted()
        with pytest.raises(BadOption):
            await VERBS[verb](store, Selection(filter=Filter(queue="q")), 10, "not a cursor")
        assert await job_counts(store) == {("q", JobStatus.SCHEDULED): 1}

    async def test_many_ids_in_one_call(self, store: Store, verb: str) -> None:
        answers = await store.jobs.enqueue([new_job(delay_s=60.0) for _ in range(1_200)])
        selection = Selection(ids=tuple(answer.id for answer in answers))
        acted = await VERBS[verb](store, selection, 10, None)
        assert (_total(acted), acted.missing, acted.next) == (1_200, 0, None)


@pytest.mark.asyncio
class TestRetry:
    """What a retry resets."""

    async def test_A10_attempts_and_crashes_begin_anew(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        answer = await enqueue(store, max_attempts=2)
        for _ in range(2):
            await worker.finish(await worker.claim_one(), Crashed("x"))
            await worker.advance(60)
        dead = await record(store, answer.id)
        assert (dead.status, dead.attempts, dead.crashes) == (JobStatus.DEAD, 2, 2)
        await store.jobs.act(BulkAction.RETRY, Selection(ids=(answer.id,)), limit=1)
        job = await record(store, answer.id)
        assert (job.status, job.attempts, job.crashes) == (JobStatus.PENDING, 0, 0)
        assert (job.run_at, job.finished_at) == (clock.now(), None)
        assert len(job.errors) == 2
        for status in (JobStatus.FAILED, JobStatus.DEAD):
            await worker.finish(await worker.claim_one(), Failed("x"))
            assert (await record(store, answer.id)).status is status
            await worker.advance(60)

    async def test_the_budgets_begin_anew(self, store: Store, worker: Process) -> None:
        answer = await enqueue(store)
        budgets = Budgets(throttle_s=10.0)
        for _ in range(2):
            await worker.finish(
                await worker.claim_one(), Throttled(retry_after=20), budgets=budgets
            )
            await worker.advance(20)
        assert (await record(store, answer.id)).status is JobStatus.DEAD
        await store.jobs.act(BulkAction.RETRY, Selection(ids=(answer.id,)), limit=1)
        job = await worker.claim_one()
        assert (job.throttled_since, job.missing_since) == (None, None)

    async def test_an_expired_job_can_be_brought_back(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        answer = await enqueue(store, expires_s=5.0)
        clock.advance(6)
        await store.jobs.promote(limit=10)
        await store.jobs.act(BulkAction.RETRY, Selection(ids=(answer.id,)), limit=1)
        assert (await worker.claim_one()).key == answer.key

    async def test_a_retried_job_ends_again(self, store: Store, worker: Process) -> None:
        answer = await enqueue(store)
        await worker.finish(await worker.claim_one(), Dead("x"))
        await store.jobs.act(BulkAction.RETRY, Selection(ids=(answer.id,)), limit=1)
        await worker.finish(await worker.claim_one(), Done(), result=b"1")
        job = await record(store, answer.id)
        assert (job.status, job.result, job.epoch) == (JobStatus.DONE, b"1", 2)
        assert await job_counts(store) == {("q", JobStatus.DONE): 1}

    async def test_a_bulk_retry_runs_in_the_order_of_age(
        self, store: Store, worker: Process
    ) -> None:
        for n in range(6):
            await enqueue(store, kind=f"k{n}")
            await worker.finish(await worker.claim_one(), Dead("x"))
        await store.jobs.act(BulkAction.RETRY, Selection(filter=Filter()), limit=100)
        assert [job.kind for job in await worker.claim(free=9)] == [f"k{n}" for n in range(6)]


@pytest.mark.asyncio
class TestDelete:
    """What a delete removes."""

    async def test_logs_go_with_the_job(self, store: Store, worker: Process) -> None:
        answer = await enqueue(store)
        await worker.finish(await worker.claim_one(), Done())
        await store.jobs.act(BulkAction.DELETE, Selection(ids=(answer.id,)), limit=1)
        assert await store.metrics.logs(answer.id) == []
        assert await all_jobs(store) == []
        assert await job_counts(store) == {}

    async def test_L4_a_running_job_is_asked_to_stop_and_stays(
        self, store: Store, worker: Process
    ) -> None:
        answer = await enqueue(store)
        job = await worker.claim_one()
        acted = await store.jobs.act(BulkAction.DELETE, Selection(ids=(answer.id,)), limit=1)
        assert acted == Acted(requested=1)
        assert list((await worker.exchange()).cancels) == [job.key]
        await worker.finish(job, Failed("stopped"))
        assert (await record(store, answer.id)).status is JobStatus.CANCELLED

    async def test_run_now_makes_a_job_due_now(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        answer = await enqueue(store, delay_s=600.0)
        clock.advance(2)
        await store.jobs.act(BulkAction.RUN_NOW, Selection(ids=(answer.id,)), limit=1)
        job = await record(store, answer.id)
        assert (job.status, job.run_at) == (JobStatus.PENDING, clock.now())
        assert (await worker.claim_one()).key == answer.key


@pytest.mark.asyncio
class TestReschedule:
    """RESCHEDULE, and what the counts of an action tell apart."""

    async def test_reschedule_sets_the_due_time(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        answer = await enqueue(store)
        selection = Selection(ids=(answer.id,))
        await store.jobs.act(BulkAction.RESCHEDULE, selection, delay_s=600.0, limit=1)
        job = await record(store, answer.id)
        assert (job.status, job.run_at) == (JobStatus.SCHEDULED, clock.now() + 600 * SECOND)
        assert await worker.claim() == []
        moment = clock.now() + 60 * SECOND
        await store.jobs.act(BulkAction.RESCHEDULE, selection, run_at=moment, limit=1)
        assert (await record(store, answer.id)).run_at == moment
        await worker.advance(60)
        assert (await worker.claim_one()).key == answer.key

    async def test_reschedule_to_a_time_that_has_passed_means_now(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        answer = await enqueue(store, delay_s=600.0)
        await store.jobs.act(
            BulkAction.RESCHEDULE, Selection(ids=(answer.id,)), run_at=clock.now() - SECOND, limit=1
        )
        assert (await record(store, answer.id)).run_at == clock.now()
        assert (await worker.claim_one()).key == answer.key

    async def test_a_failed_job_that_is_rescheduled_keeps_its_attempts(
        self, store: Store, worker: Process
    ) -> None:
        answer = await enqueue(store)
        await worker.finish(await worker.claim_one(), Failed("no luck"))
        selection = Selection(ids=(answer.id,))
        await store.jobs.act(BulkAction.RESCHEDULE, selection, delay_s=60.0, limit=1)
        job = await record(store, answer.id)
        assert (job.status, job.attempts, job.last_error) == (JobStatus.FAILED, 1, "no luck")
        await worker.advance(60)
        assert (await worker.claim_one()).attempts == 2

    async def test_rescheduled_jobs_give_up_their_lane(self, store: Store, worker: Process) -> None:
        lane = {"lane": "one", "order": LaneOrder.SERIAL}
        first, second, third = [await enqueue(store, **lane) for _ in range(3)]
        assert (await record(store, second.id)).status is JobStatus.HELD
        for answer in (first, second):
            await store.jobs.act(
                BulkAction.RESCHEDULE, Selection(ids=(answer.id,)), delay_s=60.0, limit=1
            )
        assert await job_counts(store) == {
            ("q", JobStatus.SCHEDULED): 2,
            ("q", JobStatus.PENDING): 1,
        }
        assert (await worker.claim_one()).key == third.key

    async def test_skipped_for_a_taken_key_is_told_apart(
        self, store: Store, worker: Process
    ) -> None:
        old = await enqueue(store, dedupe_key="k")
        await worker.finish(await worker.claim_one(), Dead("x"))
        await enqueue(store, dedupe_key="k")
        done = await enqueue(store, queue="other")
        await worker.finish(await worker.claim_one("other"), Done())
        acted = await store.jobs.act(
            BulkAction.RETRY, Selection(ids=(old.id, done.id, "nonsense")), limit=1
        )
        assert acted == Acted(skipped=2, key_taken=1, missing=1)
