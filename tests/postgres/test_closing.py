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


class _SlowToClose:
    """A connection whose server does not confirm the close."""

    def __init__(self) -> None:
        self.closing = asyncio.Event()
        self.ended = False

    async def close(self, *, timeout: float | None = None) -> None:
        self.closing.set()
        await asyncio.sleep(3_600)

    def terminate(self) -> None:
        self.ended = True

    def is_closed(self) -> bool:
        return self.ended


@pytest.mark.parametrize("number", [1, 2])
async def test_r3_a_close_that_is_cancelled_leaves_no_connection(number: int) -> None:
    """Another event loop cancels it after two seconds. Of two idle connections the one whose turn
    had not come stayed open, and was in no list any more."""
    made: list[_SlowToClose] = []

    async def connect() -> Driver:
        made.append(_SlowToClose())
        return made[-1]  # type: ignore[return-value]

    pool = Pool(connect)
    for driver in [(await pool.acquire())[0] for _ in range(number)]:
        pool.release(driver)
    closing = asyncio.create_task(pool.close())
    await asyncio.wait(
        [asyncio.create_task(one.closing.wait()) for one in made],
        return_when=asyncio.FIRST_COMPLETED,
    )
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert [driver.ended for driver in made] == [True] * number
    assert pool.count() == 0


class _Interrupt(BaseException):
    """What a signal handler raises."""


async def test_r3_an_exception_of_a_signal_handler_in_a_call_drops_its_connection(
    store: PostgresStore,
) -> None:
    """It stayed in use for ever: its place was lost, and no close reached it."""
    used: list[Driver] = []

    async def work(link: Link) -> None:
        used.append(link.driver)
        await link.fetch("SELECT 1")
        raise _Interrupt

    before = store._server.pool.count()
    for _ in range(PER_LOOP + 1):
        with pytest.raises(_Interrupt):
            await asyncio.wait_for(store._server.within(work), 30)
    assert [driver.is_closed() for driver in used] == [True] * (PER_LOOP + 1)
    assert store._server.pool.count() <= before
    await store.now()


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
