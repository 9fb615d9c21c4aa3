"""The public interface as a type checker sees it; checked by test_typing.py, never run.

A line with a "wrong" remark at its end must be refused with that text; every other must pass.
"""

import sqlite3
from datetime import UTC, datetime
from typing import Any, assert_type

from forge_jobs import (
    AsyncTask,
    Context,
    Dead,
    DeadJob,
    Forge,
    Job,
    JobStatus,
    Retry,
    Snooze,
    testing,
)

forge = Forge()


@forge.task
def report_dead(job: DeadJob) -> None: ...


@forge.task(
    kind="send",
    queue="mail",
    max_attempts=5,
    timeout="30s",
    soft_timeout="25s",
    retry=Retry(base="15s", max="1h", jitter=0.1, only=(IOError,), never=(ValueError,)),
    scopes=["smtp"],
    on_dead=report_dead,
)
async def send(to: str, subject: str = "hi", *, copies: int = 1) -> int:
    if not to:
        raise Dead("nobody to send to")
    if copies > 9:
        raise Snooze("10m")
    return copies


@forge.cron("0 9 * * mon-fri", tz="Europe/Paris", missed="once", overlap="skip", jitter="5m")
@forge.cron("@hourly", name="hourly")
@forge.task()
async def report(days: int = 1) -> str:
    return str(days)


report.enqueue(days="a week")  # wrong: cannot be assigned to parameter "days"
forge.cron("@daily", missed="never")(report)  # wrong: cannot be assigned to parameter "missed"
forge.schedules.edit("report", expression="@daily", queue=None)
forge.schedules.create("nightly", "@daily", report, payload={"days": 7})


@forge.task(queue="video", cpu=True)
def encode(path: str) -> str:
    return path


@forge.task
async def context_first(ctx: Context, to: str) -> bytes:
    ctx.progress(0.5, "half")
    ctx.log.info("sending %s", to)
    ctx.on_done(send, to, subject="done")
    await ctx.aenqueue(encode, "a.mp4")
    assert_type(ctx.job.attempts, int)
    return b""


@forge.task()
async def context_last(to: str, subject: str, ctx: Context) -> int:
    return len(to) + len(subject) + ctx.job.attempts


@forge.task
def context_by_name(to: str, *, ctx: Context) -> int:
    return len(to) + ctx.job.attempts


@forge.task
def anything(first: Any, second: str) -> None: ...


typed: AsyncTask[..., int] = send


def from_sync_code(connection: sqlite3.Connection) -> None:
    job = send.enqueue("a@b.c", subject="hi", copies=2)
    assert_type(job, Job[int])
    assert_type(job.id, str)
    assert_type(job.duplicate, bool)
    assert_type(job.result(timeout=10), int)
    assert_type(job.refresh().status, JobStatus)
    assert_type(job.cancel(), bool)
    assert_type(encode("a.mp4"), str)
    assert_type(encode.enqueue(path="a.mp4").result("1m"), str)
    send.enqueue_many([("a@b.c", "x"), {"to": "b@b.c"}])
    later = send.using(delay="10m", priority=-5, dedupe_key="k", dedupe_for="48h", tags=["vip"])
    assert_type(later.enqueue("a@b.c"), Job[int])
    send.using(run_at=datetime.now(UTC), tx=connection).enqueue("a@b.c")
    assert_type(forge.enqueue("send", {"to": "a@b.c"}, queue="mail"), Job[Any])

    send.enqueue(1)  # wrong: cannot be assigned to parameter "to" of type "str"
    send.enqueue()  # wrong: Argument missing for parameter "to"
    send.enqueue("a", "b", "c")  # wrong: Expected 2 positional arguments
    send.enqueue("a", subjct="x")  # wrong: No parameter named "subjct"
    send.enqueue("a", delay="10m")  # wrong: No parameter named "delay"
    later.enqueue(None)  # wrong: cannot be assigned to parameter "to"
    send.using(dely="10m")  # wrong: No parameter named "dely"
    send.using(priority="high")  # wrong: cannot be assigned to parameter "priority"
    encode.enqueue(b"a")  # wrong: cannot be assigned to parameter "path"
    encode(5)  # wrong: cannot be assigned to parameter "path"


async def from_async_code() -> None:
    job = await send.aenqueue("a@b.c", "hi")
    assert_type(await job.aresult(timeout=10), int)
    assert_type((await job.arefresh()).attempts, int)
    assert_type(await send("a@b.c"), int)
    await job.acancel()
    assert_type(await (await context_first.aenqueue("a")).aresult(), bytes)
    await context_last.aenqueue("a@b.c", subject="hi")
    context_by_name.enqueue("a@b.c")
    anything.enqueue(object(), "x")
    await send.aenqueue(to=b"")  # wrong: cannot be assigned to parameter "to"
    await context_first.aenqueue(5)  # wrong: cannot be assigned to parameter "to"
    await context_first.aenqueue("a", ctx=None)  # wrong: No parameter named "ctx"

    async with forge.worker(queues=["mail", "video:2"]) as handle:
        assert_type(handle.host_id, str)
        assert_type(handle.request_cancel(job.id), bool)
    assert_type((await forge.drain()).done, int)


@forge.task(queu="mail")  # wrong: No overloads for "__call__" match
def misspelt() -> None: ...


def in_tests() -> None:
    with testing.inline(forge), testing.frozen(forge) as time:
        send.enqueue("a@b.c")
        assert_type(time.advance("1h"), datetime)
    assert_type(testing.assert_enqueued(forge, send, {"to": "a@b.c"}), list[Job[Any]])
