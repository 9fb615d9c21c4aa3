"""Two versions of an application side by side: a job that one worker refuses runs on the other."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from forge_jobs import Context, Forge, Job, JobStatus, Retry
from forge_jobs.config import EngineSettings
from forge_jobs.core.decide import Budgets
from forge_jobs.core.status import is_terminal

WAIT_S = 30.0


async def ended(jobs: list[Job[Any]], *, within_s: float = WAIT_S) -> list[JobStatus]:
    """The states of the jobs once all have ended, or after that time."""
    clock = asyncio.get_running_loop().time
    end = clock() + within_s
    while True:
        states = [(await job.arefresh()).status for job in jobs]
        if all(is_terminal(state) for state in states) or clock() > end:
            return states
        await asyncio.sleep(0.05)


async def until(check: Callable[[], Awaitable[bool]], *, within_s: float = WAIT_S) -> None:
    clock = asyncio.get_running_loop().time
    end = clock() + within_s
    while not await check():
        assert clock() < end, "it did not happen in time"
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("form", ["async def", "def"])
async def test_u4_a_new_optional_argument_waits_for_a_new_worker(
    shared_url: str, form: str
) -> None:
    """Also row 58 of the parity page (P58)."""
    async with Forge(shared_url) as old, Forge(shared_url) as new:
        got: list[tuple[str, str]] = []
        if form == "async def":

            @old.task(kind="send", queue="mail")
            async def send_old(to: str) -> None:
                got.append((to, ""))

            @new.task(kind="send", queue="mail")
            async def send(to: str, cc: str = "") -> None:
                got.append((to, cc))
        else:

            @old.task(kind="send", queue="mail")
            def send_old(to: str) -> None:
                got.append((to, ""))

            @new.task(kind="send", queue="mail")
            def send(to: str, cc: str = "") -> None:
                got.append((to, cc))

        async with old.worker(queues=["mail"]):
            job = await send.aenqueue("a", cc="b")

            async def is_put_off() -> bool:
                await job.arefresh()
                return job.error is not None

            await until(is_put_off)
            assert job.status in (JobStatus.SCHEDULED, JobStatus.PENDING, JobStatus.RUNNING)
            assert (job.attempts, got) == (0, [])
            assert "unknown argument 'cc'" in (job.error or "")
            assert "waits for a worker of another version" in (job.error or "")
            async with new.worker(queues=["mail"]):
                jobs = [job, *await send.aenqueue_many([("a", str(n)) for n in range(50)])]
                jobs += await send_old.aenqueue_many([(str(n),) for n in range(50)])
                assert await ended(jobs) == [JobStatus.DONE] * 101
                assert len(got) == 101
                assert all([(await each.arefresh()).attempts == 1 for each in jobs])


async def test_u4_a_renamed_argument_is_run_by_the_version_that_has_it(shared_url: str) -> None:
    async with Forge(shared_url) as old, Forge(shared_url) as new:
        got: list[str] = []

        @old.task(kind="send", queue="mail")
        async def send_old(to: str) -> None:
            got.append(f"old {to}")

        @new.task(kind="send", queue="mail")
        async def send_new(recipient: str) -> None:
            got.append(f"new {recipient}")

        async with old.worker(queues=["mail"]), new.worker(queues=["mail"]):
            jobs: list[Job[Any]] = []
            for n in range(20):
                jobs += [await send_old.aenqueue(str(n)), await send_new.aenqueue(str(n))]
            assert await ended(jobs) == [JobStatus.DONE] * 40
            assert sorted(got) == sorted(f"{v} {n}" for v in ("old", "new") for n in range(20))


async def test_u4_a_value_of_another_type_waits_only_for_another_signature(
    shared_url: str,
) -> None:
    async with Forge(shared_url) as old, Forge(shared_url) as new:

        @old.task(kind="count", queue="mail")
        async def count_old(number: int) -> None: ...

        @new.task(kind="count", queue="mail")
        async def count(number: int | str) -> None: ...

        async with old.worker(queues=["mail"]):
            alone = await count.aenqueue("three")
            assert await ended([alone]) == [JobStatus.DEAD]
            assert alone.attempts == 1
            assert "expected `int`, got `str`" in (alone.error or "").lower()
            async with new.worker(queues=["mail"]):
                jobs = await count.aenqueue_many([(str(n),) for n in range(30)])
                assert await ended(jobs) == [JobStatus.DONE] * 30


async def test_u4_arguments_that_no_living_worker_takes_are_dead_at_the_end_of_the_budget(
    shared_url: str,
) -> None:
    short = EngineSettings(budgets=Budgets(missing_s=1.0))
    async with Forge(shared_url, settings=short) as old, Forge(shared_url) as new:

        @old.task(kind="send", queue="mail")
        async def send_old(to: str) -> None: ...

        @new.task(kind="send", queue="mail")
        async def send(to: str, cc: str = "") -> None: ...

        async with old.worker(queues=["mail"]):
            job = await send.aenqueue("a", cc="b")
            assert await ended([job]) == [JobStatus.DEAD]
            assert job.attempts == 1
            assert "unknown argument 'cc'" in (job.error or "")


async def test_u4_bad_arguments_raised_by_the_handler_itself_are_an_ordinary_failure(
    any_url: str,
) -> None:
    async with Forge(any_url) as forge:

        @forge.task(queue="mail")
        async def inner(to: str) -> None: ...

        @forge.task(queue="mail", max_attempts=2, retry=Retry(base=0.01, max=0.01))
        async def outer() -> None:
            await inner.aenqueue(nobody="x")  # type: ignore[call-arg]

        async with forge.worker(queues=["mail"]):
            job = await outer.aenqueue()
            assert await ended([job]) == [JobStatus.DEAD]
            assert job.attempts == 2


class Echo:
    """A registered handler object."""

    kind = "echo"

    async def run(self, ctx: Context, payload: Any) -> Any:
        return payload


@pytest.mark.parametrize("form", ["async def", "def", "handler"])
async def test_r9_a_new_kind_is_handed_on_within_seconds(shared_url: str, form: str) -> None:
    async with Forge(shared_url) as old, Forge(shared_url) as new:

        @old.task(queue="mail")
        async def other() -> None: ...

        if form == "handler":
            new.register(Echo(), queue="mail")
        elif form == "def":

            @new.task(kind="echo", queue="mail")
            def echo_def(n: int) -> int:
                return n
        else:

            @new.task(kind="echo", queue="mail")
            async def echo(n: int) -> int:
                return n

        async with old.worker(queues=["mail"]), new.worker(queues=["mail"]):
            jobs: list[Job[Any]] = []
            for n in range(100):
                jobs.append(await new.aenqueue("echo", {"n": n}))
                await asyncio.sleep(0.01)
            assert await ended(jobs, within_s=10.0) == [JobStatus.DONE] * 100


async def test_u4_a_schedule_without_a_new_required_argument_waits_for_an_old_worker(
    shared_url: str,
) -> None:
    async with Forge(shared_url) as old, Forge(shared_url) as new:

        @old.cron("@yearly", name="report")
        @old.task(kind="report", queue="mail")
        async def report_old() -> None: ...

        @new.task(kind="report", queue="mail")
        async def report(month: int) -> None: ...

        async with old.worker(queues=["mail"]):
            pass
        async with new.worker(queues=["mail"]):
            job = await new.schedules.atrigger("report")

            async def is_put_off() -> bool:
                await job.arefresh()
                return "missing argument 'month'" in (job.error or "")

            await until(is_put_off)
            assert job.attempts == 0
            async with old.worker(queues=["mail"]):
                assert await ended([job]) == [JobStatus.DONE]


async def test_u4_a_successor_of_a_new_version_waits_for_a_new_worker(shared_url: str) -> None:
    """Only the old version serves the queue of the successors at first: it refuses them."""
    async with Forge(shared_url) as old, Forge(shared_url) as new:
        got: list[str] = []

        @old.task(kind="send", queue="mail")
        async def send_old(to: str) -> None:
            got.append(f"{to} -")

        @new.task(kind="send", queue="mail")
        async def send(to: str, cc: str = "") -> None:
            got.append(f"{to} {cc}")

        @new.task(kind="begin", queue="front")
        async def begin(to: str, ctx: Context) -> None:
            ctx.on_done(send, to, cc="x")

        async with old.worker(queues=["mail"]), new.worker(queues=["front"]):
            jobs = [await begin.aenqueue(str(n)) for n in range(20)]
            assert await ended(jobs) == [JobStatus.DONE] * 20

            async def are_put_off() -> bool:
                sends = [job async for job in new.jobs(kind="send")]
                refused = [job for job in sends if "unknown argument 'cc'" in (job.error or "")]
                return len(refused) == 20

            await until(are_put_off)
            sends = [job async for job in new.jobs(kind="send")]
            assert [job.attempts for job in sends] == [0] * 20
            async with new.worker(queues=["mail"]):
                assert await ended(list(sends)) == [JobStatus.DONE] * 20
        assert sorted(got) == sorted(f"{n} x" for n in range(20))
