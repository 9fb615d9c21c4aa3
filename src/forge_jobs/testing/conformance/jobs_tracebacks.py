"""Tracebacks of failed attempts: stored with each error, read with one job, bounded in number."""

import pytest

from forge_jobs.core.job import ERRORS_KEPT
from forge_jobs.core.outcome import AnyOutcome, Crashed, Dead, Done, Failed
from forge_jobs.core.selection import BulkAction, Filter, Selection
from forge_jobs.core.status import JobStatus
from forge_jobs.store.jobs import Note, Verdict
from forge_jobs.store.store import Store
from forge_jobs.testing.clock import MovableClock

from .worker import LEASE_S, Process, claim_of, enqueue, record

LARGE = "Traceback (most recent call last):\n" + "  é → \\ \" ' {x} %s\n" * 700 + "KeyError: 'x'"


@pytest.mark.asyncio
class TestTracebacks:
    """``Finish.traceback`` and ``AttemptError.traceback``."""

    async def test_u1_each_failed_attempt_keeps_its_traceback(
        self, store: Store, worker: Process
    ) -> None:
        answer = await enqueue(store, max_attempts=4)
        for outcome in (_with("one", Failed("a")), Failed("b"), _with(LARGE, Crashed("c"))):
            await worker.finish(await worker.claim_one(), outcome)
            await _run_now(store, answer.id)
        await worker.finish(await worker.claim_one(), _with("last", Dead("d")))
        stored = await record(store, answer.id)
        assert stored.status is JobStatus.DEAD
        assert [(e.attempt, e.message, e.traceback) for e in stored.errors] == [
            (1, "a", "one"), (2, "b", None), (3, "c", LARGE), (4, "d", "last"),
        ]  # fmt: skip

    async def test_u1_a_done_job_keeps_the_tracebacks_of_earlier_attempts(
        self, store: Store, worker: Process
    ) -> None:
        answer = await enqueue(store)
        await worker.finish(await worker.claim_one(), _with("first", Failed("a")))
        await _run_now(store, answer.id)
        await worker.finish(await worker.claim_one(), Done())
        stored = await record(store, answer.id)
        assert (stored.status, [e.traceback for e in stored.errors]) == (JobStatus.DONE, ["first"])

    async def test_u1_a_list_reads_no_tracebacks(self, store: Store, worker: Process) -> None:
        answer = await enqueue(store)
        await worker.finish(await worker.claim_one(), _with(LARGE, Dead("a")))
        page = await store.jobs.page(Filter(), limit=10)
        assert [(job.id, job.errors[0].traceback) for job in page.jobs] == [(answer.id, None)]
        assert (await record(store, answer.id)).errors[0].traceback == LARGE

    async def test_u1_the_newest_thirty_two_are_kept(self, store: Store, worker: Process) -> None:
        answer = await enqueue(store, max_attempts=100)
        for n in range(1, ERRORS_KEPT + 5):
            await worker.finish(await worker.claim_one(), _with(f"t{n}", Failed(f"e{n}")))
            await _run_now(store, answer.id)
        stored = await record(store, answer.id)
        assert [(e.message, e.traceback) for e in stored.errors] == [
            (f"e{n}", f"t{n}") for n in range(5, ERRORS_KEPT + 5)
        ]

    async def test_u1_tracebacks_stay_through_release_reap_and_retry(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        answer = await enqueue(store, max_attempts=2)
        await worker.finish(await worker.claim_one(), _with("first", Failed("a")))
        await _run_now(store, answer.id)
        await worker.exchange(release=[claim_of(await worker.claim_one())])
        await worker.claim_one()
        clock.advance(LEASE_S)
        await store.jobs.reap(crash_note="died", limit=10)
        await store.jobs.act(BulkAction.RETRY, Selection(ids=(answer.id,)), limit=1)
        again = await Process.register(store, clock, host_id="host-2")
        await again.finish(await again.claim_one(), _with("second", Failed("b")))
        stored = await record(store, answer.id)
        assert [(e.attempt, e.message, e.traceback) for e in stored.errors] == [
            (1, "a", "first"), (2, "died", None), (1, "b", "second"),
        ]  # fmt: skip

    async def test_u1_a_refused_or_repeated_finish_stores_no_traceback(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        other = await Process.register(store, clock, host_id="host-2")
        answer = await enqueue(store)
        job = await worker.claim_one()
        finish = worker.build_finish(job, _with("own", Failed("a")))
        assert await other.send_finishes(other.build_finish(job, _with("x", Failed("x")))) == [
            Verdict.STALE
        ]
        assert await worker.send_finishes(finish) == [Verdict.APPLIED]
        assert await worker.send_finishes(finish) == [Verdict.ALREADY]
        assert [e.traceback for e in (await record(store, answer.id)).errors] == ["own"]

    async def test_u1_a_cancelled_run_keeps_the_traceback_of_its_error(
        self, store: Store, worker: Process
    ) -> None:
        answer = await enqueue(store)
        job = await worker.claim_one()
        await store.jobs.act(
            BulkAction.CANCEL, Selection(ids=(answer.id,)), reason="enough", limit=1
        )
        await worker.finish(job, _with("where it was", Failed("a")))
        stored = await record(store, answer.id)
        assert (stored.status, stored.last_error) == (JobStatus.CANCELLED, "enough")
        assert [e.traceback for e in stored.errors] == ["where it was"]

    async def test_u1_several_jobs_in_one_exchange_get_their_own(
        self, store: Store, worker: Process
    ) -> None:
        answers = [await enqueue(store) for _ in range(3)]
        jobs = await worker.claim(free=3)
        await worker.send_finishes(
            *(worker.build_finish(job, _with(f"t{job.key}", Failed("a"))) for job in jobs[:2]),
            worker.build_finish(jobs[2], Done()),
        )
        found = [(await record(store, answer.id)).errors for answer in answers]
        assert [[e.traceback for e in errors] for errors in found] == [
            [f"t{jobs[0].key}"], [f"t{jobs[1].key}"], [],
        ]  # fmt: skip


@pytest.mark.asyncio
class TestProgressAtTheEnd:
    """The progress of a job that has ended."""

    @pytest.mark.parametrize("separate", [False, True])
    async def test_u15g_a_done_job_has_full_progress(
        self, store: Store, worker: Process, separate: bool
    ) -> None:
        answer, plain = await enqueue(store), await enqueue(store)
        job, other = await worker.claim(free=2)
        note = Note(claim_of(job), 0.9, "almost")
        finishes = [worker.build_finish(job), worker.build_finish(other)]
        if separate:
            await worker.exchange(notes=[note])
            await worker.exchange(finish=finishes)
        else:
            await worker.exchange(notes=[note], finish=finishes)
        stored = await record(store, answer.id)
        assert (stored.progress, stored.progress_note) == (1.0, "almost")
        assert (await record(store, plain.id)).progress is None
        page = await store.jobs.page(Filter(), limit=10)
        assert [shown.progress for shown in page.jobs] == [None, 1.0]

    async def test_u15g_a_dead_job_keeps_the_progress_it_made(
        self, store: Store, worker: Process
    ) -> None:
        answer = await enqueue(store)
        job = await worker.claim_one()
        await worker.exchange(notes=[Note(claim_of(job), 0.9, None)])
        await worker.finish(job, Dead("a"))
        assert (await record(store, answer.id)).progress == 0.9


def _with(traceback: str, outcome: AnyOutcome) -> AnyOutcome:
    outcome.traceback = traceback
    return outcome


async def _run_now(store: Store, job_id: str) -> None:
    await store.jobs.act(BulkAction.RUN_NOW, Selection(ids=(job_id,)), limit=1)
