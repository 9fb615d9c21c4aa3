"""Jobs are linked to what enqueued them: handlers, on_done, on_dead, schedules. Others have no
link."""

import asyncio
from pathlib import Path

import pytest

from forge_jobs import Context, Dead, Forge
from forge_jobs.core.parent import Parent, Via, parent_of
from forge_jobs.core.selection import Filter
from forge_jobs.store.store import Store

CHILDREN = 40


async def links(store: Store, kind: str) -> list[Parent | None]:
    """The links of all jobs of a kind, oldest first."""
    page = await store.jobs.page(Filter(kind=kind), limit=100)
    return [parent_of(job.options) for job in reversed(page.jobs)]


async def test_every_way_to_enqueue_in_a_handler_links_the_jobs(any_url: str) -> None:
    forge = Forge(any_url)

    @forge.task
    async def note(text: str) -> None: ...

    @forge.task
    async def letter(job: object) -> None: ...

    @forge.task
    async def begin(ctx: Context) -> str:
        await note.aenqueue("by task")
        await ctx.aenqueue(note, "by context")
        await asyncio.create_task(note.aenqueue("by a task of asyncio"))
        await note.aenqueue_many([("many",), ("more",)])
        ctx.on_done(note, "after")
        return ctx.job.id

    @forge.task
    def begin_in_thread(ctx: Context) -> str:
        ctx.enqueue(note, "in a thread")
        note.enqueue("by task in a thread")
        return ctx.job.id

    @forge.task(on_dead=letter, max_attempts=1)
    async def doomed() -> None:
        raise Dead("lost")

    first, second = await begin.aenqueue(), await begin_in_thread.aenqueue()
    third = await doomed.aenqueue()
    await note.aenqueue("by nobody")
    await forge.adrain()
    store = await forge.aready()
    handler = Parent(Via.HANDLER, job_id=first.id)
    in_thread = Parent(Via.HANDLER, job_id=second.id)
    assert sorted(map(str, await links(store, "note"))) == sorted(
        map(str, [
            None, *[handler] * 5, Parent(Via.ON_DONE, job_id=first.id), *[in_thread] * 2,
        ])
    )  # fmt: skip
    assert await links(store, "letter") == [Parent(Via.ON_DEAD, job_id=third.id)]
    assert await links(store, "begin") == [None]
    made = await store.jobs.page(Filter(parent=first.id), limit=50)
    assert len(made.jobs) == 6
    await forge.aclose()


@pytest.mark.parametrize("in_handler", [True, False])
async def test_a_fan_out_sends_the_same_statements_in_a_handler(
    tmp_path: Path, in_handler: bool
) -> None:
    """What a handler enqueues takes the short paths: one statement for all of a call, one for each
    single job."""
    forge = Forge(f"sqlite:///{tmp_path}/fan.db")
    inserts: list[str] = []

    @forge.task(queue="children")
    async def child(number: int) -> None: ...

    @forge.task(queue="parents")
    async def parent() -> None:
        await fan_out()

    async def fan_out() -> None:
        connection = (await forge.aready())._writer.connection  # type: ignore[attr-defined]
        connection.set_trace_callback(inserts.append)
        await child.aenqueue_many([(number,) for number in range(CHILDREN)])
        await child.aenqueue(1)
        connection.set_trace_callback(None)

    if in_handler:
        await parent.aenqueue()
        await forge.adrain(queues=["parents"])
    else:
        await fan_out()
    stored = [text for text in inserts if text.startswith("INSERT INTO forge_jobs")]
    assert len(stored) == 2
    assert "json_each" in stored[0]
    kept = await (await forge.aready()).jobs.page(Filter(kind="child"), limit=100)
    assert len(kept.jobs) == CHILDREN + 1
    assert all((parent_of(job.options) is not None) is in_handler for job in kept.jobs)
    await forge.aclose()


async def test_a_job_of_a_schedule_is_linked_to_it() -> None:
    forge = Forge("memory://")

    @forge.cron("0 3 * * *", name="nightly")
    @forge.task
    async def clean() -> None: ...

    store = await forge.aready()
    async with forge.worker(queues=["other"]):
        await forge.schedules.atrigger("nightly")
    assert await links(store, "clean") == [Parent(Via.SCHEDULE, schedule="nightly")]
    await forge.aclose()
