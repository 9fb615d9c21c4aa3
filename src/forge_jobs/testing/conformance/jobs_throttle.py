"""The throttle gate of a queue, and the budgets of throttled jobs and missing handlers."""

import pytest

from forge_jobs.core.decide import Budgets
from forge_jobs.core.errors import NotFound
from forge_jobs.core.instant import SECOND, Instant
from forge_jobs.core.job import Claim
from forge_jobs.core.outcome import Crashed, Done, Failed, Missing, Snooze, Throttled
from forge_jobs.core.status import JobStatus
from forge_jobs.core.throttle import Gate
from forge_jobs.store.jobs import Verdict
from forge_jobs.store.queues import QueueChange
from forge_jobs.store.store import Store
from forge_jobs.testing.clock import MovableClock

from .worker import Process, enqueue, new_job, record


async def _gate(store: Store) -> Gate:
    config = await store.queues.get("q")
    assert config is not None
    return config.gate


def _in(clock: MovableClock, seconds: float) -> Instant:
    return clock.now() + int(seconds * SECOND)


@pytest.mark.asyncio
class TestThrottle:
    """The effect of Throttled on its job and its queue."""

    async def test_A4_the_hint_is_honoured(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        await store.queues.ensure("q", slots=10)
        answer = await enqueue(store)
        await worker.finish(await worker.claim_one(), Throttled(retry_after=1.25))
        job = await record(store, answer.id)
        assert (job.status, job.attempts, job.throttles) == (JobStatus.SCHEDULED, 0, 1)
        assert job.run_at == _in(clock, 1.25)
        assert job.throttled_since == clock.now()
        assert await _gate(store) == Gate(_in(clock, 1.25), 1)

    async def test_a_closed_gate_gives_nothing_until_it_opens(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        await store.queues.ensure("q", slots=10)
        await store.jobs.enqueue([new_job(), new_job(kind="other")])
        await enqueue(store, queue="open")
        await worker.finish(await worker.claim_one(), Throttled(retry_after=10))
        assert await worker.claim(free=5) == []
        assert len(await worker.claim("open")) == 1
        clock.advance(9.9)
        assert await worker.claim(free=5) == []
        clock.advance(0.1)
        assert len(await worker.claim(free=5)) == 2

    async def test_without_hint_and_curve_it_is_a_flat_minute(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        await store.queues.ensure("q", slots=10)
        answer = await enqueue(store)
        await worker.finish(await worker.claim_one(), Throttled())
        assert (await record(store, answer.id)).run_at == _in(clock, 60)
        assert await _gate(store) == Gate(_in(clock, 60), 1)

    async def test_without_hint_the_queues_curve_decides(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        await store.queues.ensure("q", slots=10)
        curve = QueueChange(backoff_enabled=True, backoff_base_s=10.0, backoff_max_s=35.0)
        await store.queues.change("q", curve)
        answer = await enqueue(store)
        for count, delay_s in enumerate([10, 20, 35, 35], 1):
            await worker.finish(await worker.claim_one(), Throttled())
            assert (await record(store, answer.id)).run_at == _in(clock, delay_s)
            assert await _gate(store) == Gate(_in(clock, delay_s), count)
            await worker.advance(delay_s)

    async def test_one_limiter_event_counts_once_however_many_hit_it(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        await store.queues.ensure("q", slots=10)
        await store.jobs.enqueue([new_job() for _ in range(10)])
        jobs = await worker.claim(free=10)
        await worker.send_finishes(
            *(worker.build_finish(job, Throttled(retry_after=30)) for job in jobs[:6])
        )
        clock.advance(1)
        await worker.send_finishes(
            *(worker.build_finish(job, Throttled(retry_after=99)) for job in jobs[6:])
        )
        assert await _gate(store) == Gate(_in(clock, 29), 1)

    async def test_a_success_forgets_only_after_two_quiet_minutes(
        self, store: Store, worker: Process
    ) -> None:
        await store.queues.ensure("q", slots=10)
        await store.jobs.enqueue([new_job() for _ in range(4)])
        await worker.finish(await worker.claim_one(), Throttled(retry_after=10))
        until = (await _gate(store)).until
        await worker.advance(10)
        for wait_s, known in ((0, True), (119, True), (2, False)):
            await worker.advance(wait_s)
            await worker.finish(await worker.claim_one(), Done())
            assert await _gate(store) == (Gate(until, 1) if known else Gate())

    async def test_a_stale_success_forgets_nothing(self, store: Store, worker: Process) -> None:
        await store.queues.ensure("q", slots=10)
        await store.jobs.enqueue([new_job() for _ in range(2)])
        throttled, released = await worker.claim(free=2)
        await worker.finish(throttled, Throttled(retry_after=10))
        gate = await _gate(store)
        await worker.exchange(release=[Claim(released.key, released.epoch)])
        await worker.advance(200)
        [verdict] = await worker.send_finishes(worker.build_finish(released, Done()))
        assert verdict is Verdict.STALE
        assert await _gate(store) == gate

    async def test_a_success_does_not_open_a_closed_gate(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        await store.queues.ensure("q", slots=10)
        await store.jobs.enqueue([new_job() for _ in range(3)])
        first, second = await worker.claim(free=2)
        await worker.finish(first, Throttled(retry_after=10))
        await worker.finish(second, Done())
        assert await _gate(store) == Gate(_in(clock, 10), 1)
        assert await worker.claim() == []

    async def test_an_operator_opens_the_gate(self, store: Store, worker: Process) -> None:
        await store.queues.ensure("q", slots=10)
        await store.jobs.enqueue([new_job(), new_job()])
        await worker.finish(await worker.claim_one(), Throttled(retry_after=600))
        before = (await store.processes.control(worker.key)).version
        await store.queues.open_gate("q")
        assert await _gate(store) == Gate()
        assert (await store.processes.control(worker.key)).version != before
        assert len(await worker.claim(free=5)) == 1
        with pytest.raises(NotFound):
            await store.queues.open_gate("unknown")

    async def test_it_changes_nothing_else_of_the_queue(
        self, store: Store, worker: Process
    ) -> None:
        await store.queues.ensure("q", slots=3)
        set_ = QueueChange(retain_done_s=None, backoff_enabled=True, backoff_base_s=1.0)
        before = await store.queues.change("q", set_)
        await enqueue(store)
        await worker.finish(await worker.claim_one(), Throttled(retry_after=5))
        after = await store.queues.get("q")
        assert after is not None
        assert (after.slots, after.retain_done_s) == (before.slots, before.retain_done_s)
        assert (after.backoff_enabled, after.backoff_base_s, after.paused) == (True, 1.0, False)

    async def test_a_stale_throttle_closes_nothing(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        await store.queues.ensure("q", slots=10)
        await enqueue(store)
        job = await worker.claim_one()
        await store.processes.deregister(worker.key)
        await worker.finish(job, Throttled(retry_after=5))
        assert await _gate(store) == Gate()


@pytest.mark.asyncio
class TestBudgets:
    """Budgets count from the first outcome of their kind; a job beyond them is dead."""

    async def test_A5_an_endless_throttle_ends(self, store: Store, worker: Process) -> None:
        await store.queues.ensure("q", slots=10)
        answer = await enqueue(store, max_attempts=1)
        since = worker.clock.now()
        budgets = Budgets(throttle_s=100.0)
        for _ in range(3):
            job = await worker.claim_one()
            assert job.throttled_since in (None, since)
            await worker.finish(job, Throttled(retry_after=40), budgets=budgets)
            stored = await record(store, answer.id)
            assert (stored.status, stored.attempts) == (JobStatus.SCHEDULED, 0)
            assert stored.throttled_since == since
            await worker.advance(40)
        await worker.finish(await worker.claim_one(), Throttled(retry_after=40), budgets=budgets)
        stored = await record(store, answer.id)
        assert (stored.status, stored.throttles, stored.throttled_since) == (
            JobStatus.DEAD,
            4,
            since,
        )
        assert stored.last_error
        assert (await _gate(store)).count == 3

    async def test_a_missing_handler_spends_no_attempt_until_its_budget_ends(
        self, store: Store, worker: Process
    ) -> None:
        answer = await enqueue(store, max_attempts=1)
        since = worker.clock.now()
        budgets = Budgets(missing_s=50.0, missing_delay_s=20.0)
        for _ in range(3):
            job = await worker.claim_one()
            assert job.missing_since in (None, since)
            await worker.finish(job, Missing(), budgets=budgets)
            stored = await record(store, answer.id)
            assert (stored.status, stored.attempts) == (JobStatus.SCHEDULED, 0)
            assert stored.missing_since == since
            assert stored.last_error
            await worker.advance(20)
        await worker.finish(await worker.claim_one(), Missing(), budgets=budgets)
        stored = await record(store, answer.id)
        assert (stored.status, stored.missing_since) == (JobStatus.DEAD, since)

    async def test_u4_a_run_in_between_starts_the_budget_of_missing_handlers_again(
        self, store: Store, worker: Process
    ) -> None:
        answer = await enqueue(store, max_attempts=5)
        for between in (Failed("no"), Snooze(1), Throttled(1), Crashed("gone")):
            await worker.finish(await worker.claim_one(), Missing())
            assert (await record(store, answer.id)).missing_since == worker.clock.now()
            await worker.advance(20)
            await worker.finish(await worker.claim_one(), between)
            assert (await record(store, answer.id)).missing_since is None
            await worker.advance(4_000)

    async def test_a_missing_handler_closes_no_gate(self, store: Store, worker: Process) -> None:
        await store.queues.ensure("q", slots=10)
        await store.jobs.enqueue([new_job(kind="unknown"), new_job()])
        await worker.finish(await worker.claim_one(), Missing())
        assert len(await worker.claim()) == 1
