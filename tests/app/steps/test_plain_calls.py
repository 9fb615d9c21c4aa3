"""Steps of a plain call, and of jobs in inline mode."""

from typing import Any

import pytest

from forge_jobs import BadStep, Context, Forge, JobStatus, testing


async def test_a_plain_call_runs_steps_in_place(forge: Forge) -> None:
    @forge.task
    async def work(n: int, ctx: Context) -> list[int]:
        first = await ctx.step("abs", abs, n)
        await ctx.sleep("10d")
        late = await ctx.wait_for("late", timeout="1d", default={"n": 0})
        paid = await ctx.wait_for("paid", key=n)
        return [first, late["n"], paid["n"]]

    @forge.task
    def plain(n: int, ctx: Context) -> int:
        ctx.sleep_sync("1d")
        return ctx.step_sync(abs, n)

    with testing.events(("paid", {"n": 5}, -1)):
        assert await work(-1) == [1, 0, 5]
    assert plain(-3) == 3
    with pytest.raises(BadStep, match=r"testing\.events"):
        await work(-1)


async def test_inline_mode_runs_what_an_event_resumes(forge: Forge) -> None:
    @forge.task
    async def work(ctx: Context) -> Any:
        return await ctx.wait_for("go")

    with testing.inline(forge):
        job = await work.aenqueue()
        assert job.status is JobStatus.SUSPENDED
        await forge.asend("go", 5)
        assert await job.aresult(timeout=0) == 5
