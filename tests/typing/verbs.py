"""U18 and U16 as a type checker sees them; checked by test_typing.py, never run.

A line with a "wrong" remark at its end must be refused with that text; every other must pass.
"""

from collections.abc import Generator
from datetime import UTC, datetime
from typing import Any, assert_type

from forge_jobs import (
    BulkResult,
    Context,
    EnqueueOutcome,
    Forge,
    Job,
    JobStatus,
    NewJob,
    testing,
)

forge = Forge()


@forge.task(queue="mail")
async def send(to: str, subject: str = "hi", *, copies: int = 1) -> int:
    return copies


@forge.task
def first(ctx: Context, path: str, *, quality: int = 5) -> bytes:
    ctx.on_done(send, "a@b.c", copies=2)
    ctx.on_done(send.using(delay="10m"), "a@b.c")
    ctx.on_done("by-kind", {"anything": 1})
    ctx.on_done(send, 5)  # wrong: No overloads for "on_done"
    ctx.on_done(send)  # wrong: No overloads for "on_done"
    ctx.on_done(send, "a", subjct="x")  # wrong: No overloads for "on_done"
    assert_type(ctx.enqueue(send, "a@b.c"), EnqueueOutcome)
    ctx.enqueue(send, to=5)  # wrong: No overloads for "enqueue"
    assert_type(ctx.enqueue_many(send, [("a",), {"to": "b"}, send.bind("c")]), list[EnqueueOutcome])
    ctx.enqueue_many(5, [])  # wrong: cannot be assigned to parameter "task"
    return b""


@forge.task(queue="video", max_attempts=3)
async def first_async(ctx: Context, path: str) -> list[int]:
    assert_type(await ctx.aenqueue(first, "a.mp4", quality=3), EnqueueOutcome)
    await ctx.aenqueue(first, b"a.mp4")  # wrong: No overloads for "aenqueue"
    assert_type(await ctx.aenqueue_many(send, []), list[EnqueueOutcome])
    return []


def a_context_that_comes_first_keeps_the_other_parameters() -> None:
    assert_type(first.enqueue("a.mp4", quality=3), Job[bytes])
    assert_type(first_async.enqueue(path="a.mp4").result(), list[int])
    assert_type(first.bind("a.mp4"), NewJob)
    first.enqueue(5)  # wrong: cannot be assigned to parameter "path"
    first.enqueue("a", quality="high")  # wrong: cannot be assigned to parameter "quality"
    first.enqueue()  # wrong: Argument missing for parameter "path"
    first_async.enqueue("a", "b")  # wrong: Expected 1 positional argument
    first.using(priority=1).enqueue("a", qualty=1)  # wrong: No parameter named "qualty"


def many_calls_are_checked_by_bind() -> None:
    assert_type(send.enqueue_many([send.bind("a"), send.bind("b", copies=2)]), list[Job[int]])
    send.enqueue_many([send.bind(5)])  # wrong: cannot be assigned to parameter "to"
    send.enqueue_many(["a@b.c"])  # wrong: cannot be assigned to parameter "calls"


def options_are_typed() -> None:
    forge.task(queue="mail", priority=1, timeout="10s")
    forge.task(priority="high")  # wrong: cannot be assigned to parameter "priority"
    forge.task(order="sometimes")  # wrong: cannot be assigned to parameter "order"
    forge.run(["mail"], shutdown_timeout="30s", worker_id="one")
    forge.run(["mail"], shutdown_timout="30s")  # wrong: No parameter named "shutdown_timout"


def verbs() -> None:
    jobs = forge.jobs(queue="mail", kind=send, status=["dead", JobStatus.FAILED], since="2h")
    for job in jobs:
        assert_type(job, Job[Any])
        assert_type(job.ended, bool)
    assert_type(jobs.count(), int)
    assert_type(jobs.retry(), BulkResult)
    assert_type(jobs.retry().reasons, dict[str, int])
    assert_type(jobs.reschedule(at=datetime.now(UTC)), BulkResult)
    forge.jobs(stauts="dead")  # wrong: No parameter named "stauts"
    forge.jobs(since=datetime)  # wrong: cannot be assigned to parameter "since"
    job = send.enqueue("a")
    assert_type(job.retry().result(timeout=1), int)
    assert_type(job.reschedule("10m"), Job[int])
    assert_type(job.delete(), bool)
    assert_type(forge.drain().run().done, int)
    testing.reset(forge)


async def async_verbs() -> None:
    async for job in forge.jobs(tag="vip"):
        assert_type(job, Job[Any])
        assert_type(await job.arun_now(), Job[Any])
    assert_type(await forge.jobs().acount(), int)
    assert_type((await forge.jobs().acancel("no")).changed, int)
    assert_type((await forge.adrain()).done, int)


@forge.around_enqueue
def tagged(job: NewJob) -> Generator[NewJob, EnqueueOutcome, None]:
    yield job.replace(tags=("a",))
