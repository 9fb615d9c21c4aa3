"""A store that is closed during calls: each ends, with its result or a clear error."""

import asyncio
import gc
import logging

import pytest

from forge_jobs import Closed
from forge_jobs.backends.postgres.connection.driver import Driver
from forge_jobs.backends.postgres.connection.pool import PER_LOOP, Pool
from forge_jobs.backends.postgres.connection.server import Link
from forge_jobs.backends.postgres.store import PostgresStore
from forge_jobs.core.job import NewJob

JOB = NewJob(kind="any", queue="q")


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


def test_an_event_loop_that_ends_in_the_middle_of_enqueues_leaves_nothing(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The cancelled calls that waited for the next commit were sent while the loop ended: it closed
    with their task pending and their connection open."""

    async def end_early() -> None:
        store = PostgresStore(url)
        await store.open()
        tasks = [asyncio.create_task(store.jobs.enqueue([JOB])) for _ in range(3)]
        while not store._enqueuer._batches:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        left.extend(tasks)

    for _ in range(5):
        left: list[asyncio.Task[object]] = []
        asyncio.run(end_early())
        assert all(task.cancelled() for task in left)
    gc.collect()
    warned = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [record.getMessage() for record in warned if record.name == "asyncio"] == []
