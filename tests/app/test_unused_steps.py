"""Steps that the run that ended a job did not use: those that its code no longer calls."""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from forge_jobs import Context, Dead, Forge, JobStatus, testing
from forge_jobs.core.steps import MAX_CLAIMED_STEPS, StepKind
from forge_jobs.ops import steps
from forge_jobs.ops.event_actions import EventActions

Handler = Callable[[Context], Any]


class Deploy(Exception):
    """Ends a run; the next one has other code."""


class Deploys:
    """A job whose code changes between its runs: ``run(handler)`` claims it once and runs that."""

    def __init__(self, forge: Forge, max_attempts: int = 9) -> None:
        self.forge = forge
        self.job: Any = None
        self.days = 0

        @forge.task(max_attempts=max_attempts)
        async def work(ctx: Context) -> Any:
            return await self.handler(ctx)

        self.work = work

    async def run(self, handler: Handler) -> JobStatus:
        self.handler = handler
        if self.job is None:
            self.job = await self.work.aenqueue()
        with testing.frozen(self.forge) as time:
            self.days, self.time = self.days + 1, time
            time.advance(f"{self.days}d")
            await self.forge.drain()
        await self.job.arefresh()
        return self.job.status

    async def note(self, name: str) -> str:
        """The function of the steps: no two begin in the same microsecond."""
        self.time.advance("1s")
        return name

    async def unused(self) -> list[str]:
        """The names of unused steps; the handle and the pages agree."""
        page = await steps.job_steps(await self.forge.aready(), self.job.id)
        names = [step.name for step in page.steps if step.unused]
        assert names == [step.name for step in await self.job.asteps() if step.unused]
        assert page.unused == len(names)
        return names

    async def kinds(self) -> list[StepKind]:
        store = await self.forge.aready()
        return [one.kind for one in await store.steps.page(self.job.id)]

    def calling(self, *names: str, end: type[Exception] | None = None) -> Handler:
        """A handler that calls these steps one after the other; ``zzz`` sleeps, ``ev`` waits."""

        async def handler(ctx: Context) -> int:
            for name in names:
                if name == "zzz":
                    await ctx.sleep("1h")
                elif name.startswith("ev"):
                    await ctx.wait_for(name, timeout="90d" if name == "ev" else "1h", default=0)
                else:
                    await ctx.step(name, self.note, name)
            if end is not None:
                raise end("the end")
            return len(names)

        return handler


async def test_a_deploy_that_renames_and_removes_steps_marks_them_druks_619(forge: Forge) -> None:
    work = Deploys(forge)
    assert await work.run(work.calling("a", "b", "c", "d", end=Deploy)) is JobStatus.FAILED
    assert await work.unused() == []
    # While it waits, a later part of the new code may still use them.
    assert await work.run(work.calling("a", "renamed", "d", "ev")) is JobStatus.SUSPENDED
    assert await work.unused() == []
    await work.job.asend("ev")
    assert await work.run(work.calling("a", "renamed", "d", "ev")) is JobStatus.DONE
    assert await work.unused() == ["b", "c"]
    values = {step.name: step.value for step in await work.job.asteps()}
    assert values.keys() == {"a", "b", "c", "d", "renamed", "wait:ev"}


async def test_removed_sleeps_and_waits_are_marked(forge: Forge) -> None:
    work = Deploys(forge)
    await work.run(work.calling("a", "zzz", "ev2", "b"))
    await work.run(work.calling("a", "zzz", "ev2", "b", end=Deploy))
    assert await work.run(work.calling("a", "zzz", "ev2", "b", end=Deploy)) is JobStatus.FAILED
    assert await work.run(work.calling("a", "b")) is JobStatus.DONE
    assert await work.unused() == ["sleep", "wait:ev2"]


async def test_nothing_is_stored_when_all_was_used(forge: Forge) -> None:
    work = Deploys(forge)
    await work.run(work.calling("a", "zzz", "b", end=Deploy))
    await work.run(work.calling("a", "zzz", "b", end=Deploy))
    assert await work.run(work.calling("a", "zzz", "b")) is JobStatus.DONE
    assert StepKind.UNUSED not in await work.kinds()
    work.job = None
    assert await work.run(work.calling("a")) is JobStatus.DONE
    assert await work.kinds() == [StepKind.STEP]


async def test_a_version_without_steps_uses_none(forge: Forge) -> None:
    work = Deploys(forge)
    await work.run(work.calling("a", "b", end=Deploy))
    assert await work.run(work.calling()) is JobStatus.DONE
    assert await work.unused() == ["a", "b"]


async def test_a_run_that_dies_names_only_what_it_passed(forge: Forge) -> None:
    work = Deploys(forge)
    await work.run(work.calling("a", "b", "c", "d", end=Deploy))
    # It passed b: it has used c, which began later. Whether it uses d nobody knows.
    assert await work.run(work.calling("a", "c", "new", end=Dead)) is JobStatus.DEAD
    assert await work.unused() == ["b"]


async def test_a_later_run_decides_anew(forge: Forge) -> None:
    work = Deploys(forge)
    await work.run(work.calling("a", "b", "c", end=Deploy))
    await work.run(work.calling("a", "c", end=Dead))
    assert await work.unused() == ["b"]
    await work.job.aretry()
    await work.job.arefresh()
    assert await work.unused() == []
    assert await work.run(work.calling("a", "b", "c", "ev")) is JobStatus.SUSPENDED
    assert await work.unused() == []
    # That run used b, and an operator ends the job: nothing is known of what would have followed.
    await work.job.acancel()
    await work.job.arefresh()
    assert work.job.status is JobStatus.CANCELLED
    assert await work.unused() == []
    await work.job.aretry()
    assert await work.run(work.calling("b", "c", "new")) is JobStatus.DONE
    assert await work.unused() == ["a"]


async def test_a_run_that_is_told_to_stop_marks_nothing(forge: Forge) -> None:
    work = Deploys(forge, max_attempts=2)
    await work.run(work.calling("a", "b", "c", end=Deploy))
    assert await work.run(work.calling("a", "b", "c", end=Deploy)) is JobStatus.FAILED
    passed_b = asyncio.Event()

    async def long(ctx: Context) -> None:
        for name in "ac":
            await ctx.step(name, work.note, name)
        passed_b.set()
        await asyncio.sleep(600)

    work.handler = long
    await work.job.arun_now()
    async with forge.worker(queues=["default"]):
        await passed_b.wait()
        await work.job.acancel()
        while not (await work.job.arefresh()).ended:
            await asyncio.sleep(0.02)
    assert work.job.status is JobStatus.CANCELLED
    assert StepKind.UNUSED not in await work.kinds()


async def test_a_retry_from_a_step_forgets_what_was_said(forge: Forge) -> None:
    work = Deploys(forge)
    await work.run(work.calling("a", "b", "c", end=Deploy))
    await work.run(work.calling("a", "c", end=Dead))
    store = await forge.aready()
    done = await EventActions(store, actor="ada").retry_from(work.job.id, "c")
    assert (done.deleted, done.kept) == (1, 2)
    assert StepKind.UNUSED not in await work.kinds()
    assert await work.run(work.calling("a", "b", "c")) is JobStatus.DONE
    assert await work.unused() == []


async def test_a_restart_begins_without_them(forge: Forge) -> None:
    work = Deploys(forge)
    await work.run(work.calling("a", "b", end=Deploy))
    rounds = 0

    async def restarting(ctx: Context) -> None:
        nonlocal rounds
        rounds += 1
        await ctx.step("a", len, "a")
        if rounds == 1:
            raise ctx.restart()

    assert await work.run(restarting) is JobStatus.DONE
    assert rounds == 2
    assert await work.unused() == []
    assert await work.kinds() == [StepKind.STEP]


async def test_steps_that_the_run_did_not_even_read_are_marked(forge: Forge) -> None:
    work = Deploys(forge)
    count = MAX_CLAIMED_STEPS + 20

    def noting(*names: str) -> Handler:
        async def handler(ctx: Context) -> None:
            for name in names:
                batch = (ctx.step.using(key=n)(name, abs, n) for n in range(count))
                await asyncio.gather(*batch)
            if len(names) > 1:
                raise Deploy

        return handler

    await work.run(noting("a", "note"))
    assert await work.run(noting("a")) is JobStatus.DONE
    page = await steps.job_steps(await forge.aready(), work.job.id, offset=count - 1, limit=1_000)
    assert page.unused == count
    assert [step.unused for step in page.steps] == [False] + [True] * 999
    assert sum(step.unused for step in await work.job.asteps()) == count


def test_handlers_in_threads_have_them_too(forge: Forge) -> None:
    names = ["a", "b", "c"]

    @forge.task(max_attempts=2)
    def work(ctx: Context) -> None:
        for name in names:
            ctx.step_sync(name, len, name)
        if len(names) == 3:
            raise Deploy

    job = work.enqueue()
    with testing.frozen(forge) as time:
        asyncio.run(forge.drain())
        names.remove("b")
        time.advance("1d")
        asyncio.run(forge.drain())
    job.refresh()
    assert job.status is JobStatus.DONE
    assert [step.name for step in job.steps() if step.unused] == ["b"]


APP = """
import asyncio
from pathlib import Path
from forge_jobs import Context, Forge, Retry

HERE = Path(__file__).parent
forge = Forge(f"sqlite:///{HERE}/jobs.db")

@forge.task(cpu=True, max_attempts=2, retry=Retry(base="10ms"))
def work(ctx: Context) -> None:
    is_new = (HERE / "new").exists()
    for name in "ac" if is_new else "abc":
        ctx.step_sync(name, len, name)
    if not is_new:
        (HERE / "new").touch()
        raise RuntimeError("deploy")

async def main() -> None:
    async with forge.worker(queues=["default"]):
        job = await work.aenqueue()
        await job.aresult(timeout=60)
        print([step.name for step in await job.asteps() if step.unused])
    await forge.aclose()

if __name__ == "__main__":
    asyncio.run(main())
"""


@pytest.mark.processes
def test_handlers_in_child_processes_have_them_too(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    done = subprocess.run(
        [sys.executable, "app.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "['b']\n"), done.stderr
