"""Random sequences of calls: counters equal the rows, and every job keeps the invariants."""

from collections import Counter

import pytest

from forge_jobs.core.outcome import (
    AnyOutcome,
    Crashed,
    Dead,
    Done,
    Failed,
    Missing,
    Snooze,
    Throttled,
)
from forge_jobs.core.selection import BulkAction, Filter, Selection
from forge_jobs.core.status import JobStatus
from forge_jobs.kit.entropy import SeededEntropy
from forge_jobs.store.jobs import Retention, Verdict, Want
from forge_jobs.store.store import Store
from forge_jobs.testing.clock import MovableClock

from .jobs_transitions import assert_invariants
from .worker import Process, all_jobs, claim_of, job_counts, new_job

QUEUES = ("q0", "q1", "q2")
STEPS = 250

_DUE = (JobStatus.PENDING, JobStatus.HELD)


class RandomCalls:
    """Random but reproducible calls of every method that changes jobs."""

    def __init__(self, store: Store, clock: MovableClock, seed: int) -> None:
        self.store = store
        self.clock = clock
        self.chance = SeededEntropy(seed)
        self.workers: list[Process] = []
        self.expected = 0

    def pick(self, end: int) -> int:
        return int(self.chance.roll() * end)

    async def step(self) -> None:
        steps = [
            self.enqueue,
            self.enqueue,
            self.work,
            self.work,
            self.work,
            self.act,
            self.pass_time,
        ]
        await steps[self.pick(len(steps))]()

    async def enqueue(self) -> None:
        jobs = [
            new_job(
                kind=f"k{self.pick(3)}",
                queue=QUEUES[self.pick(3)],
                priority=self.pick(3),
                delay_s=float(self.pick(3) * 10),
                max_attempts=1 + self.pick(3),
                expires_s=60.0 if self.pick(5) == 0 else None,
                dedupe_key=f"d{self.pick(8)}" if self.pick(2) else None,
                dedupe_for_s=30.0 if self.pick(3) == 0 else None,
                hold=self.pick(8) == 0,
                limit_key="limit",
            )
            for _ in range(1 + self.pick(5))
        ]
        answers = await self.store.jobs.enqueue(jobs)
        self.expected += sum(not answer.duplicate for answer in answers)

    async def work(self) -> None:
        worker = await self.worker()
        owned = await self.store.jobs.owned(worker.key)
        answer = await worker.exchange(
            release=[row.claim for row in owned if self.pick(4) == 0],
            started=[row.claim for row in owned if self.pick(2) == 0],
            want=[Want(queue, self.pick(3), self.pick(2)) for queue in QUEUES],
        )
        finishes = [
            worker.build_finish(job, self.outcome()) for job in answer.claims if self.pick(3)
        ]
        assert await worker.send_finishes(*finishes) == [Verdict.APPLIED] * len(finishes)
        if self.pick(6) == 0:
            late = [job for job in answer.claims if self.pick(2)]
            await worker.exchange(release=[claim_of(job) for job in late])

    def outcome(self) -> AnyOutcome:
        outcomes: list[AnyOutcome] = [
            Done(), Done(), Failed("x"), Dead("x"), Crashed("x"), Snooze(5), Missing(),
            Throttled(retry_after=2),
        ]  # fmt: skip
        return outcomes[self.pick(len(outcomes))]

    async def act(self) -> None:
        jobs = self.store.jobs
        selection = Selection(filter=Filter(queue=QUEUES[self.pick(3)], kind=f"k{self.pick(3)}"))
        match self.pick(7):
            case 5:
                await jobs.act(BulkAction.RESCHEDULE, selection, delay_s=3.0, limit=3)
            case 0:
                await jobs.act(BulkAction.CANCEL, selection, reason="x", limit=3)
            case 1:
                await jobs.act(BulkAction.RETRY, selection, limit=5)
            case 2:
                await jobs.act(BulkAction.RUN_NOW, selection, limit=5)
            case 3:
                acted = await jobs.act(BulkAction.DELETE, selection, limit=2)
                self.expected -= acted.changed
            case 4:
                await jobs.unhold("limit", limit=2)
            case _:
                keep = Retention(done_s=20.0, dead_s=40.0, cancelled_s=10.0)
                self.expected -= await jobs.purge(keep, limit=3)

    async def pass_time(self) -> None:
        self.clock.advance(float(1 + self.pick(8)))
        for worker in self.workers[self.pick(2) :]:
            await worker.heartbeat()
        if self.pick(3) == 0:
            await self.store.jobs.reap(crash_note="x", limit=50)
            await self.store.processes.remove_dead()
        if self.pick(3) == 0:
            await self.store.jobs.promote(limit=20)
        if self.pick(8) == 0 and self.workers:
            await self.store.processes.deregister(self.workers.pop().key)

    async def worker(self) -> Process:
        for worker in list(self.workers):
            if not (await worker.heartbeat()).alive:
                self.workers.remove(worker)
        if len(self.workers) < 3:
            host_id = f"host-{self.clock.now()}-{self.pick(1_000_000)}"
            self.workers.append(await Process.register(self.store, self.clock, host_id=host_id))
        return self.workers[self.pick(len(self.workers))]


@pytest.mark.asyncio
class TestRandomCalls:
    """Invariants over many calls."""

    @pytest.mark.parametrize("seed", range(3))
    async def test_counters_equal_the_rows(
        self, store: Store, clock: MovableClock, seed: int
    ) -> None:
        calls = RandomCalls(store, clock, seed)
        epochs: dict[int, int] = {}
        for number in range(STEPS):
            await calls.step()
            if number % 25 and number != STEPS - 1:
                continue
            rows = await all_jobs(store)
            assert len(rows) == calls.expected
            counts = Counter((job.queue, job.status) for job in rows)
            assert await job_counts(store) == dict(counts)
            if number % 50 == 0:
                await store.metrics.roll_up(limit=1_000)
                assert await job_counts(store) == dict(counts)
            for job in rows:
                assert_invariants(job)
                assert job.epoch >= epochs.get(job.key, 0)
                epochs[job.key] = job.epoch
            live = Counter(
                (job.kind, job.dedupe_key)
                for job in rows
                if job.dedupe_key and job.finished_at is None
            )
            assert all(jobs == 1 for jobs in live.values())
            waiting = {job.queue for job in rows if job.status in _DUE}
            assert set(await store.metrics.oldest_due()) == waiting
