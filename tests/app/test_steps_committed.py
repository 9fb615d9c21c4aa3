"""What a worker does between the commit of a step with ``tx=`` and the end of its run."""

import asyncio
from typing import Any

import pytest

from forge_jobs import Context, EngineSettings, Forge, Retry, Unavailable
from tests.user_transaction import user_transaction


async def test_a_committed_step_is_known_although_the_store_could_not_be_asked(
    shared_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run that stored it fails right after the commit, while the store is not available. The
    next run was not told of the step: it called the function again, and its commit was refused."""
    forge = Forge(shared_url, settings=EngineSettings(shutdown_s=10.0))
    effects: list[int] = []
    asked: list[str] = []
    store = await forge.aready()
    real: Any = store.steps.page

    async def page(*args: Any, **options: Any) -> Any:
        if not asked:
            asked.append("once")
            raise Unavailable("the store is not available")
        return await real(*args, **options)

    monkeypatch.setattr(store.steps, "page", page)

    @forge.task(max_attempts=3, retry=Retry(base="10ms"))
    async def debit(ctx: Context) -> int:
        with user_transaction(shared_url) as tx:
            value = await ctx.step.using(tx=tx)("debit", effects.append, 1) or 1
        if ctx.job.attempts == 1 and len(effects) == 1:
            raise RuntimeError("right after the commit")
        return value

    async with forge, forge.worker(queues=["default"]):
        assert await (await debit.aenqueue()).aresult(timeout=60) == 1
    assert asked
    assert effects == [1]


@pytest.mark.parametrize("strict", [False, True])
async def test_a_run_that_ends_with_a_commit_frees_one_slot(shared_url: str, strict: bool) -> None:
    forge = Forge(shared_url, settings=EngineSettings(shutdown_s=10.0, strict=strict))
    at_once: list[int] = []
    running = 0

    @forge.task
    async def debit(ctx: Context) -> None:
        with user_transaction(shared_url) as tx:
            await ctx.step.using(tx=tx)("debit", abs, -1)

    @forge.task
    async def other() -> None:
        nonlocal running
        running += 1
        at_once.append(running)
        await asyncio.sleep(0.01)
        running -= 1

    async with forge, forge.worker(queues={"default": 2}):
        for job in [await debit.aenqueue() for _ in range(6)]:
            await job.aresult(timeout=60)
        for job in [await other.aenqueue() for _ in range(12)]:
            await job.aresult(timeout=60)
    assert max(at_once) == 2
