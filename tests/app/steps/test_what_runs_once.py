"""A step runs once in the life of its job."""

import asyncio
import threading

from forge_jobs import Context, Forge, testing
from tests.app.steps.runs import Calls, Charge, Parcel, run_all


async def test_a_step_runs_once_although_the_job_is_retried(forge: Forge) -> None:
    calls: Calls = []

    def charge(cents: int) -> Charge:
        calls.append("charge")
        return Charge("ch_1", cents)

    async def ship(to: str) -> Parcel:
        calls.append("ship")
        return Parcel(7, to)

    seen: Calls = []

    @forge.task(max_attempts=3)
    async def fulfil(cents: int, ctx: Context) -> str:
        charged = await ctx.step("charge", charge, cents)
        parcel = await ctx.step(ship, to="ada")
        seen.append((charged, parcel))
        if len(seen) < 3:
            raise RuntimeError("not yet")
        return charged.id

    job = await run_all(forge, await fulfil.aenqueue(12))
    assert await job.aresult(timeout=0) == "ch_1"
    assert calls == ["charge", "ship"]
    # The first run, which ran the functions, saw what the later ones got from the store.
    assert seen == [(Charge("ch_1", 12), Parcel(7, "ada"))] * 3
    assert testing.steps_of(job) == {
        "charge": {"id": "ch_1", "cents": 12},
        "ship": {"number": 7, "to": "ada"},
    }


def test_a_def_handler_has_steps_too(forge: Forge) -> None:
    threads: Calls = []

    def where() -> int:
        threads.append(threading.get_ident())
        return 5

    @forge.task(max_attempts=2)
    def work(ctx: Context) -> int:
        value = ctx.step_sync("where", where)
        if len(threads) < 2:
            threads.append(threading.get_ident())
            raise RuntimeError("again")
        ctx.sleep_sync("2h")
        return value + ctx.step_sync(abs, -1)

    job = work.enqueue()
    with testing.frozen(forge) as time:
        for _ in range(4):
            forge.drain().run()
            time.advance("1h")
    assert job.result(timeout=0) == 6
    assert len(threads) == 2
    assert threads[0] == threads[1]


async def test_a_plain_function_does_not_block_the_loop(forge: Forge) -> None:
    gate = threading.Event()

    def blocking() -> str:
        assert gate.wait(30)
        return threading.current_thread().name

    @forge.task
    async def work(ctx: Context) -> str:
        step = asyncio.ensure_future(ctx.step("blocking", blocking))
        await asyncio.sleep(0)
        gate.set()
        return await step

    job = await run_all(forge, await work.aenqueue())
    assert await job.aresult(timeout=0) != threading.current_thread().name
