"""``ctx.restart``: a new history of the same job."""

import asyncio
from typing import Any

import pytest

from forge_jobs import Context, Forge, testing
from forge_jobs.core import steps as core_steps
from tests.app.steps.runs import Calls, run_all


async def test_restart_begins_a_new_history_with_checked_arguments(forge: Forge) -> None:
    seen: Calls = []

    @forge.task
    async def work(n: int, ctx: Context) -> int:
        await ctx.step("n", abs, n)
        seen.append((n, ctx.steps))
        if n < 3:
            with pytest.raises(Exception, match="must be int"):
                ctx.restart("four")
            raise ctx.restart(n + 1)
        return n

    job = await run_all(forge, await work.aenqueue(1))
    assert await job.aresult(timeout=0) == 3
    assert seen == [(1, 1), (2, 1), (3, 1)]
    assert testing.steps_of(job) == {"n": 3}


async def test_restart_keeps_the_cursor_of_each_topic(forge: Forge) -> None:
    @forge.task
    async def work(seen: list[int], ctx: Context) -> list[int]:
        n = await ctx.wait_for("n", type=int)
        if len(seen) < 2:
            raise ctx.restart([*seen, n])
        return [*seen, n]

    job = await work.aenqueue([])
    for n in range(3):
        await forge.asend("n", n)
    await forge.drain()
    assert await job.aresult(timeout=0) == [0, 1, 2]


async def test_a_restart_keeps_the_cursors_that_its_run_has_not_read(forge: Forge) -> None:
    """The step that took the event is behind those that come with the claim, and the run restarts
    before it asks for it."""
    count = core_steps.MAX_CLAIMED_STEPS + 10

    @forge.task(max_attempts=3)
    async def work(phase: str, ctx: Context) -> Any:
        if phase == "new":
            return await ctx.wait_for("n", timeout=0, default="no other event")
        if ctx.job.attempts == 1 and ctx.steps == 0:
            assert await ctx.wait_for("n") == 1
            await asyncio.gather(*(ctx.step.using(key=n)("fill", abs, n) for n in range(count)))
            raise RuntimeError("ends the first run")
        raise ctx.restart("new")

    job = await work.aenqueue("old")
    await forge.asend("n", 1)
    await run_all(forge, job)
    assert await job.aresult(timeout=0) == "no other event"
