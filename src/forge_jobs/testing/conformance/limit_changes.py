"""Limits and lanes while things change: a limit that is deleted, a job that falls due."""

import pytest

from forge_jobs.core.job import LaneOrder
from forge_jobs.core.limits import Declared, key_bucket
from forge_jobs.core.outcome import Failed
from forge_jobs.core.status import JobStatus
from forge_jobs.store.jobs import Want
from forge_jobs.store.settings import LIMIT
from forge_jobs.store.store import Store

from .worker import Process, enqueue, job_counts

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
