"""A deploy with other code: other names, other arguments, other types."""

import logging

import pytest

from forge_jobs import Context, Forge, JobStatus, testing
from tests.app.steps.runs import Calls, Charge, run_all

# Jobs in flight over the deploy.
IN_FLIGHT = 1_000


@pytest.mark.slow
async def test_a_deploy_that_inserts_renames_and_removes_a_step_druks_619(forge: Forge) -> None:
    count = IN_FLIGHT
    version = 1
    calls: Calls = []

    def note(name: str) -> str:
        calls.append(name)
        return name

    @forge.task(max_attempts=2)
    async def work(n: int, ctx: Context) -> list[str]:
        names = ("a", "b", "gone", "c") if version == 1 else ("new", "a", "renamed", "c")
        values = [await ctx.step(name, note, f"{name}{n}") for name in names]
        if version == 1:
            raise RuntimeError("deploy")
        return values

    jobs = await work.aenqueue_many([(n,) for n in range(count)])
    with testing.frozen(forge) as time:
        await forge.drain()
        version = 2
        time.advance("1d")
        await forge.drain()
    for n, job in enumerate(jobs):
        assert await job.aresult(timeout=0) == [f"new{n}", f"a{n}", f"renamed{n}", f"c{n}"]
    assert len(calls) == count * 4 + count * 2


async def test_changed_arguments_warn_once_and_keep_the_stored_value(
    forge: Forge, caplog: pytest.LogCaptureFixture
) -> None:
    tries = 0

    @forge.task(max_attempts=3)
    async def work(ctx: Context) -> int:
        nonlocal tries
        tries += 1
        value = await ctx.step("abs", abs, -tries)
        if tries < 2:
            raise RuntimeError("again")
        return value

    with caplog.at_level(logging.WARNING, "forge_jobs.job"):
        job = await run_all(forge, await work.aenqueue())
    assert await job.aresult(timeout=0) == 1
    warnings = [line for line in caplog.messages if "other arguments" in line]
    assert len(warnings) == 1
    assert [line.message for line in await job.alogs()] == warnings


async def test_on_change_dead_ends_the_job(forge: Forge) -> None:
    tries = 0

    @forge.task(max_attempts=5)
    async def work(ctx: Context) -> int:
        nonlocal tries
        tries += 1
        await ctx.step.using(on_change="dead")("abs", abs, -tries)
        raise RuntimeError("again")

    job = await run_all(forge, await work.aenqueue())
    assert job.status is JobStatus.DEAD
    assert "step 'abs' is called with other arguments" in str(job.error)
    assert tries == 2


async def test_a_stored_value_that_no_longer_fits_names_step_and_field(forge: Forge) -> None:
    tries = 0

    def old() -> dict[str, str]:
        return {"id": "x", "cents": "twelve"}

    def new() -> Charge:
        raise AssertionError("not called")

    @forge.task(max_attempts=2)
    async def work(ctx: Context) -> None:
        nonlocal tries
        tries += 1
        await ctx.step("charge", old if tries == 1 else new)
        raise RuntimeError("again")

    job = await run_all(forge, await work.aenqueue())
    error = str(job.error)
    assert "step 'charge'" in error
    assert "cents" in error
    assert "retry the job from this step" in error
