"""Schedules as users meet them: ``@forge.cron``, ``forge.schedules`` and forge.toml."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from forge_jobs import (
    BadArguments,
    BadConfig,
    BadCron,
    BadOption,
    Conflict,
    Context,
    DeadJob,
    Forge,
    JobStatus,
    NotFound,
    cron_tick_once,
)

DEADLINE_S = 60


@pytest.fixture
def here() -> Iterator[Forge]:
    """For what is the same on every backend."""
    made = Forge("memory://")
    yield made
    made.close()


async def declared(forge: Forge) -> None:
    """A worker starts and stops; that is what stores schedules."""
    async with forge.worker(queues=["none"]):
        pass


async def until(is_so: Any) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not is_so():
            await asyncio.sleep(0.02)


async def test_a_task_runs_by_the_calendar(forge: Forge) -> None:
    ran: list[tuple[str, ...]] = []

    @forge.cron("* * * * * *", payload={"to": "all"}, name="greeting", missed="all")
    @forge.task(queue="mail", priority=4)
    async def greet(to: str, ctx: Context) -> None:
        ran.append((to, *ctx.job.tags))

    async with forge.worker(queues=["mail"]):
        await until(lambda: len(ran) >= 2)
        (view,) = await forge.schedules.alist()
        history = await forge.schedules.ahistory("greeting")
    assert (view.name, view.kind, view.declared, view.payload) == (
        "greeting",
        "greet",
        True,
        {"to": "all"},
    )
    assert len(set(ran)) == len(ran)
    assert all(entry[:2] == ("all", "cron:greeting") for entry in ran)
    assert {fire.outcome for fire in history} == {"fired"}
    assert history[0].job_id is not None
    job = await forge.job(history[-1].job_id or "").arefresh()
    assert job.status is JobStatus.DONE


async def test_the_job_is_that_of_the_task(here: Forge) -> None:
    @here.task
    def told(job: DeadJob) -> None: ...

    @here.cron("@daily")
    @here.task(queue="mail", priority=4, max_attempts=2, timeout="9s", on_dead=told, tags=["vip"])
    def report() -> None: ...

    await declared(here)
    job = await here.schedules.atrigger("report")
    record = await (await here.aready()).jobs.get(job.id)
    assert record is not None
    assert (record.queue, record.priority, record.max_attempts) == ("mail", 4, 2)
    assert record.tags == ("vip", "cron:report")
    assert record.on_dead is not None
    assert record.on_dead.kind == "told"


async def test_A20_a_trigger_keeps_the_rules_of_a_tick(here: Forge) -> None:
    @here.cron("@daily")
    @here.task(queue="mail")
    def report() -> None: ...

    await declared(here)
    before = await here.schedules.aget("report")
    first = await here.schedules.atrigger("report")
    second = await here.schedules.atrigger("report")
    assert (first.duplicate, second.duplicate, second.id) == (False, True, first.id)
    record = await (await here.aready()).jobs.get(first.id)
    assert record is not None
    assert record.queue == "mail", "the queue of its kind"
    after = await here.schedules.aget("report")
    assert (after.next_at, after.last_at) == (before.next_at, None), "no tick was touched"


def test_schedules_from_synchronous_code(forge: Forge) -> None:
    @forge.task(queue="mail")
    def report(n: int) -> None: ...

    table = forge.schedules
    made = table.create("nightly", "0 3 * * *", report, payload={"n": 1}, tz="Europe/Paris")
    assert made.next_at is not None
    assert made.next_at > datetime.now(UTC)
    assert (made.declared, made.max_attempts, made.queue) == (False, None, None)
    assert table.create("other", "@daily", "unknown.kind", enabled=False).next_at is None
    assert [view.name for view in table.list()] == ["nightly", "other"]
    edited = table.edit("nightly", expression="0 4 * * *", payload={"n": 2}, jitter="5m")
    assert (edited.expression, edited.payload, edited.jitter_s) == ("0 4 * * *", {"n": 2}, 300)
    assert edited.next_at != made.next_at
    assert not table.disable("nightly").enabled
    assert table.enable("nightly").next_at == edited.next_at
    job = table.trigger("nightly")
    assert not job.duplicate
    assert job.refresh().status is JobStatus.PENDING
    assert [fire.outcome for fire in table.history("nightly")] == ["triggered"]
    table.delete("nightly")
    assert [view.name for view in table.list()] == ["other"]


async def test_schedules_from_coroutines(here: Forge) -> None:
    table = here.schedules
    await table.acreate("nightly", "0 3 * * *", "cleanup")
    assert (await table.aedit("nightly", tz="Asia/Tokyo")).tz == "Asia/Tokyo"
    assert not (await table.adisable("nightly")).enabled
    assert (await table.aenable("nightly")).enabled
    await table.adelete("nightly")
    assert await table.alist() == ()


async def test_mistakes_at_run_time_are_named(here: Forge) -> None:
    @here.task
    def report(n: int) -> None: ...

    table = here.schedules
    await table.acreate("nightly", "@daily", report, payload={"n": 1})
    with pytest.raises(Conflict, match="already"):
        await table.acreate("nightly", "@daily", report, payload={"n": 1})
    with pytest.raises(BadArguments, match="payload="):
        await table.acreate("x", "@daily", report)
    with pytest.raises(BadArguments):
        await table.aedit("nightly", payload={"m": 1})
    with pytest.raises(BadOption, match="say what to change"):
        await table.aedit("nightly")
    with pytest.raises(BadOption, match="unknown option"):
        await table.aedit("nightly", every="day")  # type: ignore[call-arg]
    with pytest.raises(BadOption, match="use skip, once, all"):
        await table.aedit("nightly", missed="some")  # type: ignore[typeddict-item]
    with pytest.raises(BadCron):
        await table.aedit("nightly", expression="often")
    for call in (table.aget, table.aenable, table.adisable, table.adelete, table.atrigger):
        with pytest.raises(NotFound, match="there is no schedule 'none'"):
            await call("none")
    assert (await table.aget("nightly")).payload == {"n": 1}


def test_mistakes_in_code_are_named(here: Forge) -> None:
    @here.task
    def plain() -> None: ...

    @here.task
    def report(n: int) -> None: ...

    with pytest.raises(BadCron):
        here.cron("often")(plain)
    with pytest.raises(BadOption, match=r"above @forge\.task"):
        here.cron("@daily")(lambda: None)  # type: ignore[type-var]
    with pytest.raises(BadOption, match="unknown option 'zone'"):
        here.cron("@daily", zone="UTC")  # type: ignore[call-arg]
    with pytest.raises(BadArguments, match="give its arguments with payload="):
        here.cron("@daily")(report)
    assert here.cron("@daily")(plain) is plain
    with pytest.raises(BadOption, match="declared twice"):
        here.cron("@hourly")(plain)
    here.cron("@hourly", name="plain-hourly")(plain)
    other = Forge("memory://")
    with pytest.raises(BadOption, match="another Forge"):
        other.cron("@daily")(plain)
    other.close()


async def test_an_operators_edit_outlives_a_restart(forge: Forge) -> None:
    @forge.cron("@daily")
    @forge.task
    def report() -> None: ...

    await declared(forge)
    await forge.schedules.aedit("report", expression="@hourly")
    await forge.schedules.adisable("report")
    await declared(forge)
    view = await forge.schedules.aget("report")
    assert (view.expression, view.enabled, view.edited) == ("@hourly", False, True)


async def test_a_kind_without_code_goes_where_workers_say(here: Forge) -> None:
    store = await here.aready()
    await store.queues.publish({"encode": "video"})
    await here.schedules.acreate("each", "@daily", "encode")
    job = await here.schedules.atrigger("each")
    record = await store.jobs.get(job.id)
    assert record is not None
    assert record.queue == "video"


async def test_schedules_of_the_file(
    here: Forge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "forge.toml"
    file.write_text("[schedules.nightly]\ncron = '0 3 * * *'\nkind = 'report'\npayload = {n = 3}\n")
    monkeypatch.chdir(tmp_path)

    @here.task(max_attempts=2)
    def report(n: int) -> None: ...

    await declared(here)
    view = await here.schedules.aget("nightly")
    # None: what the task declares at the time of the tick.
    assert (view.payload, view.declared, view.max_attempts) == ({"n": 3}, True, None)
    fired = await here.schedules.atrigger("nightly")
    record = await (await here.aready()).jobs.get(fired.id)
    assert record is not None
    assert record.max_attempts == 2
    file.write_text("[schedules.nightly]\ncron = '0 3 * * *'\nkind = 'report'\n")
    with pytest.raises(BadArguments, match=r"schedules\.nightly"):
        await declared(here)
    file.write_text("[schedules.report]\ncron = '0 3 * * *'\nkind = 'report'\npayload = {n = 3}\n")
    here.cron("@daily", payload={"n": 1})(report)
    with pytest.raises(BadConfig, match="declared in the code as well"):
        await declared(here)


async def test_the_tick_by_hand(here: Forge) -> None:
    await here.schedules.acreate("each", "* * * * * *", "work", queue="q", missed="once")
    store, fired = await here.aready(), 0
    async with asyncio.timeout(DEADLINE_S):
        while not fired:
            await asyncio.sleep(0.1)
            fired = (await cron_tick_once(store)).fired
    assert fired == 1
