"""R4: a step of the machine's wall clock makes no process look dead or alive.

A held lock together with a wall clock that leaps is no proof of death: leases are counted by the
steady clock. A process that was stopped is found after its lease, whatever the wall clock does.
"""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio

from forge_jobs.backends.sqlite.os.liveness_file import LivenessRecord
from forge_jobs.backends.sqlite.store import SqliteStore
from forge_jobs.core.instant import SECOND
from forge_jobs.core.status import JobStatus
from forge_jobs.store.job_upkeep import Reaped
from forge_jobs.testing.clock import MovableClock
from forge_jobs.testing.conformance.worker import LEASE_S, Process, enqueue, record

HOUR_S = 3_600.0


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock()


@pytest_asyncio.fixture
async def ours(path: Path, clock: MovableClock) -> AsyncGenerator[SqliteStore, None]:
    opened = SqliteStore(path, clock=clock)
    await opened.open()
    yield opened
    await opened.close()


@pytest_asyncio.fixture
async def other(path: Path, clock: MovableClock) -> AsyncGenerator[SqliteStore, None]:
    """A second store, like that of another process: it probes the lock and the record."""
    opened = SqliteStore(path, clock=clock)
    await opened.open()
    yield opened
    await opened.close()


async def _reaped(store: SqliteStore) -> Reaped:
    return await store.jobs.reap(crash_note="gone", limit=100)


@pytest.mark.parametrize("step_s", [HOUR_S, -HOUR_S])
async def test_r4_a_step_takes_no_job_from_a_living_process(
    ours: SqliteStore, other: SqliteStore, clock: MovableClock, step_s: float
) -> None:
    worker = await Process.register(ours, clock)
    job = await enqueue(ours)
    await worker.claim()
    clock.advance(LEASE_S / 2)
    clock.jump(step_s)
    # The reaper runs before the next heartbeat.
    assert await _reaped(other) == Reaped()
    assert await _reaped(ours) == Reaped()
    assert [process.key for process in await other.processes.all()] == [worker.key]
    assert (await record(other, job.id)).status is JobStatus.RUNNING
    expiry = await other.processes.next_expiry()
    assert expiry == clock.now() + round(LEASE_S / 2 * SECOND)
    # Its own store trusts it, too: it keeps claiming.
    await enqueue(ours)
    assert len(await worker.claim()) == 1


@pytest.mark.parametrize("step_s", [HOUR_S, -HOUR_S])
async def test_r4_a_stopped_process_is_found_after_its_lease_in_spite_of_a_step(
    ours: SqliteStore, other: SqliteStore, clock: MovableClock, step_s: float
) -> None:
    worker = await Process.register(ours, clock)
    await enqueue(ours)
    await worker.claim()
    clock.jump(step_s)
    clock.advance(LEASE_S - 1)
    assert await _reaped(other) == Reaped()
    clock.advance(1)
    assert await _reaped(other) == Reaped(pending=1)
    assert await other.processes.all() == []


async def test_r4_a_job_from_before_a_step_back_starts_at_once(
    ours: SqliteStore, clock: MovableClock
) -> None:
    await enqueue(ours)
    clock.jump(-HOUR_S)
    worker = await Process.register(ours, clock)
    assert len(await worker.claim()) == 1


def test_r4_a_stamp_that_cannot_be_compared_counts_by_the_wall_clock() -> None:
    earlier_release = LivenessRecord(1, LEASE_S, 100 * SECOND)
    assert earlier_release.remaining_us(110 * SECOND, 0) == 5 * SECOND
    # Written by a clock that has run longer than ours: not a steady clock of this machine.
    foreign = LivenessRecord(1, LEASE_S, 100 * SECOND, monotonic_us=900 * SECOND)
    assert foreign.remaining_us(110 * SECOND, 100 * SECOND) == 5 * SECOND
    # A beat that came while we read our clock.
    assert foreign.remaining_us(110 * SECOND, 899 * SECOND) == 16 * SECOND
