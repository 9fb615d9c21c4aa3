"""From a rule to the receiver: the service, the jobs it stores, and their delivery."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from forge_jobs import Forge, cron_tick_once
from forge_jobs.core.alert_rule import AlertRule, new_rule
from forge_jobs.core.alert_values import ALERT_KIND
from forge_jobs.core.alerts import AlertState
from forge_jobs.core.instant import Instant
from forge_jobs.core.schedule import CronSpec
from forge_jobs.core.selection import Filter
from forge_jobs.core.webhook import verify_webhook
from forge_jobs.engine.requests.declared_schedules import ensure_schedules
from forge_jobs.engine.services.alerts import Alerts
from forge_jobs.kit.clock import SYSTEM_CLOCK
from forge_jobs.store.alerts import AlertRules, delivery_queue
from forge_jobs.store.processes import ProcessRecord
from forge_jobs.store.queues import QueueConfig
from forge_jobs.testing.clock import MovableClock
from rigs.storms.webhook_receiver import Receiver

SECRET = "whsec_c2VjcmV0LXNlY3JldC1zZWNyZXQ="


@pytest.fixture
async def forge(any_url: str) -> AsyncIterator[Forge]:
    async with Forge(any_url) as made:
        yield made


async def store_rule(forge: Forge, rule: AlertRule) -> None:
    await AlertRules(await forge.aready()).put(rule.name, lambda known: rule)


async def tick(forge: Forge, times: int = 1) -> None:
    service = Alerts(await forge.aready())
    for _ in range(times):
        await service.tick()


async def alert_jobs(forge: Forge) -> list[str]:
    store = await forge.aready()
    page = await store.jobs.page(Filter(kind=ALERT_KIND), limit=50)
    return [one.payload.decode() for one in page.jobs]


async def test_an_episode_reaches_the_receiver_opened_and_closed(
    forge: Forge, receiver: Receiver
) -> None:
    @forge.task(queue="mail")
    async def send() -> None: ...

    rule = new_rule(
        "full", "backlog", above=2, clear=0, queue="mail", url=receiver.url, secret=SECRET
    )
    await store_rule(forge, rule)
    for _ in range(3):
        await send.aenqueue()
    await tick(forge, 3)
    assert len(await alert_jobs(forge)) == 1
    await forge.adrain()
    await tick(forge, 3)
    await forge.adrain()
    assert receiver.types == ["alert.opened", "alert.closed"]
    opened, closed = receiver.by_id.values()
    assert opened["data"]["subject"] == "mail"
    assert opened["data"]["value"] == 3
    assert opened["data"]["closed_at"] is None
    assert closed["data"]["episode"] == opened["data"]["episode"]
    first = receiver.requests[0]
    now_s = SYSTEM_CLOCK.now() / 1e6
    assert verify_webhook(SECRET, first.headers, first.body, now_s=now_s).endswith(".opened")


async def test_an_error_that_was_resolved_and_returns_opens_an_episode(
    forge: Forge, receiver: Receiver
) -> None:
    @forge.task(queue="mail", max_attempts=1)
    async def send() -> None:
        raise LookupError("no mailbox")

    async def fail() -> None:
        await send.aenqueue()
        await forge.adrain(queues=["mail"])

    await store_rule(forge, new_rule("back", "error_returned", clear=0, url=receiver.url))
    await fail()
    await tick(forge)
    assert await alert_jobs(forge) == []
    [group] = [one async for one in forge.errors()]
    await forge.errors().aresolve()
    await tick(forge)
    assert await alert_jobs(forge) == []
    await fail()
    await tick(forge)
    [message] = await alert_jobs(forge)
    assert group.id in message
    await forge.errors().aresolve()
    await tick(forge)
    assert len(await alert_jobs(forge)) == 2


async def test_neither_job_nor_error_holds_address_or_secret(
    forge: Forge, receiver: Receiver
) -> None:
    receiver.status = 503
    await store_rule(forge, new_rule("none", "no_worker", hold=0, url=receiver.url, secret=SECRET))
    store = await forge.aready()
    await store.queues.ensure("mail", slots=1)
    await tick(forge)
    await forge.adrain()
    page = await store.jobs.page(Filter(kind=ALERT_KIND), limit=5)
    text = "".join([repr(await store.jobs.get(job.id)) for job in page.jobs])
    assert "503" in text
    assert "secret-path" not in text
    assert SECRET not in text


async def test_a_receiver_that_fails_gets_the_message_again_with_the_same_id(
    forge: Forge, receiver: Receiver
) -> None:
    receiver.statuses = [500]
    await store_rule(forge, new_rule("none", "no_worker", hold=0, url=receiver.url))
    store = await forge.aready()
    await store.queues.ensure("mail", slots=1)
    await tick(forge)
    await forge.adrain()
    assert receiver.requests == []
    await forge.jobs(kind=ALERT_KIND).arun_now()
    await forge.adrain()
    assert receiver.types == ["alert.opened"]


async def test_looks_at_the_same_time_open_one_episode_with_one_job(forge: Forge) -> None:
    await store_rule(forge, new_rule("none", "no_worker", hold=0, url="https://hooks.example/"))
    store = await forge.aready()
    await store.queues.ensure("mail", slots=1)
    services = [Alerts(store) for _ in range(4)]
    await asyncio.gather(*(service.tick() for service in services))
    await asyncio.gather(*(service.tick() for service in services))
    assert len(await alert_jobs(forge)) == 1


async def test_a_process_that_dies_before_it_notes_the_job_leaves_one_job(forge: Forge) -> None:
    await store_rule(forge, new_rule("none", "no_worker", hold=0, url="https://hooks.example/"))
    store = await forge.aready()
    await store.queues.ensure("mail", slots=1)
    await tick(forge)
    rules = AlertRules(store)
    await rules.change_states({"none": _without_jobs})
    assert (await rules.states())["none"].open["mail"].opened_job is None
    await tick(forge)
    assert (await rules.states())["none"].open["mail"].opened_job is not None
    assert len(await alert_jobs(forge)) == 1


async def test_a_missed_schedule_opens_an_episode_and_the_next_tick_closes_it() -> None:
    clock = MovableClock()
    async with Forge("memory://", clock=clock) as forge:
        store = await forge.aready()
        await ensure_schedules(store, [CronSpec(name="nightly", expression="* * * * *", kind="x")])
        await store_rule(forge, new_rule("cron", "missed_schedule", clear=0))
        service = Alerts(store)
        await service.tick()
        assert not (await AlertRules(store).states()).get("cron")
        clock.advance(150)
        await service.tick()
        assert "nightly" in (await AlertRules(store).states())["cron"].open
        await cron_tick_once(store)
        await service.tick()
        assert "nightly" in (await AlertRules(store).states())["cron"].open, "ticks were dropped"
        clock.advance(60)
        await cron_tick_once(store)
        await service.tick()
        assert not (await AlertRules(store).states())["cron"].open


async def test_a_worker_delivers_without_a_task_of_the_user(
    forge: Forge, receiver: Receiver
) -> None:
    rule = new_rule("none", "no_worker", hold=0, clear=0, queue="lonely", url=receiver.url)
    await store_rule(forge, rule)
    await (await forge.aready()).queues.ensure("lonely", slots=1)

    @forge.task(queue="mail")
    async def send() -> None: ...

    async with forge.worker(["mail"]):
        async with asyncio.timeout(30):
            while receiver.types != ["alert.opened"]:
                await asyncio.sleep(0.02)


def test_messages_go_through_a_queue_that_works() -> None:
    configs = [QueueConfig(name="a", paused=True), QueueConfig(name="b"), QueueConfig(name="c")]
    assert delivery_queue(configs, []) == "alerts"
    assert delivery_queue(configs, [process("a", "b"), process("c"), process("c")]) == "c"
    assert delivery_queue(configs, [process("c"), process("b", "default")]) == "default"
    assert delivery_queue(configs, [process("c"), process("b", "alerts")]) == "alerts"


def process(*queues: str) -> ProcessRecord:
    return ProcessRecord(
        host_id="h", label="h", hostname="h", pid=1, version="", queues=queues, key=1,
        lease_s=15, started_at=0, beat_at=0,
    )  # fmt: skip


def _without_jobs(state: AlertState, now: Instant) -> AlertState:
    opened = {subject: replace(one, opened_job=None) for subject, one in state.open.items()}
    return replace(state, open=opened)
