"""What counts as a failure: exceptions, time limits, steps, and jobs of a pull queue."""

import asyncio
from pathlib import Path

from forge_jobs import Context, Forge, JobQueue, Retry


async def titles(forge: Forge) -> dict[str, int]:
    """The failures by title and frame of their group."""
    return {f"{group.title} @ {group.frame}": group.count async for group in forge.errors()}


async def test_every_attempt_counts_also_of_a_job_that_succeeds(forge: Forge) -> None:
    @forge.task(max_attempts=3, retry=Retry(delays=[0, 0]))
    async def send(number: int, ctx: Context) -> None:
        if ctx.job.attempts < 3:
            raise TimeoutError(f"try {ctx.job.attempts} of {number}")

    await send.aenqueue(7)
    await forge.adrain()
    assert await titles(forge) == {"TimeoutError: try <n> of <n> @ test_error_groups.py in send": 2}


async def test_a_time_limit_is_a_failure_where_the_handler_was(forge: Forge) -> None:
    @forge.task(timeout="20ms", max_attempts=1)
    async def slow() -> None:
        await wait_for_ever()

    await slow.aenqueue()
    await forge.adrain()
    assert await titles(forge) == {
        "timed out after <n> s @ test_error_groups.py in wait_for_ever": 1
    }


async def test_the_same_error_through_a_step_is_of_the_frame_of_its_function(forge: Forge) -> None:
    @forge.task(max_attempts=1)
    async def order(ctx: Context) -> None:
        await ctx.step("charge", charge)

    await order.aenqueue()
    await forge.adrain()
    assert await titles(forge) == {"LookupError: no card @ test_error_groups.py in charge": 1}


async def test_failures_of_a_pull_queue_count(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    with JobQueue.open(url, "scripts") as queue:
        for n in range(2):
            queue.enqueue("import", {"n": n})
            job = queue.dequeue()
            assert job is not None
            queue.fail(job, f"row {n} is bad")
    async with Forge(url) as forge:
        assert await titles(forge) == {"row <n> is bad @ ": 2}


async def charge() -> None:
    raise LookupError("no card")


async def wait_for_ever() -> None:
    await asyncio.sleep(3600)
