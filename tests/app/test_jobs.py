"""U16: list, count and change stored jobs from Python code."""

import asyncio
import inspect
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from forge_jobs import (
    BadDuration,
    BadName,
    BadOption,
    BadTime,
    BulkResult,
    Context,
    Dead,
    Forge,
    Job,
    JobStatus,
    KeyTaken,
    NotFound,
    Refused,
    testing,
)
from forge_jobs.app.jobs import Jobs


@pytest.fixture
def tasks(forge: Forge) -> dict[str, Any]:
    @forge.task(queue="mail", tags=["vip"])
    async def send(to: str) -> int:
        return len(to)

    @forge.task(queue="video", max_attempts=1)
    def encode(path: str) -> str:
        raise Dead("no codec")

    return {"send": send, "encode": encode}


def test_u16_jobs_are_listed_and_counted(forge: Forge, tasks: dict[str, Any]) -> None:
    sent = tasks["send"].enqueue_many([(f"{n}@b.c",) for n in range(3)])
    tasks["encode"].enqueue("a.mp4")
    tasks["send"].using(delay="1h").enqueue("late@b.c")
    assert [job.id for job in forge.jobs(status="pending", kind="send")] == [
        job.id for job in reversed(sent)
    ]
    assert forge.jobs().count() == 5
    assert forge.jobs(queue="mail").count() == 4
    assert forge.jobs(kind=tasks["encode"]).count() == 1
    assert forge.jobs(status=["pending", JobStatus.SCHEDULED], queue="mail").count() == 4
    assert forge.jobs(status=JobStatus.SCHEDULED).count() == 1
    assert forge.jobs(tag="vip").count() == 4
    assert forge.jobs(tag="other").count() == 0
    assert forge.jobs(status="in_progress").count() == 0
    now = datetime.now(UTC)
    assert forge.jobs(since="1h").count() == forge.jobs(since=now - timedelta(hours=1)).count() == 5
    assert forge.jobs(until="1h").count() == forge.jobs(since=now + timedelta(hours=1)).count() == 0
    [late] = forge.jobs(status="scheduled")
    assert late.payload == {"to": "late@b.c"}
    assert not late.ended
    assert repr(forge.jobs(queue="mail")) == "<jobs(queue='mail')>"


async def test_u16_listing_from_coroutines_decodes_results(
    forge: Forge, tasks: dict[str, Any]
) -> None:
    @forge.task
    async def day() -> date:
        return date(2026, 1, 2)

    await day.aenqueue()
    await tasks["encode"].aenqueue("a.mp4")
    await forge.drain()
    found = [job async for job in forge.jobs()]
    assert [job.status for job in found] == ["dead", "done"]
    assert await found[1].aresult(timeout=0) == date(2026, 1, 2), "not the text that is stored"
    assert all(job.ended for job in found)
    assert await forge.jobs(status="dead").acount() == 1


def test_u16_any_number_of_jobs_is_read_page_by_page(
    forge: Forge, tasks: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = tasks["send"].enqueue_many([(str(n),) for n in range(950)])
    sizes: list[int] = []
    store = forge.ready()
    page = store.jobs.page

    async def counted(*args: Any, **kwargs: Any) -> Any:
        found = await page(*args, **kwargs)
        sizes.append(len(found.jobs))
        return found

    monkeypatch.setattr(store.jobs, "page", counted)
    listed = iter(forge.jobs(queue="mail"))
    assert next(listed).id == sent[-1].id
    assert sum(sizes) <= 200, "the first page only"
    tasks["send"].enqueue("new")
    assert len(list(listed)) == 949, "jobs enqueued meanwhile do not appear"
    assert max(sizes) <= 200


def test_u16_an_action_goes_on_until_everything_selected_is_done(
    forge: Forge, tasks: dict[str, Any]
) -> None:
    """More than one batch of 500, and with a condition that no index serves."""
    tasks["send"].using(tags=["bulk"]).enqueue_many([(str(n),) for n in range(1_250)])
    other = tasks["send"].enqueue("other")
    chosen = forge.jobs(queue="mail", tag="bulk")
    assert chosen.count() == 1_250
    assert chosen.reschedule("1h") == BulkResult(action="reschedule", changed=1_250)
    assert forge.jobs(queue="mail", status="scheduled").count() == 1_250
    assert chosen.run_now() == BulkResult(action="run-now", changed=1_250)
    assert chosen.cancel("not needed") == BulkResult(action="cancel", changed=1_250)
    assert chosen.retry() == BulkResult(action="retry", changed=1_250)
    assert chosen.delete() == BulkResult(action="delete", changed=1_250)
    assert chosen.count() == 0
    assert other.refresh().status == "pending"


async def test_u16_the_async_verbs(forge: Forge, tasks: dict[str, Any]) -> None:
    job = await tasks["send"].aenqueue("a@b.c")
    moment = datetime.now(UTC) + timedelta(days=1)
    assert (await forge.jobs(queue="mail").areschedule(at=moment)).changed == 1
    assert (await job.arefresh()).run_at == moment
    assert (await forge.jobs(queue="mail").arun_now()).changed == 1
    assert (await forge.jobs(queue="mail").acancel()).changed == 1
    assert (await job.arefresh()).error == "cancelled by application"
    assert (await forge.jobs(queue="mail").aretry()).changed == 1
    assert (await forge.jobs(queue="mail").adelete()).changed == 1
    with pytest.raises(NotFound):
        await job.arefresh()


def test_u16_every_verb_has_a_twin() -> None:
    verbs = ("retry", "cancel", "delete", "run_now", "reschedule")
    for owner, names in ((Jobs, ("count", *verbs)), (Job, (*verbs, "refresh", "result", "logs"))):
        for name in names:
            assert not inspect.iscoroutinefunction(getattr(owner, name)), name
            assert inspect.iscoroutinefunction(getattr(owner, f"a{name}")), name


def test_u16_results_tell_why(forge: Forge, tasks: dict[str, Any]) -> None:
    keyed = tasks["send"].using(dedupe_key="k")
    first = keyed.enqueue("a@b.c")
    first.cancel()
    keyed.enqueue("a@b.c")
    result = forge.jobs(status="cancelled").retry()
    assert (result.changed, result.refused) == (0, 1)
    assert result.reasons == {"another live job holds their dedupe key": 1}
    assert str(result) == "retry: 0 changed, 1 refused: another live job holds their dedupe key"


async def test_u16_running_jobs_are_asked_to_stop(forge: Forge) -> None:
    started = asyncio.Event()

    @forge.task(queue="slow")
    async def hang(ctx: Context) -> None:
        started.set()
        await asyncio.sleep(3_600)

    job = await hang.aenqueue()
    async with forge.worker(queues=["slow"]):
        await asyncio.wait_for(started.wait(), 30)
        with pytest.raises(Refused, match="is running: reschedule applies to jobs that are sched"):
            await job.areschedule("1h")
        assert await forge.jobs(queue="slow").acancel() == BulkResult(action="cancel", requested=1)
        for _ in range(600):
            if (await job.arefresh()).ended:
                break
            await asyncio.sleep(0.05)
    assert job.status == "cancelled"


@pytest.mark.parametrize(
    ("conditions", "error", "text"),
    [
        ({"staus": "dead"}, BadOption, "unknown option 'staus'; did you mean 'status'?"),
        ({"status": "finished"}, BadOption, "status='finished' is no state: use one or several"),
        ({"status": []}, BadOption, "selects nothing"),
        ({"status": ["dead", 5]}, BadOption, "status=5 is no state"),
        ({"queue": "no spaces"}, BadName, "queue 'no spaces'"),
        ({"kind": ""}, BadName, "kind ''"),
        ({"tag": ""}, BadName, "tag ''"),
        ({"since": "soon"}, BadDuration, "since='soon'"),
        ({"since": datetime(2026, 1, 1)}, BadTime, "since="),
    ],
)
def test_u16_bad_conditions_are_refused(
    conditions: dict[str, Any], error: type[Exception], text: str
) -> None:
    forge = Forge("memory://")
    with pytest.raises(error) as refused:
        forge.jobs(**conditions)
    assert text in str(refused.value)


def test_u16_an_action_that_does_not_apply_is_refused(forge: Forge) -> None:
    with pytest.raises(BadOption, match="retry does not apply to done jobs: use failed, dead"):
        forge.jobs(status="done").retry()
    for call in (
        lambda: forge.jobs().reschedule(),
        lambda: forge.jobs().reschedule("1h", at=datetime.now(UTC)),
        lambda: forge.job("x").reschedule(),
    ):
        with pytest.raises(BadOption, match="give one of delay="):
            call()
    with pytest.raises(BadTime):
        forge.jobs().reschedule(at=datetime(2026, 1, 1))


def test_u16_the_verbs_of_one_job(forge: Forge, tasks: dict[str, Any]) -> None:
    job = tasks["send"].enqueue("a@b.c")
    assert job.reschedule("1h").status == "scheduled"
    assert job.run_at > datetime.now(UTC) + timedelta(minutes=50)
    assert job.run_now().status == "pending"
    with pytest.raises(Refused, match="is pending: run now applies to jobs that are scheduled"):
        job.run_now()
    with pytest.raises(Refused, match="is pending: retry applies to jobs that are failed, dead"):
        job.retry()
    assert job.cancel()
    with pytest.raises(Refused, match="is cancelled: reschedule applies"):
        job.reschedule("1h")
    assert job.retry().status == "pending"
    assert job.delete() is True
    for call in (job.delete, job.retry, job.run_now, lambda: job.reschedule("1h"), job.cancel):
        with pytest.raises(NotFound):
            call()


async def test_u16_the_async_verbs_of_one_job(forge: Forge, tasks: dict[str, Any]) -> None:
    keyed = tasks["send"].using(dedupe_key="k")
    job = await keyed.aenqueue("a@b.c")
    assert (await job.areschedule("1h")).status == "scheduled"
    assert (await job.arun_now()).status == "pending"
    await job.acancel()
    other = await keyed.aenqueue("a@b.c")
    with pytest.raises(KeyTaken, match="another live job holds its dedupe key"):
        await job.aretry()
    assert await other.adelete() is True
    assert (await job.aretry()).status == "pending"


def test_u16_the_audit_has_one_entry_per_bulk_action(forge: Forge, tasks: dict[str, Any]) -> None:
    """By the actor "application"; verbs of a single handle are everyday code and leave none."""
    jobs = tasks["send"].enqueue_many([("a",), ("b",)])
    jobs[0].cancel()
    jobs[0].retry()
    forge.jobs(queue="mail").reschedule("1h")
    forge.jobs(queue="mail").delete()
    entries = forge.client.access.run(lambda store: store.metrics.actions(limit=10))
    assert [(entry.actor, entry.action) for entry in entries] == [
        ("application", "delete"),
        ("application", "reschedule"),
    ]
    assert entries[0].detail["changed"] == 2


async def test_u16_handlers_enqueue_many(forge: Forge) -> None:
    seen: list[str] = []

    @forge.task
    async def part(name: str) -> None:
        seen.append(name)

    @forge.task
    async def fan_out(ctx: Context) -> list[str]:
        stored = await ctx.aenqueue_many(part, [("a",), {"name": "b"}, part.bind("c")])
        stored += await ctx.aenqueue_many("part", [{"name": "d"}])
        assert await ctx.aenqueue_many(part, []) == []
        return [item.id for item in stored]

    @forge.task
    def fan_out_sync(ctx: Context) -> int:
        return len(ctx.enqueue_many(part.using(priority=1), [("e",), ("f",)]))

    job, other = await fan_out.aenqueue(), await fan_out_sync.aenqueue()
    await forge.drain()
    assert len(await job.aresult(timeout=10)) == 4
    assert await other.aresult(timeout=10) == 2
    assert sorted(seen) == list("abcdef")


def test_u16_calls_of_another_task_are_refused(forge: Forge, tasks: dict[str, Any]) -> None:
    send, encode = tasks["send"], tasks["encode"]
    with pytest.raises(Exception, match=r"call number 1: task 'send': a call of 'encode'"):
        send.enqueue_many([send.bind("a"), encode.bind("b")])
    assert forge.jobs().count() == 0
    later = send.using(delay="1h")
    [job] = later.enqueue_many([send.bind("a")])
    assert job.status == "scheduled", "the options of using(...) hold for bound calls"


def _resets() -> list[Any]:
    return [testing.reset, lambda forge: asyncio.run(testing.areset(forge))]


@pytest.mark.parametrize("reset", _resets(), ids=["sync", "async"])
def test_u16_a_store_is_emptied_between_tests(
    forge: Forge, tasks: dict[str, Any], reset: Callable[[Forge], None]
) -> None:
    for _ in range(2):
        assert tasks["send"].using(dedupe_key="k").enqueue("a@b.c").duplicate is False
        forge.schedules.create("nightly", "0 3 * * *", "send", payload={"to": "a@b.c"})
        reset(forge)
        assert forge.jobs().count() == 0
        assert forge.schedules.list() == ()
        assert forge.drain().run().ran == 0


async def test_u16_a_store_with_a_worker_is_not_emptied(
    forge: Forge, tasks: dict[str, Any]
) -> None:
    async with forge.worker(queues=["mail"]):
        with pytest.raises(Refused, match="would delete a store that 1 worker"):
            await testing.areset(forge)
    await testing.areset(forge)
