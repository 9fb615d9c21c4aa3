"""Every rule of the transition table is applied as written, and no other transition exists."""

import pytest
from msgspec import structs

from forge_jobs.core.job import JobRecord
from forge_jobs.core.status import (
    TERMINAL,
    TRANSITIONS,
    Attempts,
    Event,
    JobStatus,
    Rule,
    targets,
)
from forge_jobs.store.jobs import Verdict
from forge_jobs.store.store import Store
from forge_jobs.testing.clock import MovableClock

from . import drivers
from .drivers import JobDriver
from .worker import Process, enqueue, job_counts, record

_RULES = [
    rule
    for rule in TRANSITIONS
    if rule.source is not None and rule.event not in drivers.INDIRECT_EVENTS
]
_NEW_EPOCH = (Event.CLAIM, Event.RELEASE, Event.REAP)
_ENQUEUES = {
    JobStatus.PENDING: {},
    JobStatus.SCHEDULED: {"delay_s": 60.0},
    JobStatus.HELD: {"hold": True, "limit_key": "full"},
}


def _name(rule: Rule) -> str:
    return f"{rule.source}-{rule.event}-{rule.target or 'gone'}-{rule.attempts.replace(' ', '_')}"


def assert_invariants(job: JobRecord) -> None:
    """Check the invariants that hold for every job at any time."""
    assert (job.owner is not None) == (job.status is JobStatus.RUNNING)
    assert (job.finished_at is not None) == (job.status in TERMINAL)
    assert 0 <= job.attempts <= job.max_attempts
    assert job.cancel_requested_at is None or job.status is JobStatus.RUNNING


def _attempts_after(rule: Rule, before: int) -> int:
    match rule.attempts:
        case Attempts.KEPT:
            return before
        case Attempts.SPENT:
            return before + 1
        case Attempts.GIVEN_BACK:
            return before - 1
        case Attempts.RESET:
            return 0


@pytest.mark.asyncio
class TestTransitions:
    """``core.status.TRANSITIONS``, through the calls of the contracts."""

    async def test_every_event_has_a_driver(self) -> None:
        driven = {rule.event for rule in _RULES} | {Event.ENQUEUE, *drivers.INDIRECT_EVENTS}
        assert driven == set(Event)

    @pytest.mark.parametrize("target", _ENQUEUES, ids=str)
    async def test_enqueue(self, store: Store, target: JobStatus) -> None:
        assert target in targets(None, Event.ENQUEUE)
        answer = await enqueue(store, **_ENQUEUES[target])
        job = await record(store, answer.id)
        assert job.status is target
        assert_invariants(job)

    @pytest.mark.parametrize("rule", _RULES, ids=_name)
    async def test_legal_transition(
        self, store: Store, clock: MovableClock, worker: Process, rule: Rule
    ) -> None:
        driver = JobDriver(store, clock, worker, "q")
        await drivers.prepare(driver, rule)
        before = await driver.now()
        assert before.status is rule.source
        no_budget = rule.target is JobStatus.DEAD
        progress = rule.event is Event.FAIL and rule.attempts is Attempts.GIVEN_BACK
        await drivers.apply(driver, rule.event, no_budget=no_budget, progress=progress)
        if rule.target is None:
            assert await store.jobs.get(driver.job_id) is None
            assert await job_counts(store) == {}
            return
        after = await driver.now()
        assert after.status is rule.target
        assert after.attempts == _attempts_after(rule, before.attempts)
        assert after.epoch == before.epoch + (rule.event in _NEW_EPOCH)
        assert_invariants(after)
        assert await job_counts(store) == {("q", rule.target): 1}
        if rule.target in TERMINAL:
            assert after.finished_at == clock.now()
        if rule.source is JobStatus.RUNNING and rule.target is JobStatus.RUNNING:
            assert after.cancel_requested_at == clock.now()

    @pytest.mark.parametrize("event", drivers.EVENTS, ids=str)
    async def test_illegal_transitions_change_nothing(
        self, store: Store, clock: MovableClock, worker: Process, event: Event
    ) -> None:
        for status in JobStatus:
            if targets(status, event):
                continue
            driver = JobDriver(store, clock, worker, queue=f"q-{status}")
            await driver.bring_to(status)
            if driver.claimed is None:
                # A claim that this job never had: the right epoch without the owner is refused.
                await self._claim_something_else(driver)
            before = await driver.now()
            answer = await drivers.apply(driver, event)
            after = await driver.now()
            if event is Event.PROMOTE:
                # The driver advanced the clock by hours.
                assert after.status is before.status
            assert after == before, f"{event} changed a job that is {status}"
            assert answer is not Verdict.APPLIED
            if not (await worker.heartbeat()).alive:
                worker.key = (await Process.register(store, clock, host_id=f"h-{status}")).key

    async def _claim_something_else(self, driver: JobDriver) -> None:
        """Give the driver the claim of another job, with the key of the job under test."""
        await enqueue(driver.store, queue="elsewhere")
        [other] = await driver.worker.claim("elsewhere")
        driver.claimed = structs.replace(other, key=(await driver.now()).key, queue=driver.queue)
