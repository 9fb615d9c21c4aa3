"""Throttle scopes: a throttle closes its scope for all tasks that declare it, and nothing else."""

import pytest

from forge_jobs.core.errors import NotFound
from forge_jobs.core.instant import SECOND, Instant
from forge_jobs.core.job import JobRecord
from forge_jobs.core.limits import Declared
from forge_jobs.core.outcome import Done, Throttled
from forge_jobs.core.status import JobStatus
from forge_jobs.core.throttle import Gate
from forge_jobs.store.jobs import Want
from forge_jobs.store.queues import QueueChange
from forge_jobs.store.store import Store
from forge_jobs.testing.clock import MovableClock

from .worker import Process, all_jobs, enqueue, new_job, record

_SENDS = (
    Declared(name="task:send", scopes=("smtp",)),
    Declared(name="task:bulk", scopes=("smtp", "disk")),
)


def _in(clock: MovableClock, seconds: float) -> Instant:
    return clock.now() + int(seconds * SECOND)


@pytest.mark.asyncio
class TestScopes:
    """``Throttled(scope=…)``."""

    async def test_A4_it_closes_the_scope_and_not_the_queue(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        await store.queues.ensure("q", slots=10)
        await store.limits.publish(_SENDS)
        answer = await enqueue(store, kind="send")
        for kind in ("send", "bulk", "other"):
            await enqueue(store, kind=kind)
        await enqueue(store, kind="bulk", queue="far")
        await worker.finish(await worker.claim_one(), Throttled(retry_after=10, scope="smtp"))
        job = await record(store, answer.id)
        assert (job.status, job.attempts, job.run_at) == (JobStatus.SCHEDULED, 0, _in(clock, 10))
        assert await store.limits.gates() == {"smtp": Gate(_in(clock, 10), 1)}
        config = await store.queues.get("q")
        assert config is not None
        assert config.gate == Gate()
        answer = await worker.exchange(want=[Want("q", 9), Want("far", 9)])
        assert [job.kind for job in answer.claims] == ["other"]
        assert answer.next_due == _in(clock, 10)
        await worker.advance(10)
        answer = await worker.exchange(want=[Want("q", 9), Want("far", 9)])
        assert sorted(job.kind for job in answer.claims) == ["bulk", "bulk", "send", "send"]

    async def test_a_closed_scope_does_not_touch_its_backlog(
        self, store: Store, worker: Process
    ) -> None:
        await store.limits.publish(_SENDS)
        await store.jobs.enqueue([new_job(kind="send", track=True) for _ in range(20)])
        first, second, third = await worker.claim(free=3)
        await worker.finish(first, Throttled(retry_after=10, scope="smtp"))
        before = await self._backlog(store)
        assert await worker.claim(free=9) == []
        await worker.finish(second, Throttled(retry_after=10, scope="smtp"))
        assert await worker.claim(free=9) == []
        assert await self._backlog(store) == before
        await worker.finish(third, Done())
        assert (await store.limits.gates())["smtp"].count == 1

    async def _backlog(self, store: Store) -> list[JobRecord]:
        rows = [job for job in await all_jobs(store) if job.status is JobStatus.PENDING]
        assert len(rows) == 17
        return rows

    async def test_without_a_hint_it_backs_off(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        await store.limits.publish(_SENDS)
        answer = await enqueue(store, kind="send")
        for count, delay_s in enumerate([15, 30, 60, 120], 1):
            await worker.finish(await worker.claim_one(), Throttled(scope="smtp"))
            assert (await record(store, answer.id)).run_at == _in(clock, delay_s)
            assert (await store.limits.gates())["smtp"] == Gate(_in(clock, delay_s), count)
            await worker.advance(delay_s)

    async def test_the_queues_curve_counts_for_its_scopes(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        await store.queues.ensure("q", slots=10)
        curve = QueueChange(backoff_enabled=True, backoff_base_s=2.0, backoff_max_s=3.0)
        await store.queues.change("q", curve)
        await store.limits.publish(_SENDS)
        await enqueue(store, kind="send")
        for delay_s in (2, 3):
            await worker.finish(await worker.claim_one(), Throttled(scope="smtp"))
            assert (await store.limits.gates())["smtp"].until == _in(clock, delay_s)
            await worker.advance(delay_s)

    async def test_a_success_forgets_only_after_two_quiet_minutes(
        self, store: Store, worker: Process
    ) -> None:
        await store.limits.publish(_SENDS)
        await store.jobs.enqueue([new_job(kind="send") for _ in range(4)])
        await worker.finish(await worker.claim_one(), Throttled(retry_after=10, scope="smtp"))
        await worker.advance(10)
        for wait_s, known in ((0, True), (119, True), (2, False)):
            await worker.advance(wait_s)
            await worker.finish(await worker.claim_one(), Done())
            assert ("smtp" in await store.limits.gates()) == known

    async def test_an_operator_opens_it(self, store: Store, worker: Process) -> None:
        await store.limits.publish(_SENDS)
        await store.jobs.enqueue([new_job(kind="send"), new_job(kind="send")])
        await worker.finish(await worker.claim_one(), Throttled(retry_after=600, scope="smtp"))
        assert await worker.claim() == []
        before = (await store.processes.control(worker.key)).version
        await store.limits.open_scope("smtp")
        assert await store.limits.gates() == {}
        assert (await store.processes.control(worker.key)).version != before
        assert len(await worker.claim(free=5)) == 1
        await store.limits.open_scope("disk")
        with pytest.raises(NotFound):
            await store.limits.open_scope("unknown")
