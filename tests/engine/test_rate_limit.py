"""ctx.rate_limit: permits of cluster-wide buckets, in blocks, from coroutines and threads."""

import asyncio
import dataclasses
import threading
from typing import Any

import pytest

from forge_jobs import DEFAULT_RATE_LIMIT_SCOPES, Throttled, ensure_default_rate_limits
from forge_jobs.backends.memory.store import MemoryStore
from forge_jobs.core.errors import BadOption, NotFound
from forge_jobs.core.status import JobStatus
from forge_jobs.engine.drain import drain
from forge_jobs.engine.running.context import Context
from forge_jobs.engine.running.rate_limit import PERMIT_TTL_S, RateLimit, RateLimiter, store_of
from forge_jobs.kit.io_thread import IoThread
from forge_jobs.testing.clock import MovableClock
from tests.engine.rig import FAST, Rig


class Counted:
    """A port on the running loop that counts the calls to the store."""

    def __init__(self) -> None:
        self.calls = 0

    def spawn(self, work: Any) -> Any:
        self.calls += 1
        return asyncio.get_running_loop().create_task(work())


class Desk:
    """A store on a clock that stands still, and processes that want permits."""

    def __init__(self) -> None:
        self.clock = MovableClock()
        self.store = MemoryStore(self.clock)
        self.port = Counted()

    def process(self, **declared: RateLimit) -> RateLimiter:
        return RateLimiter(store_of(self.store), self.port, declared=declared, clock=self.clock)

    async def grants(self, limiter: RateLimiter, wanted: int) -> int:
        """How many of so many tries succeed."""
        return sum([bool(await limiter.try_acquire("x")) for _ in range(wanted)])


@pytest.fixture
def desk() -> Desk:
    return Desk()


async def test_permits_are_counted_over_all_processes(desk: Desk) -> None:
    await desk.store.token_buckets.put("x", capacity=20, refill_per_s=10)
    one, two = desk.process(), desk.process()
    assert await desk.grants(one, 12) == 12
    assert await desk.grants(two, 50) <= 8
    assert await desk.grants(one, 50) + 12 <= 20


async def test_a_refusal_names_the_time_and_is_believed_until_then(desk: Desk) -> None:
    await desk.store.token_buckets.put("x", capacity=1, refill_per_s=0.5)
    limiter = desk.process()
    assert await limiter.try_acquire("x")
    refused = await limiter.try_acquire("x")
    assert (refused.granted, refused.retry_after) == (False, 2.0)
    calls = desk.port.calls
    for _ in range(100):
        with pytest.raises(Throttled) as throttled:
            await limiter.acquire("x")
    assert (throttled.value.retry_after_s, throttled.value.scope) == (2.0, "x")
    assert desk.port.calls == calls, "the store was asked although the time had not come"
    desk.clock.advance(2.0)
    await limiter.acquire("x")


async def test_blocks_grow_while_they_are_used_up_and_stay_small(desk: Desk) -> None:
    await desk.store.token_buckets.put("x", capacity=800, refill_per_s=1_000)
    limiter = desk.process()
    assert await desk.grants(limiter, 600) == 600
    assert desk.port.calls < 30, "not one call for each permit"
    [bucket] = await desk.store.token_buckets.all()
    assert 600 <= 800 - bucket.tokens <= 700, "one process leaves the others their part"


async def test_a_slow_scope_is_exact(desk: Desk) -> None:
    await desk.store.token_buckets.put("x", capacity=5, refill_per_s=1)
    limiter = desk.process()
    for left in (4, 3, 2, 1, 0):
        await limiter.acquire("x")
        [bucket] = await desk.store.token_buckets.all()
        assert bucket.tokens == left


async def test_unused_permits_lapse(desk: Desk) -> None:
    await desk.store.token_buckets.put("x", capacity=1_000, refill_per_s=1_000)
    limiter = desk.process()
    await desk.grants(limiter, 200)
    await desk.store.token_buckets.drain("x")
    desk.clock.advance(PERMIT_TTL_S)
    await desk.store.token_buckets.drain("x")
    assert not await limiter.try_acquire("x")


async def test_A5_an_unknown_scope_is_an_error_that_lists_the_known(desk: Desk) -> None:
    await desk.store.token_buckets.put("smtp", capacity=5, refill_per_s=1)
    limiter = desk.process(sms=RateLimit(1, 1))
    for call in (limiter.acquire, limiter.try_acquire, limiter.drain):
        with pytest.raises(NotFound, match=r"'smpt' is not declared \(known: sms, smtp\)"):
            await call("smpt")


async def test_a_declared_scope_is_made_by_its_first_use_and_never_overwritten(desk: Desk) -> None:
    limiter = desk.process(x=RateLimit.of("x", "3/m"))
    await limiter.acquire("x")
    [bucket] = await desk.store.token_buckets.all()
    assert (bucket.capacity, bucket.refill_per_s) == (3.0, 0.05)
    await desk.store.token_buckets.put("x", capacity=7, refill_per_s=2)
    await desk.process(x=RateLimit.of("x", "3/m")).try_acquire("x")
    [bucket] = await desk.store.token_buckets.all()
    assert (bucket.capacity, bucket.refill_per_s) == (7.0, 2.0), "an operator's word stands"


async def test_what_an_operator_sets_is_followed(desk: Desk) -> None:
    await desk.store.token_buckets.put("x", capacity=2, refill_per_s=0)
    limiter = desk.process()
    assert await desk.grants(limiter, 3) == 2
    assert (await limiter.try_acquire("x")).retry_after == 60.0, "nothing is ever refilled"
    await desk.store.token_buckets.put("x", capacity=500, refill_per_s=100)
    desk.clock.advance(61)
    assert await desk.grants(limiter, 600) == 500


async def test_defaults_are_made_once(desk: Desk) -> None:
    await desk.store.token_buckets.put("slack", capacity=9, refill_per_s=9)
    made = await ensure_default_rate_limits(desk.store)
    assert {bucket.scope: bucket.capacity for bucket in made} == {"slack": 9, "gh": 5_000}
    assert set(DEFAULT_RATE_LIMIT_SCOPES) == {"slack", "gh"}
    await ensure_default_rate_limits(desk.store, {"own": RateLimit.of("own", "10/30s", burst=2)})
    own = next(one for one in await desk.store.token_buckets.all() if one.scope == "own")
    assert (own.capacity, own.refill_per_s) == (2.0, pytest.approx(1 / 3))


@pytest.mark.parametrize(("rate", "burst"), [("fast", None), ("0/s", None), ("5/s", 0), (5, None)])
def test_a_bad_rate_is_refused_by_name(rate: Any, burst: float | None) -> None:
    with pytest.raises(BadOption, match="rate limit 'x'"):
        RateLimit.of("x", rate, burst)


async def test_threads_and_coroutines_share_the_permits(desk: Desk) -> None:
    await desk.store.token_buckets.put("x", capacity=64, refill_per_s=0)
    io = IoThread()
    limiter = RateLimiter(store_of(desk.store), io)
    granted: list[bool] = []

    def take() -> None:
        granted.extend(bool(limiter.try_acquire_sync("x")) for _ in range(20))

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        granted.append(bool(await limiter.try_acquire("x")))
    for thread in threads:
        await asyncio.to_thread(thread.join)
    with pytest.raises(Throttled):
        limiter.acquire_sync("x")
    limiter.drain_sync("x")
    io.close()
    assert sum(granted) == 64


async def test_a_throttled_job_waits_its_time_and_spends_no_attempt(rig: Rig) -> None:
    await rig.store.token_buckets.put("x", capacity=2, refill_per_s=2)
    ran: list[int] = []

    async def waits(ctx: Context, given: Any) -> None:
        await ctx.rate_limit.acquire("x")
        ran.append(ctx.job.attempts)

    def in_a_thread(ctx: Context, given: Any) -> None:
        ctx.rate_limit.acquire_sync("x")
        ran.append(ctx.job.attempts)

    rig.on("waits", waits)
    rig.on("thread", in_a_thread)
    # There before the worker is: they run at once, and some of them must wait.
    ids = [await rig.add(kind) for kind in ("waits", "thread") * 3]
    async with rig.working(settings=dataclasses.replace(FAST, poll_s=0.1)) as handle:
        records = [await rig.reaches(job_id, JobStatus.DONE) for job_id in ids]
        assert handle.rate_limit is handle._process.rate_limit
    assert ran == [1] * 6
    assert any(record.throttles for record in records)


async def test_an_unknown_scope_fails_the_job_with_the_list(rig: Rig) -> None:
    async def asks(ctx: Context, given: Any) -> None:
        await ctx.rate_limit.acquire("typo")

    rig.on("asks", asks)
    await rig.store.token_buckets.put("smtp", capacity=2, refill_per_s=2)
    async with rig.working():
        record = await rig.runs("asks", max_attempts=1)
    assert record.status is JobStatus.DEAD
    assert "known: smtp" in (record.last_error or "")


async def test_drain_gives_permits_to_coroutines_and_threads(rig: Rig) -> None:
    rig.registry.rate_limits["x"] = RateLimit.of("x", "2/h")

    async def waits(ctx: Context, given: Any) -> None:
        await ctx.rate_limit.acquire("x")

    def in_a_thread(ctx: Context, given: Any) -> None:
        ctx.rate_limit.acquire_sync("x")

    rig.on("waits", waits)
    rig.on("thread", in_a_thread)
    for kind in ("waits", "thread"):
        await rig.add(kind)
    report = await drain(rig.store, rig.registry)
    assert report.done == 2
    await rig.add("waits")
    assert (await drain(rig.store, rig.registry)).put_off == 1
