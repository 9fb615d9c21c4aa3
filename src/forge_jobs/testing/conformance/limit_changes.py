"""Limits and lanes while things change: a limit that is deleted, a job that falls due."""

import pytest
from msgspec import structs

from forge_jobs.core.job import LaneOrder
from forge_jobs.core.limits import Declared, key_bucket
from forge_jobs.core.outcome import Failed
from forge_jobs.core.status import JobStatus
from forge_jobs.store.jobs import Want
from forge_jobs.store.limits import LimitChange
from forge_jobs.store.settings import LIMIT
from forge_jobs.store.store import Store

from .worker import Process, claim_of, enqueue, job_counts

_HOSTS = Declared(name="task:fetch", concurrency=1, per="args.host")


@pytest.mark.asyncio
class TestLimitChanges:
    """What waits gets its turn with the change, not with the next repair."""

    async def test_a_deleted_limit_holds_no_job(self, store: Store, worker: Process) -> None:
        await store.limits.publish([_HOSTS])
        for host in "aabbb":
            await enqueue(store, kind="fetch", limit_key=key_bucket("fetch", host))
        assert (await job_counts(store))["q", JobStatus.HELD] == 3
        assert await store.settings.delete(LIMIT, "task:fetch")
        assert await job_counts(store) == {("q", JobStatus.PENDING): 5}
        assert len(await worker.claim(free=9)) == 5

    @pytest.mark.parametrize("way", ["released", "reaped"])
    async def test_a_job_above_a_lowered_limit_is_held_when_it_stops_running(
        self, store: Store, worker: Process, way: str
    ) -> None:
        await store.limits.publish([structs.replace(_HOSTS, concurrency=3)])
        other = await Process.register(store, worker.clock, host_id="other")
        for _ in range(3):
            await enqueue(store, kind="fetch", limit_key=key_bucket("fetch", "a"))
        kept = await worker.claim(free=1)
        given_up = await other.claim(free=2)
        await store.limits.change("task:fetch", LimitChange(concurrency=1))
        if way == "released":
            await other.exchange(release=[claim_of(job) for job in given_up])
        else:
            await Process.register(store, worker.clock, host_id="new", replaces="other")
            reaped = await store.jobs.reap(crash_note="x", limit=9)
            assert reaped.pending == 2
        counts = {("q", JobStatus.RUNNING): 1, ("q", JobStatus.HELD): 2}
        assert await job_counts(store) == counts
        assert await worker.claim(free=9) == []
        finish = [worker.build_finish(job) for job in kept]
        answer = await worker.exchange(finish=finish, want=[Want("q", 9)])
        assert [job.key for job in answer.claims] == [min(job.key for job in given_up)]

    async def test_a_released_job_within_its_limit_stays_pending(
        self, store: Store, worker: Process
    ) -> None:
        await store.limits.publish([structs.replace(_HOSTS, concurrency=2)])
        for _ in range(4):
            await enqueue(store, kind="fetch", limit_key=key_bucket("fetch", "a"))
        jobs = await worker.claim(free=9)
        await worker.exchange(release=[claim_of(job) for job in jobs])
        assert await job_counts(store) == {("q", JobStatus.PENDING): 2, ("q", JobStatus.HELD): 2}
        assert [job.key for job in await worker.claim(free=9)] == [job.key for job in jobs]

    @pytest.mark.parametrize("outcome", [None, Failed("no")], ids=["done", "failed"])
    async def test_a_job_that_falls_due_keeps_its_turn_in_its_lane(
        self, store: Store, worker: Process, outcome: Failed | None
    ) -> None:
        lane = {"lane": "a", "order": LaneOrder.SERIAL}
        await enqueue(store, **lane)
        [running] = await worker.claim()
        due = await enqueue(store, delay_s=5.0, **lane)
        await enqueue(store, **lane)
        await worker.advance(6.0)
        finish = worker.build_finish(running, outcome)
        answer = await worker.exchange(finish=[finish], want=[Want("q", 9)])
        assert [job.key for job in answer.claims] == [due.key]
