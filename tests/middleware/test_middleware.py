"""Hooks around enqueue and run: order, changes, errors, and that none leaves a job behind."""

import asyncio
import importlib.util
import re
import sqlite3
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from forge_jobs import (
    BadOption,
    Context,
    Dead,
    DeadJob,
    EnqueueOutcome,
    EnqueueRequest,
    Forge,
    JobStatus,
    NewJob,
    Retry,
    Snooze,
)
from forge_jobs.core.selection import Filter
from forge_jobs.kit.hooks import Hooks
from forge_jobs.store.store import Store

_ALL = Filter()
Jobs = Generator[NewJob, EnqueueOutcome, None]
Runs = Generator[None, None, None]


@pytest.fixture
def forge() -> Generator[Forge, None, None]:
    made = Forge("memory://")
    yield made
    made.close()


async def test_run_hooks_nest_in_order_around_coroutines_and_functions(forge: Forge) -> None:
    told: list[str] = []

    @forge.task()
    def plain() -> None:
        told.append("plain")

    @forge.around_run
    def first(ctx: Context) -> Runs:
        told.append(f"first {ctx.job.kind}")
        yield
        told.append("first after")

    @forge.around_run
    async def second(ctx: Context) -> AsyncGenerator[None, None]:
        await asyncio.sleep(0)
        told.append("second")
        yield
        told.append("second after")

    @forge.task()
    async def coroutine(ctx: Context) -> int:
        told.append("coroutine")
        return 7

    job = await coroutine.aenqueue()
    await forge.drain()
    assert told == ["first coroutine", "second", "coroutine", "second after", "first after"]
    assert await job.aresult() == 7
    told.clear()
    await plain.aenqueue()
    await forge.drain()
    assert told == ["first plain", "plain", "first after"]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ValueError("broken hook"), JobStatus.FAILED),
        (Dead("no more"), JobStatus.DEAD),
        (Snooze(60), JobStatus.SCHEDULED),
    ],
)
@pytest.mark.parametrize("is_async", [True, False])
async def test_A1_an_error_in_a_hook_is_the_outcome_of_the_job(
    forge: Forge, when: str, error: Exception, status: JobStatus, is_async: bool
) -> None:
    @forge.around_run
    def broken(ctx: Context) -> Runs:
        if when == "before":
            raise error
        yield
        raise error

    if is_async:

        @forge.task(kind="work")
        async def work() -> None: ...
    else:

        @forge.task(kind="work")
        def work() -> None: ...

    job = await forge.aenqueue("work")
    report = await forge.drain()
    record = await job.arefresh()
    assert record.status is status
    assert report.ran == 1
    if status is JobStatus.FAILED:
        found = await forge.store.jobs.get(job.id)
        assert found is not None
        assert "broken hook" in str(found.last_error)


async def test_a_hook_sees_the_error_of_the_handler_and_may_replace_it(forge: Forge) -> None:
    seen: list[str] = []

    @forge.around_run
    def translate(ctx: Context) -> Runs:
        try:
            yield
        except KeyError as error:
            seen.append(repr(error))
            raise Dead("not there") from error

    @forge.task(retry=Retry(base="1s"))
    async def work() -> None:
        raise KeyError("x")

    job = await work.aenqueue()
    await forge.drain()
    assert (await job.arefresh()).status is JobStatus.DEAD
    assert seen == ["KeyError('x')"]


async def test_a_hook_that_never_yields_fails_the_job(forge: Forge) -> None:
    @forge.around_run
    def silent(ctx: Context) -> Runs:
        if ctx is None:
            yield

    @forge.task()
    async def work() -> None: ...

    job = await work.aenqueue()
    await forge.drain()
    found = await forge.store.jobs.get(job.id)
    assert found is not None
    assert found.status is JobStatus.FAILED
    assert "didn't yield" in str(found.last_error)


async def test_a_worker_runs_hooks_on_the_loop_and_in_threads(tmp_path: Path) -> None:
    forge = Forge(f"sqlite:///{tmp_path}/jobs.db")
    seen: list[str] = []

    @forge.around_run
    def note(ctx: Context) -> Runs:
        yield
        seen.append(ctx.job.kind)

    @forge.task(queue="q")
    async def on_loop() -> int:
        return 1

    @forge.task(queue="q")
    def in_thread() -> int:
        return 2

    async with forge.worker(queues=["q"]):
        jobs = [await on_loop.aenqueue(), await in_thread.aenqueue()]
        assert [await job.aresult(timeout=60) for job in jobs] == [1, 2]
    assert sorted(seen) == ["in_thread", "on_loop"]
    await forge.aclose()


async def test_enqueue_hooks_change_the_job_and_see_what_was_stored(forge: Forge) -> None:
    told: list[str] = []

    @forge.around_enqueue
    def outer(job: NewJob) -> Jobs:
        stored = yield msgspec.structs.replace(job, tags=(*job.tags, "outer"))
        told.append(f"outer {stored.id}")

    @forge.around_enqueue
    def inner(job: NewJob) -> Jobs:
        stored = yield msgspec.structs.replace(job, tags=(*job.tags, "inner"))
        told.append(f"inner {stored.duplicate}")

    @forge.task()
    async def work(n: int, ctx: Context) -> None:
        if n == 1:
            await ctx.aenqueue(work, 2)
            ctx.on_done(work, 3)

    job = await work.aenqueue(1)
    assert told == ["inner False", f"outer {job.id}"]
    await work.aenqueue_many([(4,), (5,)])
    await forge.aenqueue("work", {"n": 6})
    assert (await forge.drain()).ran == 6
    page = await forge.store.jobs.page(_ALL, limit=10)
    assert [record.tags for record in page.jobs] == [("outer", "inner")] * 6
    # The job of on_done is stored later, by the store: no hook runs.
    assert len(told) == 2 * 5


def test_enqueue_hooks_surround_synchronous_calls_and_transactions(tmp_path: Path) -> None:
    forge = Forge(f"sqlite:///{tmp_path}/jobs.db")

    @forge.task()
    def work() -> None: ...

    forge.ready()

    @forge.around_enqueue
    def mark(job: NewJob) -> Jobs:
        yield msgspec.structs.replace(job, priority=9)

    jobs = [work.enqueue(), *work.enqueue_many([(), ()])]
    connection = sqlite3.connect(tmp_path / "jobs.db")
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        jobs.append(work.using(tx=connection).enqueue())
    connection.close()
    for job in jobs:
        assert _priority(forge, job.id) == 9
    forge.close()


async def test_an_error_before_the_yield_refuses_the_job(forge: Forge) -> None:
    closed: list[str] = []

    @forge.around_enqueue
    def outer(job: NewJob) -> Jobs:
        try:
            yield job
        except ValueError as error:
            closed.append(str(error))
            raise

    @forge.around_enqueue
    def refuse(job: NewJob) -> Jobs:
        if b"13" in job.payload:
            raise ValueError("no thirteens")
        yield job

    @forge.task()
    async def work(n: int) -> None: ...

    with pytest.raises(ValueError, match="no thirteens"):
        await work.aenqueue_many([(1,), (13,)])
    assert (await forge.store.jobs.page(_ALL, limit=10)).jobs == ()
    assert closed == ["no thirteens"] * 2


async def test_A8_an_error_after_the_yield_does_not_hide_that_the_job_is_stored(
    forge: Forge, caplog: pytest.LogCaptureFixture
) -> None:
    @forge.around_enqueue
    def late(job: NewJob) -> Jobs:
        yield job
        raise RuntimeError("too late")

    @forge.task()
    async def work() -> None: ...

    job = await work.aenqueue()
    assert (await job.arefresh()).status is JobStatus.PENDING
    assert "the call is not undone" in caplog.text


async def test_hooks_see_a_failed_call() -> None:
    told: list[str] = []

    def hook(job: int) -> Generator[int, str, None]:
        try:
            yield job
        except LookupError:
            told.append("lookup")
            raise

    around: Hooks[int, str] = Hooks()
    around.hooks.append(hook)

    def fail(items: object) -> list[str]:
        raise LookupError

    with pytest.raises(LookupError):
        around.call([1, 2], fail)
    assert told == ["lookup", "lookup"]
    assert around.call([1], lambda items: [str(item) for item in items]) == ["1"]
    assert around.prepared(3) == 3


@pytest.mark.parametrize("hook", [lambda ctx: None, 7, print])
def test_what_is_no_hook_is_refused(forge: Forge, hook: Any) -> None:
    with pytest.raises(BadOption, match="yield"):
        forge.around_run(hook)
    with pytest.raises(BadOption, match="yield"):
        forge.around_enqueue(hook)


async def test_the_example_of_the_page_runs(project_root: Path, tmp_path: Path) -> None:
    text = (project_root / "docs" / "middleware.md").read_text()
    [code] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    file = tmp_path / "hooks_example.py"
    file.write_text(code)
    spec = importlib.util.spec_from_file_location("hooks_example", file)
    assert spec is not None
    assert spec.loader is not None
    example: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    token = example.tenant.set("acme")
    job = await example.invoice.aenqueue(7)
    example.tenant.reset(token)
    await example.forge.drain()
    assert await job.aresult() == "acme gets invoice 7"
    assert example.seen == [f"stored {job.id}"]
    await example.forge.aclose()


def _priority(forge: Forge, job_id: str) -> int | None:
    found = forge.client.access.run(lambda store: store.jobs.get(job_id))
    return None if found is None else found.priority


async def test_hooks_see_jobs_of_every_way_in(any_url: str) -> None:
    """By kind from a handler, with a finish, by a schedule, by its trigger and by a runtime."""
    forge = Forge(any_url)

    @forge.around_enqueue
    def mark(job: NewJob) -> Jobs:
        yield msgspec.structs.replace(job, tags=(*job.tags, "marked"))

    @forge.task()
    async def told(way: str) -> None: ...

    @forge.task()
    async def start(ctx: Context) -> None:
        await ctx.aenqueue("told", way="by kind")
        ctx.on_done("told", {"way": "on done"})

    await start.aenqueue()
    store = await forge.aready()
    await forge.schedules.acreate("now", "0 0 1 1 *", told, payload={"way": "trigger"})
    await forge.schedules.atrigger("now")
    await forge.schedules.acreate("often", "* * * * * *", told, payload={"way": "tick"})
    async with forge.worker(queues=["default"]) as handle:
        await handle.enqueue(EnqueueRequest(kind="told", payload={"way": "request"}))
        async with asyncio.timeout(60):
            while len(ways := await _ways(store)) < 5:
                await asyncio.sleep(0.05)
    assert set(ways) == {"by kind", "on done", "trigger", "tick", "request"}
    assert all("marked" in tags for tags in ways.values())
    await forge.aclose()


async def _ways(store: Store) -> dict[str, tuple[str, ...]]:
    page = await store.jobs.page(Filter(kind="told"), limit=100)
    return {msgspec.json.decode(job.payload)["way"]: job.tags for job in page.jobs}


async def test_a_hook_that_refuses_a_tick_disables_nothing(forge: Forge) -> None:
    refused: list[str] = []

    @forge.around_enqueue
    def refuse(job: NewJob) -> Jobs:
        if not refused:
            refused.append(job.kind)
            raise BadOption("not now")
        yield job

    @forge.task()
    async def tick() -> None: ...

    await forge.schedules.acreate("often", "* * * * * *", tick, missed="all")
    async with forge.worker(queues=["default"]):
        async with asyncio.timeout(60):
            while not [one for one in await forge.schedules.ahistory("often") if one.job_id]:
                await asyncio.sleep(0.05)
    assert refused == ["tick"]
    assert (await forge.schedules.aget("often")).enabled


async def test_the_marks_of_a_dead_job_reach_its_successor(forge: Forge) -> None:
    @forge.around_enqueue
    def mark(job: NewJob) -> Jobs:
        yield msgspec.structs.replace(job, tags=(*job.tags, "tenant:7"))

    tags: list[tuple[str, ...]] = []

    @forge.task()
    async def alert(job: DeadJob, ctx: Context) -> None:
        tags.append(ctx.job.tags)

    @forge.task(on_dead=alert)
    async def fall() -> None:
        raise Dead("gone")

    await fall.aenqueue()
    await forge.drain()
    assert tags == [("tenant:7",)]
