"""The signal that ends a run at a sleep or wait."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from forge_jobs import Context, Forge, JobStatus, testing
from tests.app.steps.runs import Calls, status


async def test_except_exception_around_a_wait_does_not_stop_the_signal(forge: Forge) -> None:
    ended: Calls = []

    @forge.task
    async def work(ctx: Context) -> str:
        try:
            return await ctx.wait_for("go", type=str)
        except Exception:
            return "swallowed"
        finally:
            ended.append("finally")

    job = await work.aenqueue()
    await forge.drain()
    assert await status(job) is JobStatus.SUSPENDED
    await forge.asend("go", "went")
    await forge.drain()
    assert await job.aresult(timeout=0) == "went"
    # finally runs at every park.
    assert ended == ["finally", "finally"]


@pytest.mark.parametrize("how", ["bare", "gather", "step"])
async def test_a_swallowed_signal_is_an_error_with_the_remedy(forge: Forge, how: str) -> None:
    @forge.task(max_attempts=1)
    async def work(ctx: Context) -> None:
        if how == "gather":
            await asyncio.gather(ctx.wait_for("go"), return_exceptions=True)
            return
        try:
            await ctx.wait_for("go")
        except BaseException:
            if how == "step":
                await ctx.step("next", abs, 1)

    job = await work.aenqueue()
    await forge.drain()
    assert await status(job) is JobStatus.DEAD
    assert "wait_for('go')" in str(job.error)
    assert "not BaseException" in str(job.error) or "instead of BaseException" in str(job.error)


async def test_the_signal_counts_in_a_group_of_its_own(forge: Forge) -> None:
    @forge.task
    async def work(ctx: Context) -> list[str]:
        async with asyncio.TaskGroup() as group:
            one = group.create_task(ctx.wait_for("go", type=str))
            group.create_task(ctx.sleep("1h"))
            two = group.create_task(ctx.step("two", str, "2"))
        return [one.result(), two.result()]

    with testing.frozen(forge) as time:
        job = await work.aenqueue()
        await forge.drain()
        assert await status(job) is JobStatus.SUSPENDED
        await forge.asend("go", "1")
        await forge.drain()
        assert await status(job) is JobStatus.SCHEDULED
        time.advance("1h")
        await forge.drain()
    assert await job.aresult(timeout=0) == ["1", "2"]


async def test_the_signal_counts_alone_in_a_group_also_in_nested_ones(forge: Forge) -> None:
    @forge.task
    async def work(ctx: Context) -> str:
        async with asyncio.TaskGroup() as outer:
            outer.create_task(asyncio.Event().wait() if ctx.steps == 0 else asyncio.sleep(0))
            async with asyncio.TaskGroup() as inner:
                one = inner.create_task(ctx.wait_for("go", type=str))
        return one.result()

    job = await work.aenqueue()
    await forge.drain()
    assert (await status(job), job.attempts) == (JobStatus.SUSPENDED, 0)
    await forge.asend("go", "went")
    await forge.drain()
    assert await job.aresult(timeout=0) == "went"


async def test_a_group_with_another_error_fails_with_that_error(forge: Forge) -> None:
    @forge.task(max_attempts=1)
    async def work(ctx: Context) -> None:
        async def wait() -> None:
            try:
                await ctx.wait_for("go")
            finally:
                raise ValueError("the connection is gone")

        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.sleep("1h"))
            group.create_task(wait())

    job = await work.aenqueue()
    await forge.drain()
    assert await status(job) is JobStatus.DEAD
    assert "ValueError: the connection is gone" in str(job.error)
    assert "this run ends here for now" not in str(job.error).partition("ValueError")[0]


async def test_async_with_exits_run_at_every_park(forge: Forge) -> None:
    exits: Calls = []

    @contextlib.asynccontextmanager
    async def connection() -> AsyncIterator[None]:
        try:
            yield
        finally:
            exits.append("closed")

    @forge.task
    async def work(ctx: Context) -> None:
        async with connection():
            await ctx.sleep("1h")
            await ctx.wait_for("go")

    with testing.frozen(forge) as time:
        job = await work.aenqueue()
        await forge.drain()
        assert exits == ["closed"]
        time.advance("1h")
        await forge.drain()
        assert exits == ["closed"] * 2
        await forge.asend("go")
        await forge.drain()
    assert await status(job) is JobStatus.DONE, job.error
    assert exits == ["closed"] * 3
