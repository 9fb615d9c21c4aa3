"""What a finish adds to a history: sleeps, restarts, attempts that are given back."""

import pytest
from msgspec import structs

from forge_jobs.core.decide import StepProgress
from forge_jobs.core.instant import SECOND
from forge_jobs.core.job import ClaimedJob
from forge_jobs.core.outcome import AnyOutcome, Dead, Done, Failed, Parked, Restarted, Snooze
from forge_jobs.core.retry import Backoff
from forge_jobs.core.selection import BulkAction, Selection
from forge_jobs.core.status import JobStatus
from forge_jobs.core.steps import FinishSteps, StepKind, StepWrite
from forge_jobs.store.jobs import Verdict, Want
from forge_jobs.store.store import Store
from forge_jobs.testing.clock import MovableClock

from .step_requests import history, kinds, step, stored, topics_of, wait, write_steps
from .worker import LEASE_S, Process, claim_of, enqueue, record

APPLIED, ALREADY, STALE = Verdict.APPLIED, Verdict.ALREADY, Verdict.STALE
_NOW = Backoff(base_s=0.0, max_s=0.0)
PROGRESS, NO_PROGRESS = StepProgress(stored=True), StepProgress(stored=False)


def sleep_step(job: ClaimedJob, until: int, name: str = "sleep") -> StepWrite:
    """The step of a sleep."""
    return step(job, name, b"%d" % until, kind=StepKind.SLEEP)


async def cancel(store: Store, job_id: str) -> None:
    """Ask for the cancellation of a job."""
    await store.jobs.act(BulkAction.CANCEL, Selection(ids=(job_id,)), reason="enough", limit=1)


@pytest.mark.asyncio
class TestFinishSteps:
    """``Finish.steps``: sleeps, cancel requests, expiry."""

    async def test_a_sleep_ends_the_run_until_its_instant(
        self, store: Store, clock: MovableClock, worker: Process
    ) -> None:
        answer = await enqueue(store)
        job = await worker.claim_one()
        until = clock.now() + 60 * SECOND
        slept = sleep_step(job, until)
        # The instant was chosen before the finish arrived; a delay would be counted from then.
        await worker.advance(5)
        assert await worker.finish(job, Parked(None, until, (slept,))) is APPLIED
        found = await record(store, answer.id)
        assert (found.status, found.run_at, found.attempts) == (JobStatus.SCHEDULED, until, 0)
        await worker.advance(54)
        assert await worker.claim() == []
        await worker.advance(1)
        again = await worker.claim_one()
        assert again.attempts == 1
        assert again.steps is not None
        assert again.steps.records == (stored(slept),)

    async def test_steps_of_a_stale_finish_are_not_stored(
        self, store: Store, worker: Process
    ) -> None:
        answer = await enqueue(store)
        job = await worker.claim_one()
        await worker.exchange(release=[claim_of(job)])
        parked = Parked(None, 1, (sleep_step(job, 1),))
        assert await worker.finish(job, parked) is STALE
        assert await history(store, answer.id) == {}

    async def test_a_repeated_finish_stores_its_steps_once(
        self, store: Store, worker: Process
    ) -> None:
        answer = await enqueue(store)
        job = await worker.claim_one()
        parked = Parked(None, 1, (sleep_step(job, 1),))
        assert await worker.finish(job, parked) is APPLIED
        assert await worker.finish(job, parked) is ALREADY
        assert list(await history(store, answer.id)) == ["sleep"]

    async def test_a_stored_name_stays_when_a_finish_brings_it_again(
        self, store: Store, worker: Process
    ) -> None:
        answer = await enqueue(store)
        job = await worker.claim_one()
        await write_steps(worker, step(job, "sleep", b"7"))
        assert await worker.finish(job, Parked(None, 1, (sleep_step(job, 1),))) is APPLIED
        assert (await history(store, answer.id))["sleep"].value == b"7"

    @pytest.mark.parametrize("outcome", [Done(), Dead("x"), Failed("x")])
    async def test_a_finish_that_ends_the_job_stores_its_steps(
        self, store: Store, worker: Process, outcome: AnyOutcome
    ) -> None:
        answer = await enqueue(store, max_attempts=1)
        other = await enqueue(store)
        job, plain = await worker.claim(free=2)
        await write_steps(worker, step(job, "a"))
        kept = step(job, "###1", b'{"names":["a"]}', kind=StepKind.UNUSED)
        finish = worker.build_finish(job, outcome, progress=NO_PROGRESS)
        finish = structs.replace(finish, steps=FinishSteps(steps=(kept,)))
        for verdict in (APPLIED, ALREADY):
            both = [finish, worker.build_finish(plain)]
            assert list((await worker.exchange(finish=both)).verdicts) == [verdict, verdict]
        expected = JobStatus.DONE if isinstance(outcome, Done) else JobStatus.DEAD
        assert (await record(store, answer.id)).status is expected
        assert (await record(store, answer.id)).has_steps
        assert (await history(store, answer.id))["###1"] == stored(kept)
        assert await history(store, other.id) == {}

    @pytest.mark.parametrize("how", ["sleep", "wait", "restart"])
    async def test_a_cancel_request_ends_a_park_as_cancelled(
        self, store: Store, worker: Process, how: str
    ) -> None:
        answer = await enqueue(store, payload=b"[1]")
        job = await worker.claim_one()
        await write_steps(worker, step(job, "before"))
        await cancel(store, answer.id)
        added = (sleep_step(job, 1),)
        outcome = {
            "sleep": Parked(None, 1, added),
            "wait": Parked(wait(), None, added),
            "restart": Restarted(b"[2]", added),
        }[how]
        assert await worker.finish(job, outcome) is APPLIED
        found = await record(store, answer.id)
        assert (found.status, found.last_error) == (JobStatus.CANCELLED, "enough")
        assert (found.payload, found.attempts) == (b"[1]", 1)
        assert set(await history(store, answer.id)) == {"before", "sleep"}
        assert await topics_of(store, answer.id) == []

    async def test_the_first_progress_removes_the_expiry(
        self, store: Store, worker: Process
    ) -> None:
        answer = await enqueue(store, expires_s=60.0)
        job = await worker.claim_one()
        await write_steps(worker, step(job, "a"))
        await worker.finish(job, Failed("x"), progress=PROGRESS, backoff=_NOW)
        await worker.advance(3_600)
        assert (await record(store, answer.id)).expires_at is None
        assert (await worker.claim_one()).key == answer.key

    async def test_without_steps_the_expiry_stays(self, store: Store, worker: Process) -> None:
        answer = await enqueue(store, expires_s=60.0)
        job = await worker.claim_one()
        await worker.finish(job, Snooze(3_000))
        assert (await record(store, answer.id)).expires_at is not None
        await worker.advance(3_600)
        assert await worker.claim() == []
        assert (await record(store, answer.id)).status is JobStatus.CANCELLED


@pytest.mark.asyncio
class TestFailedRuns:
    """``FinishSteps.attempt_returned`` and ``failed_runs``."""

    async def test_a_failure_after_progress_spends_no_attempt(
        self, store: Store, worker: Process
    ) -> None:
        answer = await enqueue(store, max_attempts=2)
        for run in range(1, 4):
            job = await worker.claim_one()
            assert job.attempts == 1
            assert (0 if job.steps is None else job.steps.failed_runs) == run - 1
            await write_steps(worker, step(job, f"s{run}"))
            await worker.finish(job, Failed(f"e{run}"), progress=PROGRESS, backoff=_NOW)
            found = await record(store, answer.id)
            assert (found.status, found.attempts) == (JobStatus.FAILED, 0)
            assert found.failed_runs == run
            assert [error.message for error in found.errors] == ["e1", "e2", "e3"][:run]

    async def test_a_failure_without_progress_spends_its_attempt(
        self, store: Store, worker: Process
    ) -> None:
        answer = await enqueue(store, max_attempts=2)
        for _ in range(2):
            job = await worker.claim_one()
            await write_steps(worker, step(job, "a"))
            await worker.finish(job, Failed("x"), progress=NO_PROGRESS, backoff=_NOW)
        found = await record(store, answer.id)
        assert (found.status, found.attempts, found.failed_runs) == (JobStatus.DEAD, 2, 0)

    async def test_beyond_the_limit_of_failed_runs_attempts_are_spent(
        self, store: Store, worker: Process
    ) -> None:
        answer = await enqueue(store, max_attempts=5)
        limit = StepProgress(stored=True, max_failed_runs=2)
        job = await worker.claim_one()
        await worker.finish(job, Failed("x"), progress=limit, backoff=_NOW)
        job = await worker.claim_one()
        await worker.finish(job, Failed("y"), progress=limit, backoff=_NOW)
        found = await record(store, answer.id)
        assert (found.status, found.attempts, found.failed_runs) == (JobStatus.FAILED, 1, 1)

    async def test_a_retry_starts_the_count_again_and_keeps_the_steps(
        self, store: Store, worker: Process
    ) -> None:
        answer = await enqueue(store)
        job = await worker.claim_one()
        await write_steps(worker, step(job, "a"))
        await worker.finish(job, Failed("x"), progress=PROGRESS, backoff=_NOW)
        job = await worker.claim_one()
        await worker.finish(job, Dead("y"), progress=PROGRESS)
        assert (await record(store, answer.id)).failed_runs == 1
        await store.jobs.act(BulkAction.RETRY, Selection(ids=(answer.id,)), limit=1)
        found = await record(store, answer.id)
        assert (found.failed_runs, found.attempts, found.has_steps) == (0, 0, True)
        again = await worker.claim_one()
        assert again.steps is not None
        assert [one.name for one in again.steps.records] == ["a"]
        assert again.steps.failed_runs == 0

    async def test_a_crash_counts_as_before(
        self, store: Store, clock: MovableClock, worker: Process
    ) -> None:
        answer = await enqueue(store)
        job = await worker.claim_one()
        await write_steps(worker, step(job, "a"))
        clock.advance(LEASE_S + 1)
        await store.jobs.reap(crash_note="died", limit=10)
        found = await record(store, answer.id)
        assert (found.attempts, found.crashes, found.failed_runs) == (1, 1, 0)


@pytest.mark.asyncio
class TestRestart:
    """RESTART: a new history of the same job."""

    async def test_a_restart_deletes_the_history_and_keeps_the_cursors(
        self, store: Store, worker: Process
    ) -> None:
        answer = await enqueue(store, payload=b"[1]", max_attempts=3)
        job = await worker.claim_one()
        await write_steps(worker, step(job, "a"))
        await worker.finish(job, Failed("x"), progress=PROGRESS, backoff=_NOW)
        job = await worker.claim_one()
        await write_steps(worker, step(job, "b"))
        cursor = step(job, "paid\x1f1", b"7", kind=StepKind.CURSOR)
        assert await worker.finish(job, Restarted(b"[2]", (cursor,))) is APPLIED
        found = await record(store, answer.id)
        assert (found.status, found.payload, found.attempts) == (JobStatus.PENDING, b"[2]", 0)
        assert (found.failed_runs, found.run_at) == (0, worker.clock.now())
        assert await kinds(store, answer.id) == {"paid\x1f1": StepKind.CURSOR}
        again = await worker.claim_one()
        assert (again.payload, again.attempts) == (b"[2]", 1)
        assert again.steps is not None
        assert (again.steps.records, again.steps.failed_runs) == ((stored(cursor),), 0)
        assert await write_steps(worker, step(again, "a", b"9")) != []
        assert (await history(store, answer.id))["a"].value == b"9"

    async def test_a_large_payload_replaces_a_small_one_and_back(
        self, store: Store, worker: Process
    ) -> None:
        answer = await enqueue(store, payload=b"[1]")
        for payload in (b'["' + b"x" * 20_000 + b'"]', b"[2]"):
            job = await worker.claim_one()
            await worker.finish(job, Restarted(payload))
            assert (await record(store, answer.id)).payload == payload
        assert (await worker.claim_one()).payload == b"[2]"

    async def test_a_restart_may_be_claimed_in_the_same_exchange(
        self, store: Store, worker: Process
    ) -> None:
        answer = await enqueue(store)
        job = await worker.claim_one()
        finish = worker.build_finish(job, Restarted(b"[2]"))
        reply = await worker.exchange(finish=[finish], want=[Want("q", 1)])
        assert [(one.key, one.payload) for one in reply.claims] == [(answer.key, b"[2]")]
