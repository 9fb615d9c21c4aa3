"""Events: to one job, with a dedupe key, to jobs of a running worker."""

import asyncio
from typing import Any

import pytest

from forge_jobs import BadOption, Context, Forge, JobStatus, Refused
from tests.app.steps.runs import Calls, status


async def test_an_event_to_one_job(forge: Forge) -> None:
    @forge.task
    async def work(ctx: Context) -> Any:
        return await ctx.wait_for("approve")

    one, two = await work.aenqueue(), await work.aenqueue()
    await forge.drain()
    await one.asend("approve", {"by": "ada"})
    await forge.drain()
    assert await one.aresult(timeout=0) == {"by": "ada"}
    assert await status(two) is JobStatus.SUSPENDED
    await forge.asend("approve", "all")
    await forge.drain()
    assert await two.aresult(timeout=0) == "all"
    with pytest.raises(Refused, match="is done"):
        await one.asend("approve")


async def test_a_dedupe_key_sends_once(forge: Forge) -> None:
    @forge.task
    async def work(ctx: Context) -> list[Any]:
        first = await ctx.wait_for("paid")
        return [first, await ctx.wait_for("paid", timeout=0, default=None)]

    job = await work.aenqueue()
    sender = forge.using(dedupe_key="evt_1")
    assert not (await sender.asend("paid", 1)).duplicate
    assert (await sender.asend("paid", 2)).duplicate
    await forge.drain()
    assert await job.aresult(timeout=0) == [1, None]
    with pytest.raises(BadOption, match="priority"):
        forge.using(priority=1)  # type: ignore[call-arg]


async def test_a_worker_goes_on_after_an_event(forge: Forge) -> None:
    calls: Calls = []

    @forge.task
    async def work(n: int, ctx: Context) -> int:
        await ctx.step("before", calls.append, n)
        event = await ctx.wait_for("go", type=int)
        return n + event

    async with forge.worker(queues=["default"]):
        jobs = await work.aenqueue_many([(n,) for n in range(20)])
        for _ in range(600):
            if await forge.jobs(status="suspended").acount() == 20:
                break
            await asyncio.sleep(0.05)
        await forge.asend("go", 100)
        assert [await job.aresult(timeout=60) for job in jobs] == [n + 100 for n in range(20)]
    assert sorted(calls) == list(range(20))
