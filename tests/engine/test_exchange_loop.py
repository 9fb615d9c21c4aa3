"""The exchange loop when the store refuses, loses replies, or rejects a finish."""

import asyncio
import dataclasses
from typing import Any

import pytest

from forge_jobs.core.errors import Full, Invalid, Unavailable, Unknown
from forge_jobs.core.outcome import Throttled
from forge_jobs.core.status import Event, JobStatus
from forge_jobs.engine.running.context import Context
from forge_jobs.store.jobs import Exchange, Exchanged
from forge_jobs.store.store import Store
from tests.engine.faulty import FaultyStore
from tests.engine.rig import FAST, Rig, until


@pytest.fixture
def faulty(store: Store) -> FaultyStore:
    return FaultyStore(store)


@pytest.fixture
def rig(faulty: FaultyStore) -> Rig:
    rig = Rig(faulty)  # type: ignore[arg-type]

    async def body(ctx: Context, given: Any) -> None:
        return None

    rig.on("work", body)
    return rig


async def _all(rig: Rig, status: str, count: int) -> None:
    async def there() -> bool:
        return await rig.counts() == {status: count}

    await until(there, f"{count} jobs {status}")


@pytest.mark.parametrize("error", [Unavailable("down"), Full("no room"), Unknown("lost")])
async def test_A26_a_finish_is_repeated_until_the_store_takes_it(
    rig: Rig, faulty: FaultyStore, error: Exception
) -> None:
    refused = 0

    def refuse(request: Exchange) -> BaseException | None:
        nonlocal refused
        if request.finish and refused < 3:
            refused += 1
            return error
        return None

    faulty.jobs.before = refuse
    job_id = await rig.add("work")
    async with rig.working():
        record = await rig.reaches(job_id, JobStatus.DONE)
    assert refused == 3
    assert record.attempts == 1
    assert record.epoch == 1


async def test_A26_a_lost_reply_to_a_finish_is_recognised(rig: Rig, faulty: FaultyStore) -> None:
    verdicts: list[str] = []
    lost = 0

    def lose(request: Exchange, answer: Exchanged) -> BaseException | None:
        nonlocal lost
        if not request.finish:
            return None
        if lost < 2:
            lost += 1
            return Unknown("the line broke")
        verdicts.extend(verdict.value for verdict in answer.verdicts)
        return None

    faulty.jobs.after = lose
    job_id = await rig.add("work")
    async with rig.working():
        record = await rig.reaches(job_id, JobStatus.DONE)
        await until(lambda: bool(verdicts))
    assert verdicts == ["already"]
    assert record.attempts == 1


async def test_a_lost_claim_reply_strands_no_job(rig: Rig, faulty: FaultyStore) -> None:
    lost: list[int] = []

    def lose(request: Exchange, answer: Exchanged) -> BaseException | None:
        if answer.claims and not lost:
            lost.extend(job.key for job in answer.claims)
            return Unknown("the line broke")
        return None

    faulty.jobs.after = lose
    await rig.add_many("work", 5)
    async with rig.working():
        await _all(rig, "done", 5)
    assert len(lost) == 5
    page = await rig.store.jobs.page(_any(), limit=10)
    assert [job.attempts for job in page.jobs] == [1] * 5


async def test_unknown_claims_are_released_once_per_lease(rig: Rig, faulty: FaultyStore) -> None:
    """A claim without any error: the reply was lost, yet the call seemed to have had no effect."""
    hidden: list[int] = []

    def hide(request: Exchange, answer: Exchanged) -> BaseException | None:
        if answer.claims and not hidden:
            hidden.extend(job.key for job in answer.claims)
            return Unavailable("a backend that is wrong about having had no effect")
        return None

    faulty.jobs.after = hide
    await rig.add_many("work", 3)
    async with rig.working(settings=dataclasses.replace(FAST, lease_s=1.5)):
        await _all(rig, "done", 3)
    assert len(hidden) == 3


async def test_a_finish_the_store_refuses_blocks_no_other(rig: Rig, faulty: FaultyStore) -> None:
    async def poison(ctx: Context, given: Any) -> str:
        return "poison"

    def refuse(request: Exchange) -> BaseException | None:
        bad = any(finish.result == b'"poison"' for finish in request.finish)
        return Invalid("this result is not for me") if bad else None

    rig.on("poison", poison)
    faulty.jobs.before = refuse
    bad = await rig.add("poison")
    await rig.add_many("work", 20)
    async with rig.working():
        record = await rig.reaches(bad)
        assert record.status is JobStatus.DEAD
        assert "this result is not for me" in (record.last_error or "")

        async def there() -> bool:
            return await rig.counts() == {"dead": 1, "done": 20}

        await until(there)


async def test_one_exchange_at_a_time_and_finishes_gather_meanwhile(
    rig: Rig, faulty: FaultyStore
) -> None:
    await rig.add_many("work", 200)
    async with rig.working({"q": 50}):
        await _all(rig, "done", 200)
    numbers = [request.number for request in faulty.jobs.requests]
    assert numbers == sorted(set(numbers))
    assert max(len(request.finish) for request in faulty.jobs.requests) >= 25


async def test_nothing_starts_while_too_many_finishes_are_unwritten(
    rig: Rig, faulty: FaultyStore
) -> None:
    started = 0

    async def count(ctx: Context, given: Any) -> None:
        nonlocal started
        started += 1

    rig.on("count", count)
    faulty.jobs.before = lambda request: Unavailable("down") if request.finish else None
    await rig.add_many("count", 300)
    settings = dataclasses.replace(FAST, max_unwritten=20, unwritten_s=60.0)
    async with rig.working({"q": 100}, settings=settings):
        await until(lambda: started >= 20)
        await asyncio.sleep(0.5)
        assert started == 20
        faulty.jobs.before = lambda request: None
        await _all(rig, "done", 300)
    assert started == 300


async def test_the_next_batch_runs_while_one_is_written_where_a_server_writes_it(
    rig: Rig, faulty: FaultyStore
) -> None:
    settings = dataclasses.replace(FAST, max_unwritten=20, unwritten_s=60.0)
    await rig.add_many("work", 300)
    async with rig.working({"q": 100}, settings=settings):
        await _all(rig, "done", 300)
    most = max(len(request.finish) for request in faulty.jobs.requests)
    assert most == (10 if rig.store.capabilities.server_side else 20)


async def test_nothing_starts_while_a_finish_is_unwritten_for_long(
    rig: Rig, faulty: FaultyStore
) -> None:
    started = 0

    async def count(ctx: Context, given: Any) -> None:
        nonlocal started
        started += 1
        await asyncio.sleep(0.03)

    rig.on("count", count)
    faulty.jobs.before = lambda request: Unavailable("down") if request.finish else None
    await rig.add_many("count", 100)
    async with rig.working({"q": 5}):
        await until(lambda: started >= 5)
        await asyncio.sleep(1)
        assert started <= 20
        faulty.jobs.before = lambda request: None
        await _all(rig, "done", 100)


async def test_prefetched_jobs_that_cannot_start_are_released(
    rig: Rig, faulty: FaultyStore
) -> None:
    """Jobs prefetched for a slot that is suddenly busy for long are released unspent."""
    release = asyncio.Event()
    blocked = 0

    async def body(ctx: Context, given: Any) -> None:
        nonlocal blocked
        if given["number"] > 300:
            blocked += 1
            await release.wait()

    rig.on("mixed", body)
    for number in range(400):
        await rig.add("mixed", {"number": number})
    async with rig.working({"q": 2}):
        await until(lambda: blocked == 2)

        async def only_two() -> bool:
            return (await rig.counts()).get("running") == 2

        await until(only_two, "all that was claimed ahead is back")
        running = [r for r in (await rig.store.jobs.page(_any(), limit=500)).jobs if r.owner]
        waiting = [r for r in (await rig.store.jobs.page(_any(), limit=500)).jobs if not r.owner]
        assert len(running) == 2
        assert {record.attempts for record in waiting if record.finished_at is None} == {0}
        release.set()
        await _all(rig, "done", 400)
    asked_ahead = max(
        (want.prefetch for request in faulty.jobs.requests for want in request.want), default=0
    )
    assert asked_ahead > 0


async def test_slow_and_limited_jobs_are_never_prefetched(rig: Rig, faulty: FaultyStore) -> None:
    async def slow(ctx: Context, given: Any) -> None:
        await asyncio.sleep(0.1)

    rig.on("slow", slow)
    await rig.add_many("slow", 12, queue="slow")
    await rig.add_many("work", 40, queue="limited", limit_key="one")
    async with rig.working({"slow": 3, "limited": 3}):
        await _all(rig, "done", 52)
    for queue, allowed in (("slow", 0), ("limited", 0)):
        asked = [
            want.prefetch
            for request in faulty.jobs.requests[2:]
            for want in request.want
            if want.queue == queue
        ]
        assert max(asked[1:]) == allowed


async def test_a_prefetched_job_that_runs_long_is_marked_started(
    rig: Rig, faulty: FaultyStore
) -> None:
    release = asyncio.Event()
    begun: list[int] = []

    async def body(ctx: Context, given: Any) -> None:
        if given["number"] >= 200:
            begun.append(given["number"])
            await release.wait()

    rig.on("mixed", body)
    for number in range(202):
        await rig.add("mixed", {"number": number})
    async with rig.working({"q": 2}) as handle:
        await until(lambda: len(begun) == 2)
        owner = handle._process._registration.owner

        async def all_started() -> bool:
            rows = await rig.store.jobs.owned(owner)
            return len(rows) == 2 and all(row.started for row in rows)

        await until(all_started)
        release.set()
        await _all(rig, "done", 202)


async def test_a_throttle_releases_prefetched_jobs(rig: Rig, faulty: FaultyStore) -> None:
    async def body(ctx: Context, given: Any) -> None:
        if given["number"] == 100:
            raise Throttled(retry_after=3_600)

    rig.on("mixed", body)
    for number in range(300):
        await rig.add("mixed", {"number": number})
    async with rig.working({"q": 1}):

        async def at_rest() -> bool:
            counts = await rig.counts()
            return counts.get("running", 0) == 0 and counts.get("scheduled") == 1

        await until(at_rest)
        counts = await rig.counts()
        assert counts.get("done", 0) < 300
        assert counts.get("pending", 0) > 0
    thrown = [f for r in faulty.jobs.requests for f in r.finish if f.event is Event.THROTTLE]
    assert len(thrown) == 1


async def test_short_claims_wait_for_the_next_due_job(rig: Rig, faulty: FaultyStore) -> None:
    """Between two due times the worker sleeps: it neither spins nor oversleeps."""
    await rig.add("work", delay_s=1.2)
    settings = dataclasses.replace(FAST, poll_s=30.0)
    async with rig.working(settings=settings):
        await _all(rig, "done", 1)
    assert len(faulty.jobs.requests) < 12


def _any() -> Any:
    from forge_jobs.core.selection import Filter

    return Filter()
