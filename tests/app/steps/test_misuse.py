"""What is said about misuse: each error names what to do instead."""

import asyncio
import threading

import pytest

from forge_jobs import BadStep, Context, Forge, JobStatus
from tests.app.steps.runs import Calls, failure, run_all


async def test_steps_do_not_nest(forge: Forge) -> None:
    @forge.task(max_attempts=1)
    async def work(ctx: Context) -> None:
        async def outer() -> None:
            await ctx.step("inner", abs, 1)

        await ctx.step("outer", outer)

    assert "in the function of step 'outer': steps do not nest" in await failure(forge, work)


async def test_a_handler_that_returns_while_a_step_is_open_fails(forge: Forge) -> None:
    started = asyncio.Event()
    kept: Calls = []

    async def slow() -> None:
        started.set()
        await asyncio.Event().wait()

    @forge.task(max_attempts=1)
    async def work(ctx: Context) -> str:
        kept.append(asyncio.ensure_future(ctx.step("slow", slow)))
        await started.wait()
        return "done"

    text = await failure(forge, work)
    kept[0].cancel()
    assert "the handler returned while step 'slow' was open: await every step" in text


async def test_a_step_after_the_run_or_in_another_thread_is_refused(forge: Forge) -> None:
    kept: list[Context] = []
    errors: Calls = []

    def elsewhere(ctx: Context) -> None:
        try:
            ctx.step("x", abs, 1)
        except BadStep as error:
            errors.append(str(error))

    @forge.task
    async def work(ctx: Context) -> None:
        kept.append(ctx)
        await ctx.step("first", abs, 1)
        await asyncio.to_thread(elsewhere, ctx)

    @forge.task
    def plain(ctx: Context) -> None:
        ctx.step_sync("first", abs, 1)
        thread = threading.Thread(target=lambda: errors.append(_error(ctx)))
        thread.start()
        thread.join()

    def _error(ctx: Context) -> str:
        with pytest.raises(BadStep) as caught:
            ctx.step_sync("x", abs, 1)
        return str(caught.value)

    for task in (work, plain):
        job = await run_all(forge, await task.aenqueue())
        assert job.status is JobStatus.DONE, job.error
    with pytest.raises(BadStep, match=r"the run of job .* has ended"):
        kept[0].step("late", abs, 1)
    assert "the event loop of their handler" in errors[0]
    assert "belong to one thread" in errors[1]


async def test_each_form_is_for_its_own_handlers(forge: Forge) -> None:
    @forge.task(max_attempts=1)
    async def work(ctx: Context) -> None:
        ctx.step_sync("x", abs, 1)

    @forge.task(max_attempts=1)
    def plain(ctx: Context) -> None:
        ctx.sleep("1h")

    assert "write `await ctx.step(...)` here" in await failure(forge, work)
    assert "write ctx.sleep_sync(...) here" in await failure(forge, plain)
