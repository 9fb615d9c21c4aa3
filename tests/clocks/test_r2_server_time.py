"""R2: on Postgres no time of this machine reaches a statement, or is compared with a stored one.

The clock of this process is set an hour ahead here. What a Forge, a worker, the pull queue, the
command line and Mission Control's read models say must be right all the same. A clock that a test
puts in place rules, as long as it is in place.
"""

import asyncio
from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta

import pytest
import pytest_asyncio

from forge_jobs import Forge, JobQueue, testing
from forge_jobs.backends.postgres.store_clock import StoreClock
from forge_jobs.cli.options import filter_of
from forge_jobs.cli.session import by_store_time
from forge_jobs.core.instant import MINUTE, SECOND, Instant, to_datetime
from forge_jobs.core.selection import Selection
from forge_jobs.core.status import JobStatus
from forge_jobs.engine.services.cleanup import cleanup_once
from forge_jobs.kit.clock import SYSTEM_CLOCK, SystemClock, is_machine_time
from forge_jobs.ops import audit, queries
from forge_jobs.ops.actions import JobActions
from forge_jobs.ops.metrics import recent_minutes
from forge_jobs.store.store import Store
from forge_jobs.testing.clock import MovableClock

HOUR = 3600 * SECOND
LONG_AGO = datetime(2031, 5, 6, 12, 0, tzinfo=UTC)
true_now = SystemClock.now


def _right(instant: Instant) -> bool:
    return abs(instant - true_now(SystemClock())) < 5 * MINUTE


def _wrong_now(clock: SystemClock) -> int:
    return true_now(clock) + HOUR


@pytest.fixture(autouse=True)
def _wrong_machine_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SystemClock, "now", _wrong_now)


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch) -> list[Instant | None]:
    """Every time that was bound into a statement."""
    seen: list[Instant | None] = []
    bind = StoreClock.bind

    def noted(store_clock: StoreClock) -> Instant | None:
        seen.append(bind(store_clock))
        return seen[-1]

    monkeypatch.setattr(StoreClock, "bind", noted)
    return seen


@pytest_asyncio.fixture
async def forge(server_url: str) -> AsyncGenerator[Forge, None]:
    made = Forge(server_url)

    @made.task()
    async def work() -> str:
        return "done"

    yield made
    await made.aclose()


async def test_r2_a_forge_and_its_worker_bind_no_time_of_their_own(
    forge: Forge, bound: list[Instant | None]
) -> None:
    async with forge.worker(["default"]):
        job = await forge.aenqueue("work", delay=0.5)
        await job.aresult(timeout=60)
    await forge.aenqueue("work")
    await forge.drain()
    assert len(bound) > 5
    assert set(bound) == {None}
    record = await (await forge.aready()).jobs.get(job.id)
    assert record is not None
    assert _right(record.enqueued_at)
    assert record.run_at - record.enqueued_at == SECOND // 2


async def test_r2_a_tests_clock_takes_precedence_while_it_is_set(
    forge: Forge, bound: list[Instant | None]
) -> None:
    await forge.aready()
    assert is_machine_time(SYSTEM_CLOCK)
    assert is_machine_time(forge.clock)
    with testing.frozen(forge, at=LONG_AGO) as time:
        assert not is_machine_time(forge.clock)
        later = await forge.aenqueue("work", delay="1h")
        await forge.drain()
        assert (await later.arefresh()).status is JobStatus.SCHEDULED
        time.advance("1h")
        await forge.drain()
        record = await (await forge.aready()).jobs.get(later.id)
        assert record is not None
        assert record.status is JobStatus.DONE
        assert to_datetime(record.enqueued_at) == LONG_AGO
        assert record.finished_at is not None
        assert to_datetime(record.finished_at) == LONG_AGO + timedelta(hours=1)
        assert None not in bound
    bound.clear()
    again = await forge.aenqueue("work")
    assert set(bound) == {None}
    record = await (await forge.aready()).jobs.get(again.id)
    assert record is not None
    assert _right(record.enqueued_at)


async def test_r2_a_clock_given_to_a_forge_takes_precedence_from_the_start(server_url: str) -> None:
    clock = MovableClock()
    async with _opened(server_url, clock) as store:
        assert await store.now() == clock.now()
    async with _opened(server_url) as store:
        assert _right(await store.now())


def _opened(url: str, clock: MovableClock | None = None) -> "_Opened":
    return _Opened(Forge(url) if clock is None else Forge(url, clock=clock))


class _Opened:
    def __init__(self, forge: Forge) -> None:
        self._forge = forge

    async def __aenter__(self) -> Store:
        return await self._forge.aready()

    async def __aexit__(self, *error: object) -> None:
        await self._forge.aclose()


async def test_r2_ops_queries_use_the_servers_time(forge: Forge) -> None:
    store = await forge.aready()
    async with forge.worker(["default"]):
        job = await forge.aenqueue("work")
        await job.aresult(timeout=60)
        [worker] = await queries.workers(store, clock=forge.clock)
        assert 0 <= worker.beat_age_s < 60
    waiting = await forge.aenqueue("work")
    seen = await queries.overview(store, clock=forge.clock)
    assert abs(seen.at.timestamp() * SECOND - true_now(SystemClock())) < 5 * MINUTE
    assert seen.lag_s < 300
    assert [line.code for line in (await queries.job(store, waiting.id)).why] == ["no_worker"]
    assert sum(point.done for point in (await recent_minutes(store, minutes=5)).points) == 1
    await JobActions(store, actor="test", clock=forge.clock).cancel(Selection(ids=(waiting.id,)))
    entry = (await audit.read_entries(store)).entries[0]
    assert abs(entry.at.timestamp() * SECOND - true_now(SystemClock())) < 5 * MINUTE


async def test_r2_ages_in_commands_use_the_servers_time(forge: Forge) -> None:
    """``forge jobs delete --older-than 30m`` must not take a job of this minute."""
    store = await forge.aready()
    await forge.aenqueue("work")
    old = await by_store_time(store, filter_of(older_than="30m"))
    assert (await queries.jobs(store, old)).jobs == ()
    new = await by_store_time(store, filter_of(newer_than="30m"))
    assert len((await queries.jobs(store, new)).jobs) == 1
    unbounded = filter_of(queue="default")
    assert await by_store_time(store, unbounded) is unbounded


async def test_r2_purge_uses_the_servers_time(
    forge: Forge, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await forge.aready()
    job = await forge.aenqueue("work")
    await forge.drain()
    monkeypatch.setattr(SystemClock, "now", lambda clock: true_now(clock) + 10_000 * 24 * HOUR)
    assert (await cleanup_once(store, clock=forge.clock)).minutes == 0
    assert (await job.arefresh()).status is JobStatus.DONE


async def test_r2_the_pull_queue_uses_the_servers_time(
    server_url: str, bound: list[Instant | None]
) -> None:
    def work() -> None:
        queue = JobQueue.open(server_url)
        try:
            job_id = queue.enqueue("work", {})
            job = queue.dequeue()
            assert job is not None
            assert job.id == job_id
            assert job.started_at is not None
            assert _right(round(job.started_at.timestamp() * SECOND))
            queue.fail(job, "not yet")
        finally:
            queue.close()

    await asyncio.to_thread(work)
    assert set(bound) == {None}
    forge = Forge(server_url)
    store = await forge.aready()
    [record] = (await store.jobs.page(queries.Filter(), limit=5)).jobs
    await forge.aclose()
    assert record.status is JobStatus.FAILED
    assert _right(record.run_at)
