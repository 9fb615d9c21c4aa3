"""Jobs that were stored before their task was known, and get what it declares from a worker."""

import asyncio
from typing import Any

import pytest
from msgspec import structs

from forge_jobs.core.job import Claim, ClaimedJob, LaneOrder, NewJob, Successor
from forge_jobs.core.outcome import Done, Failed, Snooze
from forge_jobs.core.selection import BulkAction, Filter, Selection
from forge_jobs.core.status import JobStatus
from forge_jobs.store.jobs import DeclaredClaim, Owned, Want
from forge_jobs.store.store import Store
from forge_jobs.testing.clock import MovableClock

from .worker import LEASE_S, Process, claim_of, enqueue, new_job, record

MARK: dict[str, Any] = {"undeclared": []}
ON_DEAD = Successor("tell", "desk", 2)
DECLARED = new_job(
    priority=7,
    max_attempts=1,
    timeout_s=30.0,
    tags=("billing",),
    on_dead=ON_DEAD,
    options={"soft_timeout_s": 20.0},
)


async def declare(store: Store, worker: Process, job: ClaimedJob, declared: NewJob) -> None:
    await store.jobs.declare(worker.key, [DeclaredClaim(claim_of(job), declared)])


@pytest.mark.asyncio
class TestDeclare:
    """``JobStore.declare``."""

    async def test_the_job_has_what_the_task_declares(self, store: Store, worker: Process) -> None:
        answer = await enqueue(store, options=MARK)
        job = await worker.claim_one()
        await declare(store, worker, job, DECLARED)
        stored = await record(store, answer.id)
        assert (stored.status, stored.owner) == (JobStatus.RUNNING, worker.key)
        assert (stored.attempts, stored.started_at) == (1, None)
        await worker.exchange(release=[claim_of(job)])
        job = await worker.claim_one()
        assert (job.attempts, job.max_attempts, job.priority) == (1, 1, 7)
        assert (job.timeout_s, job.tags, job.options) == (
            30.0,
            ("billing",),
            {"soft_timeout_s": 20.0},
        )
        await worker.finish(job, Failed("no luck"))
        stored = await record(store, answer.id)
        assert (stored.status, stored.on_dead) == (JobStatus.DEAD, ON_DEAD)
        [letter] = (await store.jobs.page(Filter(kind="tell"), limit=2)).jobs
        assert (letter.queue, letter.max_attempts) == ("desk", 2)

    async def test_the_mark_may_be_all_it_had(self, store: Store, worker: Process) -> None:
        answer = await enqueue(store, options=MARK)
        await declare(store, worker, await worker.claim_one(), new_job())
        assert (await record(store, answer.id)).options is None

    async def test_a_stale_claim_changes_nothing(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        other = await Process.register(store, clock, host_id="host-2")
        answer = await enqueue(store, options=MARK)
        job = await worker.claim_one()
        await declare(store, other, job, DECLARED)
        stale = Claim(job.key, job.epoch + 1)
        await store.jobs.declare(worker.key, [DeclaredClaim(stale, DECLARED)])
        await worker.exchange(release=[claim_of(job)])
        await declare(store, worker, job, DECLARED)
        stored = await record(store, answer.id)
        assert (stored.max_attempts, stored.options) == (5, MARK)

    @pytest.mark.parametrize("first_crash", [False, True])
    async def test_a_worker_that_dies_spends_no_attempt(
        self, store: Store, worker: Process, clock: MovableClock, first_crash: bool
    ) -> None:
        """Neither before the declaration is written nor after it, since no handler has run."""
        answer = await enqueue(store, options=MARK)
        if first_crash:
            lost = await Process.register(store, clock, host_id="host-2", lease_s=1.0)
            await lost.claim_one()
            clock.advance(2)
            await store.jobs.reap(crash_note="died", limit=10)
        await declare(store, worker, await worker.claim_one(), DECLARED)
        clock.advance(2 * LEASE_S)
        await store.jobs.reap(crash_note="died", limit=10)
        stored = await record(store, answer.id)
        assert (stored.status, stored.attempts) == (JobStatus.PENDING, 0)

    async def test_a_started_worker_that_dies_spends_the_only_attempt(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        answer = await enqueue(store, options=MARK)
        job = await worker.claim_one()
        await declare(store, worker, job, DECLARED)
        await worker.exchange(release=[claim_of(job)])
        await worker.claim_one()
        clock.advance(2 * LEASE_S)
        await store.jobs.reap(crash_note="died", limit=10)
        assert (await record(store, answer.id)).status is JobStatus.DEAD

    async def test_own_lanes_and_successors_stay(self, store: Store, worker: Process) -> None:
        own = Successor("mine", "q")
        answer = await enqueue(store, options=MARK, lane="own", order=LaneOrder.STRICT, on_dead=own)
        task = new_job(lane="of the task", order=LaneOrder.SERIAL, on_dead=ON_DEAD)
        await declare(store, worker, await worker.claim_one(), task)
        stored = await record(store, answer.id)
        assert (stored.lane, stored.order, stored.on_dead) == ("own", LaneOrder.STRICT, own)

    async def test_jobs_of_one_lane_start_one_after_the_other(
        self, store: Store, worker: Process
    ) -> None:
        """A lane and a limit key that come with the declaration: a snooze looks for room."""
        for _ in range(3):
            await enqueue(store, options=MARK)
        jobs = await worker.claim(free=3)
        task = new_job(lane="one", order=LaneOrder.SERIAL, limit_key="task:work/a", track=True)
        await store.jobs.declare(worker.key, [DeclaredClaim(claim_of(job), task) for job in jobs])
        assert await store.jobs.owned(worker.key) == [
            Owned(claim_of(job), 1, False) for job in jobs
        ]
        snoozed = [structs.replace(worker.build_finish(job, Snooze(1)), delay_s=0) for job in jobs]
        seen: list[int] = []
        answer = await worker.exchange(finish=snoozed, want=[Want("q", 3)])
        for _ in range(3):
            [job] = answer.claims
            seen.append(job.key)
            await worker.finish(job, Done())
            answer = await worker.exchange(want=[Want("q", 3)])
        assert seen == [job.key for job in jobs]
        assert list(answer.claims) == []


UNROUTED: dict[str, Any] = {"undeclared": [], "unrouted": True}
QUEUES = {"work": "right"}


async def _claims(worker: Process, queue: str, free: int = 10) -> list[ClaimedJob]:
    return list((await worker.exchange(want=[Want(queue, free)])).claims)


async def _counts(store: Store) -> dict[tuple[str, JobStatus], int]:
    return {(one.queue, one.status): one.jobs for one in await store.metrics.counts() if one.jobs}


@pytest.mark.asyncio
class TestRoute:
    """``JobStore.route``."""

    async def test_only_marked_jobs_of_published_kinds_move(
        self, store: Store, worker: Process
    ) -> None:
        first = await enqueue(store, options=UNROUTED)
        named = await enqueue(store, options=MARK)
        other = await enqueue(store, kind="other", options=UNROUTED)
        assert await store.jobs.route(QUEUES, limit=10) == 1
        assert await store.jobs.route(QUEUES, limit=10) == 0
        moved = await record(store, first.id)
        assert (moved.queue, moved.options) == ("right", MARK)
        for answer in (named, other):
            assert (await record(store, answer.id)).queue == "q"
        assert await _counts(store) == {
            ("right", JobStatus.SCHEDULED): 1,
            ("q", JobStatus.PENDING): 2,
        }
        await store.jobs.promote(limit=10)
        [job] = await _claims(worker, "right")
        assert (job.key, job.attempts, job.queue) == (first.key, 1, "right")
        await worker.finish(job, Done())
        assert (await record(store, first.id)).status is JobStatus.DONE
        assert {job.kind for job in await _claims(worker, "q")} == {"work", "other"}

    async def test_batches_and_no_kinds(self, store: Store) -> None:
        for _ in range(5):
            await enqueue(store, options=UNROUTED)
        assert await store.jobs.route({}, limit=10) == 0
        assert [await store.jobs.route(QUEUES, limit=2) for _ in range(4)] == [2, 2, 1, 0]
        assert (await _counts(store)) == {("right", JobStatus.SCHEDULED): 5}

    async def test_a_job_that_is_in_its_queue_only_loses_the_mark(self, store: Store) -> None:
        answer = await enqueue(store, options={"unrouted": True})
        assert await store.jobs.route({"work": "q"}, limit=10) == 1
        stored = await record(store, answer.id)
        assert (stored.status, stored.queue, stored.options) == (JobStatus.PENDING, "q", None)
        assert await store.jobs.route({"work": "q"}, limit=10) == 0

    async def test_a_later_time_stays(self, store: Store, clock: MovableClock) -> None:
        answer = await enqueue(store, options=UNROUTED, delay_s=60.0)
        before = await record(store, answer.id)
        await store.jobs.route(QUEUES, limit=10)
        stored = await record(store, answer.id)
        assert (stored.status, stored.run_at) == (JobStatus.SCHEDULED, before.run_at)
        assert (stored.queue, stored.enqueued_at) == ("right", before.enqueued_at)
        clock.advance(61)
        assert (await store.jobs.promote(limit=10)).promoted == 1

    async def test_a_running_job_stays(self, store: Store, worker: Process) -> None:
        answer = await enqueue(store, options=UNROUTED)
        job = await worker.claim_one()
        assert await store.jobs.route(QUEUES, limit=10) == 0
        assert (await record(store, answer.id)).queue == "q"
        await worker.exchange(release=[claim_of(job)])
        assert await store.jobs.route(QUEUES, limit=10) == 1
        await worker.finish(job, Done())
        assert (await record(store, answer.id)).status is JobStatus.SCHEDULED, "a stale finish"

    async def test_a_cancelled_job_goes_to_its_queue_when_it_is_retried(self, store: Store) -> None:
        answer = await enqueue(store, options=UNROUTED)
        one = Selection(ids=(answer.id,))
        await store.jobs.act(BulkAction.CANCEL, one, limit=1)
        await store.jobs.route(QUEUES, limit=10)
        await store.jobs.act(BulkAction.RETRY, one, limit=1)
        await store.jobs.route(QUEUES, limit=10)
        assert (await record(store, answer.id)).queue == "right"

    async def test_a_lane_of_the_old_queue_gets_room_and_that_of_the_new_one_holds(
        self, store: Store, worker: Process
    ) -> None:
        lane: dict[str, Any] = {"lane": "one", "order": LaneOrder.SERIAL}
        moved = [await enqueue(store, options=UNROUTED, **lane) for _ in range(2)]
        stays = await enqueue(store, **lane)
        assert (await record(store, stays.id)).status is JobStatus.HELD
        assert await store.jobs.route(QUEUES, limit=10) == 2
        assert (await record(store, stays.id)).status is JobStatus.PENDING
        await store.jobs.promote(limit=10)
        [job] = await _claims(worker, "right")
        assert job.key == moved[0].key
        await worker.finish(job, Done())
        [job] = await _claims(worker, "right")
        assert job.key == moved[1].key

    async def test_two_processes_at_once_move_each_job_once(self, store: Store) -> None:
        for _ in range(40):
            await enqueue(store, options=UNROUTED)
        done = 0
        while moved := sum(
            await asyncio.gather(*(store.jobs.route(QUEUES, limit=10) for _ in range(4)))
        ):
            done += moved
        assert done == 40
        assert await _counts(store) == {("right", JobStatus.SCHEDULED): 40}
