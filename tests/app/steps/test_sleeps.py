"""Sleeps of handlers."""

import asyncio
from datetime import timedelta

from forge_jobs import Context, EngineSettings, Forge, JobStatus, Retry, testing
from tests.app.steps.runs import Calls, status


async def test_a_sleep_spends_no_attempt_and_is_not_slept_again(forge: Forge) -> None:
    runs = 0

    @forge.task(max_attempts=2)
    async def work(ctx: Context) -> int:
        nonlocal runs
        runs += 1
        await ctx.sleep("2h")
        await ctx.sleep(until=ctx.job.enqueued_at + timedelta(hours=3))
        if runs < 4:
            raise RuntimeError("after the sleep")
        return runs

    with testing.frozen(forge) as time:
        job = await work.aenqueue()
        start = time.now()
        await forge.drain()
        assert await status(job) is JobStatus.SCHEDULED
        assert job.run_at - start == timedelta(hours=2)
        assert job.attempts == 0
        time.advance("1h59m")
        assert (await forge.drain()).ran == 0
        time.advance("1m")
        await forge.drain()
        assert (await status(job), job.attempts) == (JobStatus.SCHEDULED, 0)
        assert job.run_at - start == timedelta(hours=3)
        time.advance("1h")
        await forge.drain()
        assert (await status(job), job.attempts) == (JobStatus.FAILED, 1)
        time.advance("1h")
        await forge.drain()
        assert await job.aresult(timeout=0) == 4


async def test_several_sleeps_may_be_open_and_the_earliest_wakes(forge: Forge) -> None:
    woken: Calls = []

    @forge.task
    async def work(ctx: Context) -> None:
        async def nap(name: str, span: str) -> None:
            await ctx.sleep(span, name=name)
            await ctx.step.using(key=name)("woken", woken.append, name)

        await asyncio.gather(nap("long", "2h"), nap("short", "1h"), nap("middle", "90m"))

    with testing.frozen(forge) as time:
        job = await work.aenqueue()
        await forge.drain()
        for expected in (["short"], ["short", "middle"], ["short", "middle", "long"]):
            time.advance("1h" if len(expected) == 1 else "30m")
            await forge.drain()
            assert woken == expected
    assert await status(job) is JobStatus.DONE, job.error


async def test_run_now_ends_the_earliest_sleep(forge: Forge) -> None:
    woken: Calls = []

    @forge.task(max_attempts=3)
    async def work(ctx: Context) -> None:
        async def nap(name: str, span: str) -> None:
            await ctx.sleep(span, name=name)
            await ctx.step.using(key=name)("woken", woken.append, name)

        await asyncio.gather(nap("a", "1h"), nap("b", "2h"))

    with testing.frozen(forge) as time:
        job = await work.aenqueue()
        await forge.drain()
        time.advance("10m")
        await job.arun_now()
        await forge.drain()
        assert woken == ["a"]
        assert await status(job) is JobStatus.SCHEDULED
        time.advance("10m")
        await job.arun_now()
        await forge.drain()
    # The first one, still in the future, was over before; it is the earliest again.
    assert woken == ["a"]
    assert await status(job) is JobStatus.SCHEDULED


async def test_run_now_ends_a_single_sleep_in_every_run(forge: Forge) -> None:
    runs = 0

    @forge.task(max_attempts=3, retry=Retry(base="1m", jitter=0))
    async def work(ctx: Context) -> int:
        nonlocal runs
        runs += 1
        await ctx.sleep("10h")
        return runs

    with testing.frozen(forge) as time:
        job = await work.aenqueue()
        await forge.drain()
        time.advance("1m")
        await job.arun_now()
        await forge.drain()
    assert await job.aresult(timeout=0) == 2


async def test_a_retry_does_not_end_a_sleep(forge: Forge) -> None:
    """The job goes on because of an event, fails, and is retried before its sleep is over."""
    seen: Calls = []

    @forge.task(max_attempts=5, retry=Retry(base="1m", jitter=0))
    async def work(ctx: Context) -> None:
        async def nap() -> None:
            await ctx.sleep("5h")
            seen.append("slept")

        async def wait() -> None:
            await ctx.wait_for("go")
            seen.append("event")
            if seen.count("event") == 1:
                raise RuntimeError("again")

        await asyncio.gather(nap(), wait())

    with testing.frozen(forge) as time:
        job = await work.aenqueue()
        await forge.drain()
        time.advance("1h")
        await forge.asend("go")
        await forge.drain()
        time.advance("2m")
        await forge.drain()
        assert "slept" not in seen
        assert await status(job) is JobStatus.SCHEDULED
        time.advance("4h")
        await forge.drain()
    assert await status(job) is JobStatus.DONE, job.error
    assert "slept" in seen


async def test_a_sleep_parks_only_when_no_step_is_open(forge: Forge) -> None:
    calls: Calls = []

    async def slow() -> str:
        for _ in range(20):
            await asyncio.sleep(0)
        calls.append("slow")
        return "slow"

    @forge.task
    async def work(ctx: Context) -> str:
        async def nap() -> None:
            await ctx.sleep("1h")

        return (await asyncio.gather(nap(), ctx.step("slow", slow)))[1]

    with testing.frozen(forge) as time:
        job = await work.aenqueue()
        await forge.drain()
        assert calls == ["slow"]
        time.advance("1h")
        await forge.drain()
    assert await job.aresult(timeout=0) == "slow"
    assert calls == ["slow"]


async def test_sleeping_jobs_do_not_delay_a_shutdown_dbos_ts_1200(any_url: str) -> None:
    forge = Forge(any_url, settings=EngineSettings(shutdown_s=10.0))

    @forge.task
    async def work(ctx: Context) -> None:
        await ctx.sleep("5m")

    async with forge:
        jobs = await work.aenqueue_many([()] * 200)
        async with forge.worker(queues=["default"], slots=50):
            for _ in range(600):
                if await forge.jobs(status="scheduled").acount() == len(jobs):
                    break
                await asyncio.sleep(0.05)
            before = asyncio.get_running_loop().time()
        # The grace period is 30 s; a worker without running jobs does not need it.
        assert asyncio.get_running_loop().time() - before < 20
        assert await forge.jobs(status="scheduled").acount() == len(jobs)


async def test_a_timeout_is_that_of_one_run(forge: Forge) -> None:
    """The job lives for longer than it."""

    @forge.task(timeout="30m", max_attempts=1)
    async def work(ctx: Context) -> str:
        await ctx.step("first", abs, 1)
        await ctx.sleep("1h")
        await ctx.wait_for("go")
        return "done"

    with testing.frozen(forge) as time:
        job = await work.aenqueue()
        await forge.drain()
        time.advance("1h")
        await forge.drain()
        await forge.asend("go")
        await forge.drain()
    assert await job.aresult(timeout=0) == "done", job.error
