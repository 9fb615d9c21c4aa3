"""The signal that ends a run at a sleep or wait."""

import asyncio

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
