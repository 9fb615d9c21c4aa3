"""A failed run that stored a step spends no attempt."""

from forge_jobs import Context, Forge, JobStatus, Retry
from tests.app.steps.runs import run_all


async def test_a_failed_run_that_stored_a_step_gives_its_attempt_back(forge: Forge) -> None:
    runs = 0

    @forge.task(max_attempts=2, retry=Retry(base="1s"))
    async def work(ctx: Context) -> int:
        nonlocal runs
        runs += 1
        for n in range(runs):
            await ctx.step.using(key=n)("n", abs, n)
        if runs < 6:
            raise RuntimeError(f"run {runs}")
        return runs

    job = await run_all(forge, await work.aenqueue())
    assert await job.aresult(timeout=0) == 6
    assert job.attempts == 1
    assert job.record.failed_runs == 5


async def test_without_progress_attempts_are_spent(forge: Forge) -> None:
    @forge.task(max_attempts=3, retry=Retry(base="1s"))
    async def work(ctx: Context) -> None:
        await ctx.step("once", abs, 1)
        raise RuntimeError("always")

    job = await run_all(forge, await work.aenqueue())
    assert job.status is JobStatus.DEAD
    # The first run stored a step, the three others did not.
    assert (job.attempts, job.record.failed_runs) == (3, 1)


async def test_max_attempts_one_never_gives_an_attempt_back(forge: Forge) -> None:
    runs = 0

    @forge.task(max_attempts=1)
    async def work(ctx: Context) -> None:
        nonlocal runs
        runs += 1
        await ctx.step("once", abs, 1)
        raise RuntimeError("always")

    job = await run_all(forge, await work.aenqueue())
    assert (job.status, job.attempts, job.record.failed_runs) == (JobStatus.DEAD, 1, 0)
    assert runs == 1


async def test_retry_total_bounds_the_failed_runs(forge: Forge) -> None:
    runs = 0

    @forge.task(max_attempts=2, retry=Retry(base="1s", total=4))
    async def work(ctx: Context) -> None:
        nonlocal runs
        runs += 1
        await ctx.step.using(key=runs)("n", abs, runs)
        raise RuntimeError("always")

    job = await run_all(forge, await work.aenqueue())
    assert job.status is JobStatus.DEAD
    assert runs in (4, 5)


async def test_a_hundred_failed_runs_are_the_limit_without_retry_total(forge: Forge) -> None:
    runs = 0

    @forge.task(max_attempts=2, retry=Retry(base="1s", jitter=0))
    async def work(ctx: Context) -> None:
        nonlocal runs
        runs += 1
        await ctx.step.using(key=runs)("n", abs, runs)
        raise RuntimeError("always")

    job = await run_all(forge, await work.aenqueue(), times=130)
    assert job.status is JobStatus.DEAD
    assert runs in (100, 101)
