"""A store that is closed during calls: each ends, with its result or a clear error."""

import asyncio

import pytest

from forge_jobs import Closed
from forge_jobs.backends.postgres.connection.driver import Driver
from forge_jobs.backends.postgres.connection.pool import PER_LOOP, Pool
from forge_jobs.backends.postgres.connection.server import Link
from forge_jobs.backends.postgres.store import PostgresStore


async def test_a_call_that_waits_for_a_connection_says_that_the_store_was_closed(
    store: PostgresStore,
) -> None:
    """It raised CancelledError, as if somebody had cancelled the caller's own task."""
    going_on, begun = asyncio.Event(), asyncio.Semaphore(0)

    async def work(link: Link) -> int:
        begun.release()
        await going_on.wait()
        return (await link.fetch("SELECT 7"))[0][0]

    busy = [asyncio.create_task(store._server.within(work)) for _ in range(PER_LOOP)]
    for _ in busy:
        await begun.acquire()
    waiting = asyncio.create_task(store.now())
    while not store._server.pool._waiting:
        await asyncio.sleep(0)
    await store.close()
    with pytest.raises(Closed):
        await waiting
    going_on.set()
    assert await asyncio.gather(*busy) == [7] * PER_LOOP
    assert store._server.pool.count() == 0


async def test_a_connection_that_fails_after_the_close_is_counted_once() -> None:
    """It was subtracted twice: the pool could then open more than its maximum."""
    closed, begun = asyncio.Event(), asyncio.Event()

    async def connect() -> Driver:
        begun.set()
        await closed.wait()
        raise ConnectionRefusedError

    pool = Pool(connect)
    opening = asyncio.create_task(pool.acquire())
    await begun.wait()
    await pool.close()
    closed.set()
    with pytest.raises(ConnectionRefusedError):
        await opening
    assert pool.count() == 0
