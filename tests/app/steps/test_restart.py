"""``ctx.restart``: a new history of the same job."""

import pytest

from forge_jobs import Context, Forge, testing
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
