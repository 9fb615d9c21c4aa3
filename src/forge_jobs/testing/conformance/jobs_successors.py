"""Successors: stored in the transaction of their transition, once, or not at all."""

import pytest
from msgspec import json

from forge_jobs.core.dead_letter import DeadJob
from forge_jobs.core.job import LaneOrder, NewJob, Successor
from forge_jobs.core.limits import Declared, key_bucket
from forge_jobs.core.outcome import Crashed, Dead, Done, Failed
from forge_jobs.core.selection import BulkAction, Selection
from forge_jobs.core.status import JobStatus
from forge_jobs.store.jobs import Verdict
from forge_jobs.store.store import Store
from forge_jobs.testing.clock import MovableClock

from .worker import LEASE_S, Process, all_jobs, claim_of, enqueue, job_counts, new_job, record

ON_DEAD = Successor("tell", "ops", 2)


@pytest.mark.asyncio
class TestSuccessors:
    """``Finish.jobs`` and ``on_dead``."""

    async def test_jobs_of_an_applied_finish_are_stored(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        await enqueue(store)
        job = await worker.claim_one()
        successors = (
            new_job(kind="a", queue="other", payload=b'{"x": 1}', priority=4),
            new_job(kind="b", delay_s=30.0, tags=("t",)),
        )
        await worker.send_finishes(worker.build_finish(job, jobs=successors))
        _, first, second = await all_jobs(store)
        assert (first.kind, first.queue, first.payload) == ("a", "other", b'{"x": 1}')
        assert (first.status, first.priority) == (JobStatus.PENDING, 4)
        assert (second.kind, second.status, second.tags) == ("b", JobStatus.SCHEDULED, ("t",))
        assert first.enqueued_at == clock.now()

    async def test_jobs_of_a_stale_finish_are_not_stored(
        self, store: Store, worker: Process
    ) -> None:
        await enqueue(store)
        job = await worker.claim_one()
        await worker.exchange(release=[claim_of(job)])
        finish = worker.build_finish(job, jobs=(new_job(kind="next"),))
        assert await worker.send_finishes(finish) == [Verdict.STALE]
        assert len(await all_jobs(store)) == 1

    async def test_a_successor_respects_a_taken_key(self, store: Store, worker: Process) -> None:
        await enqueue(store, kind="next", queue="other", dedupe_key="a")
        await enqueue(store)
        job = await worker.claim_one()
        successors: tuple[NewJob, ...] = (new_job(kind="next", dedupe_key="a"),) * 2
        await worker.send_finishes(worker.build_finish(job, jobs=successors))
        assert await job_counts(store) == {
            ("q", JobStatus.DONE): 1,
            ("other", JobStatus.PENDING): 1,
        }

    @pytest.mark.parametrize("died_by", ["dead", "failed", "crashed"])
    async def test_a_dead_job_stores_its_successor(
        self, store: Store, worker: Process, clock: MovableClock, died_by: str
    ) -> None:
        payload = '{"to" :"é", "n":12345678901234567890123}'.encode()
        answer = await enqueue(store, payload=payload, max_attempts=1, on_dead=ON_DEAD)
        enqueued_at = clock.now()
        job = await worker.claim_one()
        clock.advance(3)
        outcome = {"dead": Dead("boom"), "failed": Failed("boom"), "crashed": Crashed("boom")}[
            died_by
        ]
        await worker.finish(job, outcome)
        dead, successor = await all_jobs(store)
        assert dead.status is JobStatus.DEAD
        assert (successor.kind, successor.queue, successor.max_attempts) == ("tell", "ops", 2)
        assert successor.status is JobStatus.PENDING
        letter = json.decode(successor.payload, type=dict[str, DeadJob])["job"]
        assert (letter.id, letter.kind, letter.queue) == (answer.id, "work", "q")
        assert (letter.attempts, letter.error) == (1, "boom")
        assert (letter.enqueued_at, letter.died_at) == (enqueued_at, clock.now())
        assert payload in successor.payload

    async def test_a_large_payload_reaches_the_successor(
        self, store: Store, worker: Process
    ) -> None:
        payload = b'{"text":"' + b"x" * 50_000 + b'"}'
        await enqueue(store, payload=payload, on_dead=ON_DEAD)
        await worker.finish(await worker.claim_one(), Dead("boom"))
        assert payload in (await worker.claim_one("ops")).payload

    async def test_only_a_dead_job_stores_its_on_dead_job(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        await store.jobs.enqueue([new_job(on_dead=ON_DEAD, expires_s=30.0) for _ in range(5)])
        done, failed, cancelled = await worker.claim(free=3)
        selection = [job.id for job in await all_jobs(store)]
        await store.jobs.act(
            BulkAction.CANCEL, Selection(ids=(selection[2], selection[3])), reason="x", limit=9
        )
        finishes = [(done, Done()), (failed, Failed("x")), (cancelled, Dead("x"))]
        await worker.send_finishes(
            *(worker.build_finish(job, outcome) for job, outcome in finishes)
        )
        clock.advance(60)
        await store.jobs.promote(limit=100)
        assert await job_counts(store) == {("q", JobStatus.DONE): 1, ("q", JobStatus.CANCELLED): 4}

    async def test_each_death_stores_one_successor(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        answer = await enqueue(store, on_dead=ON_DEAD)
        finish = worker.build_finish(await worker.claim_one(), Dead("first"))
        await worker.send_finishes(finish)
        await worker.send_finishes(finish)
        assert len(await all_jobs(store)) == 2
        await store.jobs.act(BulkAction.RETRY, Selection(ids=(answer.id,)), limit=1)
        await worker.finish(await worker.claim_one(), Dead("second"))
        assert len(await all_jobs(store)) == 3
        clock.advance(LEASE_S)
        await store.jobs.reap(crash_note="x", limit=10)
        assert len(await all_jobs(store)) == 3

    @pytest.mark.parametrize("died_by", ["finished", "reaped"])
    async def test_the_successor_is_a_job_of_its_task(
        self, store: Store, worker: Process, clock: MovableClock, died_by: str
    ) -> None:
        await store.limits.publish([Declared(name="task:tell", concurrency=1, per="args.job.kind")])
        on_dead = Successor(
            "tell", "ops", 2, priority=7, timeout_s=9.0, tags=("own", "both"), lane="letters",
            order=LaneOrder.STRICT, track=True, per="args.job.kind", on_dead=ON_DEAD,
        )  # fmt: skip
        made = new_job(on_dead=on_dead, max_attempts=1, tags=("vip", "both"), trace="t")
        await store.jobs.enqueue([made, made])
        for _ in range(2):
            job = await worker.claim_one()
            if died_by == "finished":
                await worker.finish(job, Dead("boom"))
        if died_by == "reaped":
            clock.advance(LEASE_S)
            await store.jobs.reap(crash_note="x", limit=10)
        *_, first, second = await all_jobs(store)
        assert (first.kind, first.priority, first.timeout_s) == ("tell", 7, 9.0)
        assert (first.lane, first.order, first.on_dead) == ("letters", LaneOrder.STRICT, ON_DEAD)
        assert (first.tags, first.trace) == (("own", "both", "vip"), "t")
        assert first.limit_key == key_bucket("tell", "work")
        assert (first.status, second.status) == (JobStatus.PENDING, JobStatus.HELD)

    async def test_a_successor_without_on_dead_has_no_successor(
        self, store: Store, worker: Process
    ) -> None:
        answer = await enqueue(store, on_dead=ON_DEAD)
        await worker.finish(await worker.claim_one(), Dead("boom"))
        await worker.finish(await worker.claim_one("ops"), Dead("boom again"))
        assert len(await all_jobs(store)) == 2
        assert (await record(store, answer.id)).on_dead == ON_DEAD
