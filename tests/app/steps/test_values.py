"""Values of steps: their form in every run, and their limits."""

import asyncio

import pytest

from forge_jobs import Context, Forge
from forge_jobs.core import steps as core_steps
from forge_jobs.engine.steps import run_steps
from tests.app.steps.runs import Calls, Charge, failure, run_all


async def test_a_value_without_annotation_is_plain_json_in_every_run(forge: Forge) -> None:
    seen: Calls = []

    def loose(n: int):  # type: ignore[no-untyped-def]
        return (n, Charge("c", n))

    @forge.task(max_attempts=2)
    async def work(ctx: Context) -> None:
        seen.append(await ctx.step("loose", loose, 1))
        if len(seen) == 1:
            raise RuntimeError("again")

    await run_all(forge, await work.aenqueue())
    assert seen == [[1, {"id": "c", "cents": 1}]] * 2


async def test_a_value_annotated_with_object_is_plain_json(forge: Forge) -> None:
    def look() -> dict[str, object]:
        return {"a": [1, {"b": None}]}

    @forge.task
    async def work(ctx: Context) -> object:
        return await ctx.step("look", look)

    job = await run_all(forge, await work.aenqueue())
    assert await job.aresult(timeout=1) == {"a": [1, {"b": None}]}


async def test_a_value_over_the_limit_names_its_step(forge: Forge) -> None:
    @forge.task(max_attempts=1)
    async def work(ctx: Context) -> None:
        await ctx.step("big", lambda: "x" * (256 << 10))

    text = await failure(forge, work)
    assert "step 'big': its value has 262,146 bytes" in text
    assert "return a reference" in text


async def test_too_many_steps_name_restart(forge: Forge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_steps, "MAX_STEPS", 3)

    @forge.task(max_attempts=1)
    async def work(ctx: Context) -> None:
        for n in range(4):
            await ctx.step("n", abs, n)

    text = await failure(forge, work)
    assert "'n#4' would be step 4" in text
    assert "ctx.restart" in text


async def test_a_long_history_is_read_by_page(forge: Forge) -> None:
    calls: Calls = []
    count = core_steps.MAX_CLAIMED_STEPS + 40

    def note(n: int) -> int:
        calls.append(n)
        return n

    @forge.task(max_attempts=2)
    async def work(ctx: Context) -> int:
        batch = (ctx.step.using(key=n)("note", note, n) for n in range(count))
        total = sum(await asyncio.gather(*batch))
        if ctx.job.attempts == 1 and len(calls) == count:
            calls.append(-1)
            raise RuntimeError("again")
        assert ctx.steps == count
        return total

    job = await run_all(forge, await work.aenqueue())
    assert await job.aresult(timeout=0) == sum(range(count))
    assert len(calls) == count + 1


async def test_ten_thousand_steps_are_the_limit() -> None:
    forge = Forge("memory://")
    count = 10_000

    @forge.task(max_attempts=1)
    async def work(ctx: Context) -> None:
        batch = (ctx.step.using(key=n)("n", abs, n) for n in range(count))
        await asyncio.gather(*batch)
        await ctx.step("more", abs, 1)

    async with forge:
        text = await failure(forge, work)
    assert "'more' would be step 10,001" in text
    assert "10,000 are the limit" in text


async def test_sixty_four_mebibytes_of_values_are_the_limit() -> None:
    forge = Forge("memory://")
    large = "x" * ((256 << 10) - 2)

    @forge.task(max_attempts=1)
    async def work(ctx: Context) -> None:
        for n in range(256):
            await ctx.step.using(key=n)("large", lambda: large)
        await ctx.step("more", abs, 1)

    async with forge:
        text = await failure(forge, work)
    assert "'more': the steps of job" in text
    assert "more than 64 MiB: return references instead of data" in text
