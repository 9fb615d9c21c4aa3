"""Claims that run: releases, started marks, notes, snoozes."""

import pytest

from forge_jobs.core.instant import SECOND
from forge_jobs.core.job import Claim, LogLine
from forge_jobs.core.outcome import Done, Failed, Snooze
from forge_jobs.core.selection import BulkAction, Selection
from forge_jobs.core.status import JobStatus
from forge_jobs.store.jobs import Note, Owned, Want
from forge_jobs.store.store import Store
from forge_jobs.testing.clock import MovableClock

from .worker import Process, claim_of, enqueue, record


@pytest.mark.asyncio
class TestRelease:
    """Release, started marks and snoozes."""

    async def test_A2_release_gives_the_attempt_back_at_once(
        self, store: Store, worker: Process
    ) -> None:
        answer = await enqueue(store, max_attempts=1)
        for round_number in range(1, 4):
            job = await worker.claim_one()
            assert (job.attempts, job.epoch) == (1, 2 * round_number - 1)
            await worker.exchange(release=[claim_of(job)])
            stored = await record(store, answer.id)
            assert (stored.status, stored.attempts) == (JobStatus.PENDING, 0)
            assert (stored.epoch, stored.owner) == (2 * round_number, None)

    async def test_a_released_job_keeps_its_order(self, store: Store, worker: Process) -> None:
        for n in range(3):
            await enqueue(store, kind=f"k{n}")
        first = await worker.claim_one()
        answer = await worker.exchange(release=[claim_of(first)], want=[Want("q", 3)])
        assert [job.kind for job in answer.claims] == ["k0", "k1", "k2"]

    async def test_a_stale_release_is_ignored(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        other = await Process.register(store, clock, host_id="host-2")
        answer = await enqueue(store)
        job = await worker.claim_one()
        await other.exchange(release=[claim_of(job)])
        await worker.exchange(release=[Claim(job.key, job.epoch + 1), Claim(job.key + 999, 1)])
        assert (await record(store, answer.id)).owner == worker.key
        await worker.exchange(release=[claim_of(job)])
        again = await other.claim_one()
        await worker.exchange(release=[claim_of(job)])
        stored = await record(store, answer.id)
        assert (stored.owner, stored.epoch) == (other.key, again.epoch)

    async def test_a_prefetched_job_is_marked_started_later(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        answer = await enqueue(store)
        [job] = await worker.claim(free=0, prefetch=1)
        clock.advance(1)
        await worker.exchange(started=[claim_of(job)])
        assert (await record(store, answer.id)).started_at == clock.now()
        assert await store.jobs.owned(worker.key) == [Owned(claim_of(job), 1, True)]

    async def test_a_started_mark_of_another_worker_is_ignored(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        other = await Process.register(store, clock, host_id="host-2")
        await enqueue(store)
        [job] = await worker.claim(free=0, prefetch=1)
        await other.exchange(started=[claim_of(job)])
        assert [row.started for row in await store.jobs.owned(worker.key)] == [False]

    async def test_a_prefetched_job_may_finish_without_a_started_mark(
        self, store: Store, worker: Process
    ) -> None:
        answer = await enqueue(store)
        [job] = await worker.claim(free=0, prefetch=1)
        await worker.finish(job, Done(), result=b"7")
        assert (await record(store, answer.id)).result == b"7"

    async def test_a_snooze_spends_nothing_however_often(
        self, store: Store, worker: Process
    ) -> None:
        answer = await enqueue(store, max_attempts=1)
        for _ in range(4):
            job = await worker.claim_one()
            assert job.attempts == 1
            await worker.finish(job, Snooze(5))
            stored = await record(store, answer.id)
            assert (stored.status, stored.attempts) == (JobStatus.SCHEDULED, 0)
            assert stored.run_at == worker.clock.now() + 5 * SECOND
            assert stored.errors == ()
            await worker.advance(5)


@pytest.mark.asyncio
class TestNotes:
    """Progress and log lines of running handlers."""

    async def test_progress_and_lines_are_kept(self, store: Store, worker: Process) -> None:
        answer = await enqueue(store)
        job = await worker.claim_one()
        line = LogLine(worker.clock.now(), "info", "half way, é 🦊")
        await worker.exchange(notes=[Note(claim_of(job), 0.5, "rendered", (line,))])
        stored = await record(store, answer.id)
        assert (stored.progress, stored.progress_note) == (0.5, "rendered")
        assert await store.metrics.logs(answer.id) == [line]

    async def test_a_note_changes_only_its_own_fields(self, store: Store, worker: Process) -> None:
        answer = await enqueue(store)
        job = await worker.claim_one()
        await worker.exchange(notes=[Note(claim_of(job), 0.5, "rendered")])
        await worker.exchange(notes=[Note(claim_of(job), None, None, (_line("x"),))])
        stored = await record(store, answer.id)
        assert (stored.progress, stored.progress_note) == (0.5, "rendered")

    async def test_a_stale_note_is_ignored(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        other = await Process.register(store, clock, host_id="host-2")
        answer = await enqueue(store)
        job = await worker.claim_one()
        await other.exchange(notes=[Note(claim_of(job), 0.9, "not mine", (_line("x"),))])
        await worker.exchange(notes=[Note(Claim(job.key, job.epoch + 5), 0.9)])
        stored = await record(store, answer.id)
        assert (stored.progress, stored.progress_note) == (None, None)
        assert await store.metrics.logs(answer.id) == []

    @pytest.mark.parametrize("ended_by", ["done", "failed", "released"])
    async def test_notes_of_a_finished_job_are_kept(
        self, store: Store, worker: Process, ended_by: str
    ) -> None:
        answer = await enqueue(store)
        job = await worker.claim_one()
        note = Note(claim_of(job), None, None, (_line("last words"),))
        if ended_by == "released":
            await worker.exchange(notes=[note], release=[claim_of(job)])
        else:
            outcome = Done() if ended_by == "done" else Failed("x")
            await worker.exchange(notes=[note], finish=[worker.build_finish(job, outcome)])
        assert await store.metrics.logs(answer.id) == [_line("last words")]

    async def test_only_the_newest_thousand_lines_are_kept(
        self, store: Store, worker: Process
    ) -> None:
        answer = await enqueue(store)
        job = await worker.claim_one()
        for start in range(0, 1_200, 400):
            lines = tuple(_line(str(n)) for n in range(start, start + 400))
            await worker.exchange(notes=[Note(claim_of(job), None, None, lines)])
        kept = [line.message for line in await store.metrics.logs(answer.id)]
        assert kept == [str(n) for n in range(200, 1_200)]

    async def test_the_error_history_keeps_the_newest_thirty_two(
        self, store: Store, worker: Process
    ) -> None:
        answer = await enqueue(store, max_attempts=100)
        for n in range(1, 41):
            await worker.finish(await worker.claim_one(), Failed(f"failure {n}"))
            await store.jobs.act(BulkAction.RUN_NOW, Selection(ids=(answer.id,)), limit=1)
        stored = await record(store, answer.id)
        assert [error.message for error in stored.errors] == [f"failure {n}" for n in range(9, 41)]
        assert [error.attempt for error in stored.errors] == list(range(9, 41))
        assert stored.errors[-1].at == worker.clock.now()
        assert stored.last_error == "failure 40"


def _line(message: str) -> LogLine:
    return LogLine(1_700_000_000_000_000, "info", message)
