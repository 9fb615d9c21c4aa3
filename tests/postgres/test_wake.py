"""Waking workers of other processes, and what happens when notifications fail."""

import asyncio
from typing import Any

import asyncpg
import pytest

from forge_jobs.backends.postgres.notify import listener
from forge_jobs.backends.postgres.store import PostgresStore
from forge_jobs.core.job import NewJob
from forge_jobs.store.processes import NewProcess, ProcessStats
from forge_jobs.store.queues import QueueChange

from .proxy import faulty_proxy
from .server import PrivateServer

SOON_S = 30.0


def job(queue: str = "q") -> NewJob:
    return NewJob(kind="work", queue=queue)


async def listening(store: PostgresStore) -> None:
    """Wait until the listener has received its test notification."""
    async with asyncio.timeout(SOON_S):
        while store._listener.state != "listening":
            await asyncio.sleep(0.01)


@pytest.fixture
async def other(store: PostgresStore, url: str) -> Any:
    """A second store, like that of another process."""
    made = PostgresStore(url)
    await made.open()
    yield made
    await made.close()


async def test_an_enqueue_of_another_process_notifies(
    store: PostgresStore, other: PostgresStore
) -> None:
    notified, wrong = asyncio.Event(), asyncio.Event()
    mine = await store.subscribe(["q", "r"], notified.set)
    theirs = await store.subscribe(["elsewhere"], wrong.set)
    await listening(store)
    notified.clear()
    wrong.clear()
    await other.jobs.enqueue([job("r")])
    await asyncio.wait_for(notified.wait(), SOON_S)
    assert not wrong.is_set()
    notified.clear()
    await other.queues.ensure("q", slots=3)
    await asyncio.wait_for(asyncio.gather(notified.wait(), wrong.wait()), SOON_S)
    wrong.clear()
    await other.queues.change("q", QueueChange(paused=True))
    await asyncio.wait_for(wrong.wait(), SOON_S)
    await mine.close()
    await theirs.close()
    assert store._listener.state == "off" or store._server.line is None


async def test_the_listener_reconnects_after_its_connection_was_killed(
    store: PostgresStore, other: PostgresStore, postgres: PrivateServer
) -> None:
    notified = asyncio.Event()
    subscription = await store.subscribe(["q"], notified.set)
    await listening(store)
    notified.clear()
    await asyncio.to_thread(
        postgres.sql,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE query ILIKE 'LISTEN%' AND application_name = 'forge-jobs'",
    )
    # Notified after the reconnect, for what was missed.
    await asyncio.wait_for(notified.wait(), SOON_S)
    await listening(store)
    notified.clear()
    await other.jobs.enqueue([job()])
    await asyncio.wait_for(notified.wait(), SOON_S)
    await subscription.close()


async def test_notifications_of_many_jobs_are_merged(
    store: PostgresStore, postgres: PrivateServer, schema: str
) -> None:
    connection = await asyncpg.connect(postgres.url())
    received: list[str] = []
    await connection.add_listener(f"{schema}_wake", lambda *args: received.append(args[3]))
    for _ in range(5):
        await asyncio.gather(*(store.jobs.enqueue([job(f"q{n % 3}")]) for n in range(60)))
    async with asyncio.timeout(SOON_S):
        while {name.partition("?")[0] for text in received for name in text.split(",")} != {
            "q0", "q1", "q2",
        }:  # fmt: skip
            await asyncio.sleep(0.01)
    assert len(received) < 100
    await connection.close()


async def test_a_connection_that_drops_notifications_is_detected(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "PROBE_S", 0.5)
    async with faulty_proxy(url) as (proxy, through):
        proxy.deaf = True
        store = PostgresStore(through)
        await store.open()
        calls = 0

        def notify() -> None:
            nonlocal calls
            calls += 1

        subscription = await store.subscribe(["q"], notify)
        async with asyncio.timeout(SOON_S):
            while calls < 4:
                await asyncio.sleep(0.05)
        assert store._listener.state == "polling"
        await subscription.close()
        await store.close()


async def test_a_job_in_a_users_transaction_notifies_at_its_commit(
    store: PostgresStore, other: PostgresStore, postgres: PrivateServer
) -> None:
    notified = asyncio.Event()
    subscription = await store.subscribe(["q"], notified.set)
    await listening(store)
    connection = await asyncpg.connect(postgres.url())
    transaction = connection.transaction()
    await transaction.start()
    notified.clear()
    await other.aenqueue_in(connection, [job()])
    await asyncio.sleep(0.2)
    assert not notified.is_set()
    await transaction.commit()
    await asyncio.wait_for(notified.wait(), SOON_S)
    await connection.close()
    await subscription.close()


async def test_a_heartbeat_does_not_wait_for_long_calls(store: PostgresStore) -> None:
    me = NewProcess(host_id="h", label="l", queues=("q",), pid=1, hostname="b")
    owner = await store.processes.register(me)
    subscription = await store.subscribe(["q"], lambda: None)
    await listening(store)
    long = [
        asyncio.create_task(store._server.ask("SELECT pg_sleep(60)", writes=False))
        for _ in range(4)
    ]
    await asyncio.sleep(0.2)
    async with asyncio.timeout(SOON_S):
        assert (await store.processes.heartbeat(owner, ProcessStats())).alive
        assert (await store.processes.control(owner)).quiet is False
        assert await store.processes.lead("cron", owner, ttl_s=15.0)
    for call in long:
        call.cancel()
    await asyncio.gather(*long, return_exceptions=True)
    await subscription.close()


async def test_r12g_a_connection_lost_while_it_is_tested_is_replaced_without_a_warning(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A cut connection says nothing about whether notifications arrive."""
    async with faulty_proxy(url) as (proxy, through):
        store = PostgresStore(through)
        await store.open()
        proxy.deaf = True
        subscription = await store.subscribe(["q"], lambda: None)
        async with asyncio.timeout(30):
            while store._listener._probe is None:
                await asyncio.sleep(0.01)
        proxy.deaf = False
        assert store._listener._driver is not None
        store._listener._driver.terminate()
        async with asyncio.timeout(30):
            while store._listener.state != "listening":
                assert store._listener.state == "off"
                await asyncio.sleep(0.01)
        assert not [record for record in caplog.records if "do not arrive" in record.message]
        await subscription.close()
        await store.close()
