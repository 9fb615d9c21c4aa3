"""Errors after failures of the server or of the connection; no job is lost by them."""

import asyncio
import time
from typing import Any

import asyncpg
import pytest

from forge_jobs.backends.postgres.connection import error_mapping
from forge_jobs.backends.postgres.store import PostgresStore
from forge_jobs.core.decide import done
from forge_jobs.core.errors import (
    Closed,
    ForgeError,
    Full,
    Invalid,
    NotWritable,
    SchemaMismatch,
    Unavailable,
    Unknown,
)
from forge_jobs.core.job import NewJob
from forge_jobs.core.status import JobStatus
from forge_jobs.store.jobs import Exchange, Want
from forge_jobs.store.processes import NewProcess, ProcessStats
from tests.postgres.proxy import faulty_proxy
from tests.postgres.server import PrivateServer, private_server

JOB = NewJob(kind="work", queue="q")
KEYED = NewJob(kind="work", queue="q", dedupe_key="once")
WAITING = (
    "SELECT count(*) FROM pg_stat_activity "
    "WHERE application_name = 'forge-jobs' AND wait_event_type = 'Lock'"
)
ME = NewProcess(host_id="h", label="l", queues=("q",), pid=1, hostname="b", lease_s=120.0)


async def pending(store: PostgresStore) -> int:
    counts = await store.metrics.counts()
    return sum(count.jobs for count in counts if count.status is JobStatus.PENDING)


def kill_backends(server: PrivateServer) -> None:
    """End the store's sessions and wait until they are over; Postgres 13 cannot wait by itself."""
    found = server.sql(
        "SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE application_name = 'forge-jobs'"
    )
    pids = ", ".join(["0", *(line.partition("|")[0] for line in found.split())])
    until = time.monotonic() + 10
    while server.sql(f"SELECT 1 FROM pg_stat_activity WHERE pid IN ({pids})"):
        assert time.monotonic() < until, "sessions outlive their end"
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("error", "may_have_committed", "expected"),
    [
        (asyncpg.DiskFullError("no space"), True, Full),
        (asyncpg.OutOfMemoryError("none"), True, Full),
        (asyncpg.ReadOnlySQLTransactionError("standby"), True, Unavailable),
        (asyncpg.InsufficientPrivilegeError("permission denied"), True, NotWritable),
        (asyncpg.UndefinedTableError("jobs"), True, SchemaMismatch),
        (asyncpg.DeadlockDetectedError("deadlock"), True, Unavailable),
        (asyncpg.LockNotAvailableError("lock"), True, Unavailable),
        (asyncpg.AdminShutdownError("bye"), True, Unavailable),
        (asyncpg.TooManyConnectionsError("full"), False, Unavailable),
        (asyncpg.CharacterNotInRepertoireError("0x00"), True, Invalid),
        (asyncpg.ConnectionDoesNotExistError("lost"), True, Unknown),
        (asyncpg.ConnectionDoesNotExistError("lost"), False, Unavailable),
        (ConnectionResetError("reset"), True, Unknown),
        (TimeoutError(), True, Unknown),
        (TimeoutError(), False, Unavailable),
        (asyncpg.InterfaceError("connection is closed"), False, Unavailable),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_errors_are_mapped(
    error: Exception, may_have_committed: bool, expected: type[ForgeError]
) -> None:
    location = "postgresql://me@db/shop"
    mapped = error_mapping.translated(
        error, location=location, may_have_committed=may_have_committed
    )
    assert type(mapped) is expected


async def test_calls_to_a_closed_store_raise_closed(store: PostgresStore) -> None:
    await store.close()
    with pytest.raises(Closed):
        await store.jobs.enqueue([JOB])
    await store.open()
    await store.jobs.enqueue([JOB])


async def test_idle_connections_that_were_killed_are_replaced_without_an_error(
    store: PostgresStore, postgres: PrivateServer
) -> None:
    await store.jobs.enqueue([JOB])
    for _ in range(3):
        # The loop is blocked meanwhile and cannot see their end before the next call.
        kill_backends(postgres)
        await store.jobs.enqueue([JOB])
    await asyncio.to_thread(kill_backends, postgres)
    await store.jobs.enqueue([JOB])
    assert await pending(store) == 5


async def test_a_statement_whose_backend_is_killed_has_an_unknown_effect(
    store: PostgresStore, schema: str, postgres: PrivateServer
) -> None:
    await store.jobs.enqueue([KEYED])
    blocker = await asyncpg.connect(postgres.url())
    try:
        transaction = blocker.transaction()
        await transaction.start()
        await blocker.execute(f"LOCK TABLE {schema}.jobs IN ACCESS EXCLUSIVE MODE")
        call = asyncio.create_task(store.jobs.enqueue([JOB]))
        async with asyncio.timeout(60):
            while (await asyncio.to_thread(postgres.sql, WAITING)).strip() == "0":
                await asyncio.sleep(0.05)
        await asyncio.to_thread(kill_backends, postgres)
        # It had no effect, but the client cannot tell this from a lost reply.
        with pytest.raises(Unknown):
            await call
        await transaction.rollback()
    finally:
        await blocker.close()
    assert await pending(store) == 1


async def test_a_lost_reply_to_an_enqueue_is_an_unknown_effect(url: str) -> None:
    async with faulty_proxy(url) as (proxy, through):
        store = PostgresStore(through)
        await store.open()
        await store.jobs.enqueue([KEYED])
        proxy.swallow = True
        other = NewJob(kind="work", queue="q", dedupe_key="twice")
        with pytest.raises(Unknown):
            await store.jobs.enqueue([other])
        assert proxy.swallowed == 1
        [again] = await store.jobs.enqueue([other])
        assert again.duplicate
        assert await pending(store) == 2
        await store.close()


async def test_a_lost_reply_to_an_exchange_loses_no_job(url: str) -> None:
    async with faulty_proxy(url) as (proxy, through):
        store = PostgresStore(through)
        await store.open()
        owner = await store.processes.register(ME)
        await store.jobs.enqueue([JOB, JOB])
        # The driver looks up types at the first use of a statement: not the reply to be lost.
        await store.jobs.exchange(Exchange(owner=owner, number=6))
        proxy.swallow = True
        with pytest.raises(Unknown):
            await store.jobs.exchange(Exchange(owner=owner, number=7, want=[Want("q", 5)]))
        lost = await store.jobs.owned(owner)
        assert [row.exchange for row in lost] == [7, 7]
        answer = await store.jobs.exchange(
            Exchange(owner=owner, number=8, release=[row.claim for row in lost])
        )
        assert answer.alive
        assert await pending(store) == 2
        await store.close()


async def test_a_query_is_repeated_after_a_lost_reply(url: str) -> None:
    async with faulty_proxy(url) as (proxy, through):
        store = PostgresStore(through)
        await store.open()
        await store.jobs.enqueue([JOB])
        assert await pending(store) == 1
        proxy.swallow = True
        # A query has no effect, so it is repeated on a new connection.
        assert await pending(store) == 1
        assert proxy.swallowed == 1
        await store.close()


async def test_a_read_only_server_is_unavailable(
    store: PostgresStore, postgres: PrivateServer
) -> None:
    await store.jobs.enqueue([JOB])
    postgres.sql("ALTER ROLE postgres SET default_transaction_read_only = on")
    try:
        await asyncio.to_thread(kill_backends, postgres)
        with pytest.raises(Unavailable):
            await store.jobs.enqueue([JOB])
    finally:
        postgres.sql(
            "SET default_transaction_read_only = off",
            "ALTER ROLE postgres RESET default_transaction_read_only",
        )
    await asyncio.to_thread(kill_backends, postgres)
    await store.jobs.enqueue([JOB])
    assert await pending(store) == 2


async def until_it_works(call: Any, tries: int = 600) -> Any:
    for _ in range(tries):
        try:
            return await call()
        except (Unavailable, Unknown):
            await asyncio.sleep(0.1)
    raise AssertionError("the store did not recover")


@pytest.mark.processes
async def test_restarts_lose_nothing_and_the_store_recovers() -> None:
    with private_server() as server:
        store = PostgresStore(server.url(schema="r"))
        await store.open()
        owner = await store.processes.register(ME)
        notified = asyncio.Event()
        subscription = await store.subscribe(["q"], notified.set)
        stored = 0
        for immediate in (False, True):
            stored += len(await store.jobs.enqueue([JOB] * 10))
            await asyncio.to_thread(server.stop, immediate=immediate)
            with pytest.raises((Unavailable, Unknown)):
                await store.jobs.enqueue([KEYED])
            with pytest.raises(Unavailable):
                await store.processes.heartbeat(owner, ProcessStats())
            await asyncio.to_thread(server.start)
            assert (
                await until_it_works(lambda: store.processes.heartbeat(owner, ProcessStats()))
            ).alive
            assert await pending(store) == stored
        async with asyncio.timeout(60):
            # The listener reconnects by itself.
            other = PostgresStore(server.url(schema="r"))
            await other.open()
            while True:
                notified.clear()
                stored += len(await other.jobs.enqueue([JOB]))
                try:
                    await asyncio.wait_for(notified.wait(), 1)
                    break
                except TimeoutError:
                    continue
        answer = await store.jobs.exchange(Exchange(owner=owner, number=1, want=[Want("q", 100)]))
        assert len(answer.claims) == stored
        finishes = [done(job, result=None) for job in answer.claims]
        await store.jobs.exchange(Exchange(owner=owner, number=2, finish=finishes))
        assert await pending(store) == 0
        await subscription.close()
        await other.close()
        await store.close()
