"""The context of a handler: what it reads and what it reports."""

import asyncio
import logging
import threading
from datetime import UTC, datetime
from typing import Any

import pytest

from forge_jobs.core.errors import BadOption
from forge_jobs.core.job import NewJob
from forge_jobs.core.status import JobStatus
from forge_jobs.engine.running.context import Context
from tests.engine.rig import Rig, until


class Task:
    """Stands for a task of the application."""

    def bind(self, *args: object, **kwargs: object) -> NewJob:
        return NewJob(kind="after", queue="q", payload=f'{{"n":{args[0]}}}'.encode())


async def test_the_job_as_its_handler_sees_it(rig: Rig) -> None:
    seen: list[Any] = []

    async def body(ctx: Context, given: Any) -> None:
        seen.append((ctx.job, ctx.host_id, ctx.cancelled))

    rig.on("work", body)
    async with rig.working() as handle:
        record = await rig.runs("work", {"a": 1}, tags=("vip",), max_attempts=3)
        (job, host_id, cancelled) = seen[0]
        assert (job.id, job.kind, job.queue) == (record.id, "work", "q")
        assert (job.attempts, job.max_attempts, job.tags) == (1, 3, ("vip",))
        assert abs((datetime.now(UTC) - job.enqueued_at).total_seconds()) < 60
        assert (host_id, cancelled) == (handle.host_id, False)


@pytest.mark.parametrize("where", ["loop", "thread"])
async def test_progress_and_log_lines_are_kept(
    rig: Rig, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "forge_jobs.job")

    def say(ctx: Context) -> None:
        ctx.progress(0.25, "a quarter")
        ctx.log.info("sending to %s", "a@b.c")
        ctx.log.warning("odd\0 postgres://me:secret@host/db")
        ctx.progress(0.5)

    async def on_loop(ctx: Context, given: Any) -> None:
        say(ctx)

    def in_thread(ctx: Context, given: Any) -> None:
        say(ctx)

    rig.on("work", on_loop if where == "loop" else in_thread)
    async with rig.working():
        record = await rig.runs("work")
        assert record.progress == 1.0
        lines = await rig.store.metrics.logs(record.id)
        assert [(line.level, line.message) for line in lines] == [
            ("info", "sending to a@b.c"),
            ("warning", "odd postgres://me:***@host/db"),
        ]
    (first, _) = [entry for entry in caplog.records if entry.name == "forge_jobs.job"]
    assert (first.kind, first.queue, first.job_id, first.attempts) == ("work", "q", record.id, 1)  # type: ignore[attr-defined]


async def test_notes_of_a_long_job_are_visible_while_it_runs(rig: Rig) -> None:
    release = asyncio.Event()

    async def body(ctx: Context, given: Any) -> None:
        ctx.progress(0.1, "begun")
        await release.wait()

    rig.on("work", body)
    async with rig.working():
        job_id = await rig.add("work")

        async def seen() -> bool:
            record = await rig.record(job_id)
            return (record.progress, record.progress_note) == (0.1, "begun")

        await until(seen)
        assert (await rig.record(job_id)).status is JobStatus.RUNNING
        release.set()
        await rig.reaches(job_id, JobStatus.DONE)


async def test_a_flood_of_lines_is_bounded(rig: Rig) -> None:
    async def body(ctx: Context, given: Any) -> None:
        for number in range(1_500):
            ctx.log.debug("line %d", number)

    rig.on("work", body)
    async with rig.working():
        record = await rig.runs("work")
        assert len(await rig.store.metrics.logs(record.id)) == 1_000


async def test_jobs_carried_by_a_success_are_stored_with_it(rig: Rig) -> None:
    async def body(ctx: Context, given: Any) -> None:
        ctx.on_done(Task(), 1)
        ctx.on_done("after", {"n": 2})
        ctx.on_done("after", n=3)
        if given.get("fails"):
            raise ValueError("no")

    seen: list[int] = []

    def after(ctx: Context, given: Any) -> None:
        seen.append(given["n"])

    rig.on("work", body)
    rig.on("after", after, queue="q")
    async with rig.working():
        assert (await rig.runs("work", {"fails": True})).status is JobStatus.FAILED
        assert (await rig.runs("work")).status is JobStatus.DONE
        await until(lambda: sorted(seen) == [1, 2, 3])
    assert await rig.counts() == {"done": 4, "failed": 1}


async def test_handlers_enqueue_from_the_loop_and_from_threads(rig: Rig) -> None:
    seen: list[int] = []

    async def on_loop(ctx: Context, given: Any) -> str:
        await ctx.aenqueue("after", {"n": 1})
        ctx.enqueue(Task(), 2)
        return "x"

    def in_thread(ctx: Context, given: Any) -> str:
        return ctx.enqueue("after", {"n": 3}).id

    rig.on("loop", on_loop)
    rig.on("thread", in_thread)
    rig.on("after", lambda ctx, given: seen.append(given["n"]), queue="q")
    async with rig.working():
        await rig.runs("loop")
        await rig.runs("thread")
        await until(lambda: sorted(seen) == [1, 2, 3])


async def test_bad_words_are_refused(rig: Rig) -> None:
    problems: list[str] = []

    async def body(ctx: Context, given: Any) -> None:
        for attempt in (
            lambda: ctx.progress(1.5),
            lambda: ctx.on_done("kind", {"a": 1}, {"b": 2}),
        ):
            try:
                attempt()
            except BadOption as error:
                problems.append(str(error))

    rig.on("work", body)
    async with rig.working():
        await rig.runs("work")
    assert len(problems) == 2


async def test_words_after_the_end_are_ignored(rig: Rig) -> None:
    kept: list[Context] = []

    async def body(ctx: Context, given: Any) -> None:
        kept.append(ctx)

    rig.on("work", body)
    async with rig.working():
        record = await rig.runs("work")
        kept[0].progress(0.9)
        kept[0].log.info("too late")
        await asyncio.sleep(0.4)
        assert (await rig.record(record.id)).progress is None
        assert await rig.store.metrics.logs(record.id) == []


async def test_threads_may_talk_at_the_same_time(rig: Rig) -> None:
    everyone = threading.Barrier(8)

    def body(ctx: Context, given: Any) -> None:
        everyone.wait(60)
        for number in range(50):
            ctx.log.info("%d", number)

    rig.on("work", body)
    ids = await rig.add_many("work", 8)
    async with rig.working({"q": 8}):
        for job_id in ids:
            await rig.reaches(job_id, JobStatus.DONE)
            lines = await rig.store.metrics.logs(job_id)
            assert [line.message for line in lines] == [str(number) for number in range(50)]
