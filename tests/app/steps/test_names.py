"""The identity of a step: its name, with a key or the number of the call."""

import asyncio

import pytest

from forge_jobs import BadName, BadStep, Context, Forge, JobStatus, testing
from tests.app.steps.runs import Calls, failure, run_all


async def test_repeats_are_numbered_and_keys_replace_the_number(forge: Forge) -> None:
    @forge.task
    async def work(ctx: Context) -> None:
        for n in range(3):
            await ctx.step("fetch", abs, n)
        for name in "ab":
            await ctx.step.using(key=name)("fetch", str, name)
        assert ctx.steps == 5

    job = await run_all(forge, await work.aenqueue())
    assert job.status is JobStatus.DONE, job.error
    assert testing.steps_of(job) == {
        "fetch": 0, "fetch#2": 1, "fetch#3": 2, "fetch[a]": "a", "fetch[b]": "b",
    }  # fmt: skip


async def test_a_call_that_raised_is_repeated_under_its_identity(forge: Forge) -> None:
    calls: Calls = []

    async def flaky() -> int:
        calls.append("flaky")
        if len(calls) == 1:
            raise ConnectionError("down")
        return len(calls)

    @forge.task(max_attempts=2)
    async def work(ctx: Context) -> int:
        try:
            value = await ctx.step("flaky", flaky)
        except ConnectionError:
            value = await ctx.step("flaky", flaky)
        if ctx.job.attempts == 1 and len(calls) == 2:
            calls.append("end of the first run")
            raise RuntimeError("again")
        return value

    job = await run_all(forge, await work.aenqueue())
    assert await job.aresult(timeout=0) == 2
    assert calls == ["flaky", "flaky", "end of the first run"]
    assert list(testing.steps_of(job)) == ["flaky"]


async def test_gather_in_random_order_dbos_688(forge: Forge) -> None:
    """Identity is given at the call, not at the start, and keys tell parallel calls apart."""
    runs = 0
    calls: Calls = []

    async def fetch(n: int, turns: int) -> int:
        for _ in range(turns):
            await asyncio.sleep(0)
        calls.append(n)
        return n * 10

    @forge.task(max_attempts=3)
    async def work(ctx: Context) -> list[int]:
        nonlocal runs
        runs += 1
        order = [0, 1, 2, 3] if runs % 2 else [3, 1, 0, 2]
        steps = {n: ctx.step.using(key=n)("fetch", fetch, n, (7 * n) % 4) for n in order}
        values = await asyncio.gather(*(steps[n] for n in range(4)))
        if runs < 3:
            raise RuntimeError("again")
        return values

    job = await run_all(forge, await work.aenqueue())
    assert await job.aresult(timeout=0) == [0, 10, 20, 30]
    assert sorted(calls) == [0, 1, 2, 3]


async def test_two_open_steps_of_one_name_need_keys(forge: Forge) -> None:
    async def fetch(n: int) -> int:
        return n

    @forge.task(max_attempts=1)
    async def work(ctx: Context) -> None:
        first = ctx.step("fetch", fetch, 1)
        try:
            await asyncio.gather(first, ctx.step("fetch", fetch, 2))
        finally:
            first.close()

    text = await failure(forge, work)
    assert "BadStep" in text
    assert "using(key=...)" in text


async def test_a_key_twice_in_one_run_is_an_error_and_no_memo(forge: Forge) -> None:
    @forge.task(max_attempts=1)
    async def work(ctx: Context) -> None:
        one = ctx.step.using(key="x")
        await one("fetch", abs, 1)
        await one("fetch", abs, 1)

    assert "fetch[x]' is called twice in one run" in await failure(forge, work)


async def test_number_signs_are_refused_in_names(forge: Forge) -> None:
    refused: Calls = []

    @forge.task
    async def work(ctx: Context) -> None:
        for name in ("a#2", "", "x\n"):
            with pytest.raises(BadName):
                ctx.step(name, abs, 1)
            refused.append(name)
        with pytest.raises(BadStep, match="no name"):
            ctx.step(lambda: 1)

    job = await run_all(forge, await work.aenqueue())
    assert job.status is JobStatus.DONE, job.error
    assert len(refused) == 3


async def test_no_name_is_that_of_another_name_with_a_key(forge: Forge) -> None:
    names = [f"fetch{separator}a" for separator in ("", "-", ":", " ", "/", "|", "[", ".", "_")]

    @forge.task
    async def work(ctx: Context) -> dict[str, str]:
        values = {name: await ctx.step(name, str, name) for name in [*names, "fetch[a]"]}
        return values | {"key": await ctx.step.using(key="a")("fetch", str, "key")}

    job = await run_all(forge, await work.aenqueue())
    assert await job.aresult(timeout=0) == {name: name for name in [*names, "fetch[a]", "key"]}


async def test_whole_numbers_are_keys_by_their_digits(forge: Forge) -> None:
    @forge.task
    async def work(ctx: Context) -> None:
        await ctx.step.using(key=7)("fetch", abs, 7)
        await ctx.step.using(key="7")("fetch", abs, 8)

    assert "fetch[7]' is called twice in one run" in await failure(forge, work)


async def test_a_key_of_an_open_step_is_refused(forge: Forge) -> None:
    @forge.task(max_attempts=1)
    async def work(ctx: Context) -> None:
        first = ctx.step.using(key="x")("fetch", abs, 1)
        try:
            ctx.step.using(key="x")("fetch", abs, 2)
        finally:
            first.close()

    assert "each call of a name needs a key of its own" in await failure(forge, work)
