"""Throttles: the gate of the queue, its delay, its budget and its reset."""

import asyncio
from typing import Any

import pytest

from forge_jobs.backends.memory.store import MemoryStore
from forge_jobs.config import EngineSettings
from forge_jobs.core.decide import Budgets
from forge_jobs.core.outcome import Throttled
from forge_jobs.core.selection import BulkAction, Selection
from forge_jobs.core.status import JobStatus
from forge_jobs.engine.drain import drain
from forge_jobs.engine.running.context import Context
from forge_jobs.store.queues import QueueChange
from forge_jobs.testing.clock import MovableClock
from tests.engine.rig import Rig


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock()


@pytest.fixture
async def still(clock: MovableClock) -> Rig:
    rig = Rig(MemoryStore(clock))
    await rig.store.queues.ensure("q", slots=10)
    return rig


async def _gate(rig: Rig) -> Any:
    config = await rig.store.queues.get("q")
    assert config is not None
    return config.gate


async def test_A4_the_delay_is_honoured_and_the_gate_opens_by_itself(rig: Rig) -> None:
    calls: list[float] = []

    async def body(ctx: Context, given: Any) -> None:
        calls.append(asyncio.get_running_loop().time())
        if len(calls) == 1:
            raise Throttled(retry_after=1.0, scope="nobody declared this")

    rig.on("work", body)
    first = await rig.add("work")
    async with rig.working({"q": 1}):
        await rig.reaches(first, JobStatus.SCHEDULED)
        second = await rig.add("work")
        assert (await rig.record(first)).attempts == 0
        for job_id in (first, second):
            record = await rig.reaches(job_id)
            assert (record.status, record.attempts) == (JobStatus.DONE, 1)
    assert calls[1] - calls[0] >= 0.9, "the whole queue waited, but no longer than it was told"


async def test_A4_an_operator_may_open_the_gate(rig: Rig) -> None:
    calls = 0

    async def body(ctx: Context, given: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise Throttled(retry_after="1h")

    rig.on("work", body)
    first = await rig.add("work")
    async with rig.working():
        await rig.reaches(first, JobStatus.SCHEDULED)
        second = await rig.add("work")
        await asyncio.sleep(0.3)
        assert (await rig.record(second)).status is JobStatus.PENDING
        await rig.store.queues.open_gate("q")
        await rig.reaches(second, JobStatus.DONE)


async def test_A5_throttling_has_a_budget(still: Rig, clock: MovableClock) -> None:
    async def body(ctx: Context, given: Any) -> None:
        raise Throttled(retry_after="1h")

    still.on("work", body)
    job_id = await still.add("work")
    settings = EngineSettings(budgets=Budgets(throttle_s=3 * 3_600))
    runs = 0
    while (await still.record(job_id)).status is JobStatus.SCHEDULED or runs == 0:
        assert runs < 10
        await drain(still.store, still.registry, clock=clock, settings=settings)
        clock.advance(3_601)
        runs += 1
    record = await still.record(job_id)
    assert (record.status, runs) == (JobStatus.DEAD, 4)
    assert "throttled for more than 10800 s" in (record.last_error or "")


async def test_an_unknown_kind_has_a_budget_too(still: Rig, clock: MovableClock) -> None:
    job_id = await still.add("unheard-of")
    settings = EngineSettings(budgets=Budgets(missing_s=60, missing_delay_s=20))
    for _ in range(6):
        await drain(still.store, still.registry, clock=clock, settings=settings)
        clock.advance(31)
    record = await still.record(job_id)
    assert record.status is JobStatus.DEAD


async def test_L3_the_memory_of_a_throttle_fades_after_two_quiet_minutes(
    still: Rig, clock: MovableClock
) -> None:
    """With one time per transaction the moment of fading is exact."""
    throttle = True

    async def body(ctx: Context, given: Any) -> None:
        if throttle:
            raise Throttled

    still.on("work", body)
    await still.store.queues.change(
        "q", QueueChange(backoff_enabled=True, backoff_base_s=60, backoff_max_s=1_800)
    )

    async def turn() -> None:
        await still.add("work")
        await drain(still.store, still.registry, clock=clock)

    await turn()
    gate = await _gate(still)
    assert (gate.count, gate.until) == (1, clock.now() + 60_000_000)
    clock.advance(61)
    await turn()
    gate = await _gate(still)
    assert (gate.count, gate.until) == (2, clock.now() + 120_000_000)
    throttle = False
    clock.advance(120 + 119)
    await turn()
    assert (await _gate(still)).count == 2, "not yet two quiet minutes"
    clock.advance(1)
    await turn()
    assert (await _gate(still)).count == 0


async def test_A10_a_retry_by_a_person_starts_with_all_attempts(
    still: Rig, clock: MovableClock
) -> None:
    async def body(ctx: Context, given: Any) -> None:
        raise ValueError("x")

    still.on("work", body)
    job_id = await still.add("work", max_attempts=2)
    for _ in range(2):
        await drain(still.store, still.registry, clock=clock)
        clock.advance(60)
    assert (await still.record(job_id)).status is JobStatus.DEAD
    await still.store.jobs.act(BulkAction.RETRY, Selection(ids=(job_id,)), limit=1)
    await drain(still.store, still.registry, clock=clock)
    record = await still.record(job_id)
    assert (record.status, record.attempts) == (JobStatus.FAILED, 1)
