"""Waits for events: which event they take, their deadlines and their arguments."""

from datetime import timedelta
from typing import Any

import pytest

from forge_jobs import Context, Forge, JobStatus, ReceivedEvent, WaitTimeout, testing
from tests.app.steps.runs import Calls, Payment, status


async def test_a_wait_is_met_by_a_later_event(forge: Forge) -> None:
    @forge.task
    async def work(order: int, ctx: Context) -> int:
        paid = await ctx.wait_for("paid", key=order, timeout="3d", type=Payment)
        return paid.amount

    job, other = await work.aenqueue(1), await work.aenqueue(2)
    await forge.drain()
    assert (await status(job), job.attempts) == (JobStatus.SUSPENDED, 0)
    sent = await forge.asend("paid", {"amount": 12}, key=1)
    assert (sent.resumed, sent.duplicate) == (1, False)
    await forge.drain()
    assert await job.aresult(timeout=0) == 12
    assert await status(other) is JobStatus.SUSPENDED


async def test_an_event_before_the_wait_counts_inngest_1433(forge: Forge) -> None:
    @forge.task
    async def work(ctx: Context) -> list[Any]:
        return [await ctx.wait_for("message") for _ in range(3)]

    await forge.asend("message", "before the job")
    jobs = [await work.aenqueue() for _ in range(2)]
    for n in range(3):
        await forge.asend("message", n)
    await forge.drain()
    # In order, each once, by every job that waits.
    for job in jobs:
        assert await job.aresult(timeout=0) == [0, 1, 2]


@pytest.mark.parametrize(("since", "expected"), [(None, "old"), ("1h", "recent")])
async def test_since_widens_what_counts(forge: Forge, since: Any, expected: str) -> None:
    @forge.task
    async def work(ctx: Context) -> str:
        return await ctx.wait_for("news", since=since, type=str)

    with testing.frozen(forge) as time:
        await forge.asend("news", "old")
        time.advance("2h")
        await forge.asend("news", "recent")
        time.advance("10m")
        job = await work.aenqueue()
        await forge.drain()
    assert await job.aresult(timeout=0) == expected


async def test_one_of_several_events(forge: Forge) -> None:
    seen: Calls = []

    @forge.task
    async def work(ctx: Context) -> str:
        first = await ctx.wait_for(["shipped", "lost"], key=7)
        seen.append(first)
        return first.name

    job = await work.aenqueue()
    await forge.drain()
    await forge.asend("lost", {"where": "sea"}, key=7)
    await forge.asend("shipped", None, key=7)
    await forge.drain()
    assert await job.aresult(timeout=0) == "lost"
    (first,) = seen
    assert isinstance(first, ReceivedEvent)
    assert first.payload == {"where": "sea"}
    assert first.sent_at.tzinfo is not None


async def test_a_wait_times_out_once_and_for_all(forge: Forge) -> None:
    seen: Calls = []

    @forge.task(max_attempts=3)
    async def work(ctx: Context) -> str:
        try:
            await ctx.wait_for("paid", timeout="1h")
        except WaitTimeout as error:
            seen.append((str(error), isinstance(error, TimeoutError)))
        default = await ctx.wait_for("paid", timeout="1h", default="none")
        if len(seen) < 3:
            raise RuntimeError("again")
        return default

    with testing.frozen(forge) as time:
        job = await work.aenqueue()
        for _ in range(6):
            await forge.drain()
            time.advance("1h")
        # Too late: every later run sees what was decided.
        await forge.asend("paid", 1)
        await forge.drain()
    assert await job.aresult(timeout=0) == "none"
    assert set(seen) == {("wait_for('paid'): no event was sent before the deadline", True)}


async def test_a_timeout_of_zero_only_looks(forge: Forge) -> None:
    @forge.task
    async def work(ctx: Context) -> list[Any]:
        return [await ctx.wait_for("tick", timeout=0, default=None) for _ in range(3)]

    job = await work.aenqueue()
    await forge.asend("tick", 1)
    await forge.drain()
    assert await job.aresult(timeout=0) == [1, None, None]


async def test_run_now_parks_a_wait_again_with_its_old_deadline(forge: Forge) -> None:
    runs = 0

    @forge.task
    async def work(ctx: Context) -> str:
        nonlocal runs
        runs += 1
        return await ctx.wait_for("paid", timeout="2h", default="late", type=str)

    with testing.frozen(forge) as time:
        job = await work.aenqueue()
        await forge.drain()
        time.advance("1h")
        await job.arun_now()
        await forge.drain()
        assert (await status(job), runs) == (JobStatus.SUSPENDED, 2)
        time.advance("1h")
        await forge.drain()
    assert await job.aresult(timeout=0) == "late"


async def test_one_open_wait_and_the_error_names_the_list(forge: Forge) -> None:
    @forge.task(max_attempts=1)
    async def work(ctx: Context) -> None:
        first = ctx.wait_for("a")
        try:
            ctx.wait_for("b")
        finally:
            first.close()

    job = await work.aenqueue()
    await forge.drain()
    assert await status(job) is JobStatus.DEAD
    assert "ctx.wait_for(['b', ...])" in str(job.error)


async def test_a_payload_that_does_not_fit_names_the_field(forge: Forge) -> None:
    @forge.task(max_attempts=1)
    async def work(ctx: Context) -> None:
        await ctx.wait_for("paid", type=Payment)

    job = await work.aenqueue()
    await forge.asend("paid", {"amount": "twelve"})
    await forge.drain()
    assert await status(job) is JobStatus.DEAD
    assert "wait_for('paid')" in str(job.error)
    assert "amount" in str(job.error)


def test_waits_and_sleeps_of_def_handlers(forge: Forge) -> None:
    @forge.task
    def work(ctx: Context) -> int:
        ctx.sleep_sync("1h")
        first = ctx.wait_for_sync("n", type=int)
        second = ctx.wait_for_sync(["n", "m"], timeout="1h", default=None)
        return first + (0 if second is None else second.payload)

    with testing.frozen(forge) as time:
        job = work.enqueue()
        forge.drain().run()
        time.advance("1h")
        forge.drain().run()
        assert job.refresh().status is JobStatus.SUSPENDED
        forge.send("n", 40)
        forge.drain().run()
        forge.send("m", 2)
        forge.drain().run()
    assert job.result(timeout=0) == 42


async def test_a_retry_from_a_wait_gives_it_its_whole_time_again(forge: Forge) -> None:
    """The wait began a second time after *run now*; its deadline is older than that."""

    @forge.task(max_attempts=1)
    async def work(ctx: Context) -> str:
        return await ctx.wait_for("paid", timeout="2h", type=str)

    with testing.frozen(forge) as time:
        job = await work.aenqueue()
        await forge.drain()
        time.advance("1h")
        await job.arun_now()
        await forge.drain()
        time.advance("1h")
        await forge.drain()
        assert await status(job) is JobStatus.DEAD
        store = await forge._access.aready()
        assert await store.steps.retry_from(job.id, "wait:paid")
        await forge.drain()
        assert await status(job) is JobStatus.SUSPENDED
        assert job.run_at - time.now() == timedelta(hours=2)
        await forge.asend("paid", "late")
        await forge.drain()
    assert await job.aresult(timeout=0) == "late"
