"""Synchronous callers store plain jobs on their own thread, over a connection that the pool lends:
with the same effects, errors and connections as over the I/O thread."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import asyncpg
import psycopg
import pytest

from forge_jobs import Forge
from forge_jobs.backends.postgres.store import PostgresStore
from forge_jobs.core.errors import SchemaMismatch, Unknown
from tests.interrupting import Interrupt, Late, Tracing, sweep

from .proxy import faulty_proxy
from .server import PrivateServer
from .test_error_mapping import kill_backends
from .test_r1_fork import ran


class Producer:
    """A Forge with one task, and its pool."""

    def __init__(self, url: str) -> None:
        self.forge = Forge(url)
        self.task = self.forge.task(kind="plain", queue="q")(_nothing)
        self.task.enqueue(0)
        store = self.forge.store
        assert isinstance(store, PostgresStore)
        self.store = store
        self.pool = store._server.pool

    def is_lent(self) -> bool:
        return self.pool.lent is not None

    def stored(self) -> int:
        counted = self.forge.client.access.run(lambda store: store.metrics.counts())
        return sum(count.jobs for count in counted)


def _nothing(n: int) -> None: ...


@pytest.fixture
def producer(url: str) -> Iterator[Producer]:
    made = Producer(url)
    yield made
    made.forge.close()


def _until(condition: Callable[[], bool], why: str) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, why
        time.sleep(0.01)


def test_the_io_thread_has_no_part_in_the_second_call(producer: Producer) -> None:
    assert producer.is_lent()
    producer.forge.client.access.run = _no_run  # type: ignore[method-assign,assignment]
    jobs = [producer.task.enqueue(n) for n in range(50)]
    del producer.forge.client.access.run
    assert len({job.id for job in jobs}) == 50
    assert producer.stored() == 51
    assert {job.refresh().status for job in jobs} == {"pending"}
    asyncio.run(_drain(producer.forge))
    assert {job.refresh().status for job in jobs} == {"done"}


def _no_run(work: object) -> Any:
    raise AssertionError("this call went over the I/O thread")


async def _drain(forge: Forge) -> None:
    await forge.drain()


def test_texts_of_every_kind_are_stored_as_they_are(producer: Producer) -> None:
    values = ["", "ünïcödé ✓", "a'b\"c\\d", "x" * 1_500, "\x7f\t", "%s $1"]
    got: list[str] = []

    def collect(value: str) -> None:
        got.append(value)

    task = producer.forge.task(kind="text", queue="q")(collect)
    assert producer.is_lent()
    for value in values:
        task.enqueue(value)
    asyncio.run(_drain(producer.forge))
    assert sorted(got) == sorted(values)


@pytest.mark.parametrize("error", [Interrupt, Late])
def test_r3_a_direct_enqueue_is_atomic(
    producer: Producer, postgres: PrivateServer, schema: str, error: type[BaseException]
) -> None:
    """An exception at any point: the job is stored or not, and the next calls are right."""
    running = (
        "SELECT count(*) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
        f"AND state <> 'idle' AND query LIKE '%{schema}.%'"
    )
    before = 0

    def call() -> None:
        producer.task.enqueue(1)

    def check(tracing: Tracing) -> None:
        nonlocal before
        assert type(tracing.caught) is error, tracing.where
        # An interrupted caller does not wait for its statement.
        _until(lambda: postgres.sql(running).strip() == "0", "a statement still runs")
        stored = producer.stored()
        assert stored in (before, before + 1), tracing.where
        producer.task.enqueue(2)
        producer.task.enqueue(3)
        before = producer.stored()
        assert before == stored + 2, tracing.where
        producer.task.enqueue(4)
        before += 1

    # The sweep calls once without an exception, to count the points.
    before = producer.stored() + 2
    producer.task.enqueue(0)
    # A call that sends no notification has fewer points than one that does.
    assert sweep(call, check, error=error, max_points=60) > 15


@pytest.mark.processes
def test_r1_parent_and_child_have_their_own(url: str) -> None:
    said = ran(
        """
        for n in range(3):
            work.enqueue(n)
        assert forge.store._server.pool.lent is not None

        def life():
            assert forge.store._server.pool.lent is None
            for n in range(3):
                work.enqueue(n)
            assert forge.store._server.pool.lent is not None

        pids = [child_of(life) for _ in range(3)]
        for n in range(20):
            work.enqueue(n)
        ends_well(*pids)
        for n in range(2):
            work.enqueue(n)
        print(sum(c.jobs for c in forge.client.access.run(lambda store: store.metrics.counts())))
        forge.close()
        """,
        url,
    )
    assert said == [str(3 + 20 + 2 + 3 * 3)]


def test_a_connection_that_ended_while_idle_is_replaced(
    producer: Producer, postgres: PrivateServer
) -> None:
    for _ in range(3):
        assert producer.is_lent()
        kill_backends(postgres)
        producer.task.enqueue(1)
        producer.task.enqueue(1)
    assert producer.stored() == 7


async def test_a_lost_reply_is_an_unknown_effect(url: str, postgres: PrivateServer) -> None:
    async with faulty_proxy(url) as (proxy, through):
        producer = await asyncio.to_thread(Producer, through)
        await asyncio.to_thread(producer.task.enqueue, 1)
        assert producer.is_lent()
        proxy.swallow = True
        with pytest.raises(Unknown, match="may have had its effect"):
            await asyncio.to_thread(producer.task.enqueue, 2)
        assert proxy.swallowed == 1
        await asyncio.to_thread(producer.task.enqueue, 3)
        assert await asyncio.to_thread(producer.stored) == 4
        await asyncio.to_thread(producer.forge.close)


def test_an_error_reply_is_that_of_the_other_way(
    producer: Producer, postgres: PrivateServer, schema: str
) -> None:
    with psycopg.connect(postgres.url(), autocommit=True) as outside:
        outside.execute(f"ALTER TABLE {schema}.jobs RENAME TO hidden_jobs".encode())
        try:
            with pytest.raises(SchemaMismatch):
                producer.task.enqueue(1)
        finally:
            outside.execute(f"ALTER TABLE {schema}.hidden_jobs RENAME TO jobs".encode())
    producer.task.enqueue(2)
    producer.task.enqueue(3)
    assert producer.is_lent()
    assert producer.stored() == 3


def test_an_error_after_the_commit_is_an_unknown_effect(
    producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer.store._notifier.direct, "text", lambda *_: "x" * 9_000)
    with pytest.raises(Unknown, match="may be stored"):
        producer.task.enqueue(1)
    monkeypatch.undo()
    assert producer.stored() == 2


async def test_other_loops_get_the_lent_connection(producer: Producer) -> None:
    """At the maximum it is taken back, also while callers use it all the time."""
    over = threading.Event()
    calls: list[int] = []

    def caller() -> None:
        while not over.is_set():
            producer.task.enqueue(1)
            calls.append(1)

    def elsewhere() -> None:
        async def reads() -> None:
            for _ in range(5):
                await asyncio.gather(*(producer.store.metrics.counts() for _ in range(3)))

        asyncio.run(reads())

    thread = threading.Thread(target=caller)
    thread.start()
    try:
        async with asyncio.timeout(60):
            await asyncio.gather(*(asyncio.to_thread(elsewhere) for _ in range(6)))
        assert producer.pool.count() <= 3
    finally:
        over.set()
        await asyncio.to_thread(thread.join)
    assert await asyncio.to_thread(producer.stored) == 1 + len(calls)


def test_threads_store_all_their_jobs(producer: Producer) -> None:
    def calls() -> None:
        for n in range(40):
            producer.task.enqueue(n)

    threads = [threading.Thread(target=calls) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert producer.stored() == 1 + 5 * 40
    assert producer.pool.count() <= 2


def test_close_waits_for_a_call_that_is_running(
    producer: Producer, postgres: PrivateServer, schema: str
) -> None:
    ended: list[object] = []

    def call() -> None:
        ended.append(producer.task.enqueue(1))

    with psycopg.connect(postgres.url()) as blocker:
        blocker.execute(f"LOCK TABLE {schema}.jobs IN ACCESS EXCLUSIVE MODE".encode())
        caller = threading.Thread(target=call)
        caller.start()
        lent = producer.pool.lent
        assert lent is not None
        _until(lent.lock.locked, "the call does not use the lent connection")
        closer = threading.Thread(target=producer.forge.close)
        closer.start()
        time.sleep(0.2)
        assert closer.is_alive()
        blocker.rollback()
    caller.join(20)
    closer.join(20)
    assert len(ended) == 1
    assert producer.pool.count() == 0
    assert producer.stored() == 2


async def test_the_first_and_the_last_job_of_a_series_are_notified(
    producer: Producer, url: str
) -> None:
    """Also with nobody calling any more: the I/O thread sends what is left."""
    listener = await asyncpg.connect(url.partition("?schema")[0].partition("&schema")[0])
    heard: list[str] = []
    channel = producer.store._server.address.channel
    await listener.add_listener(channel, lambda *found: heard.append(found[3]))
    await asyncio.sleep(0.1)
    await asyncio.to_thread(producer.task.enqueue, 1)
    async with asyncio.timeout(20):
        while not heard:
            await asyncio.sleep(0.01)
        assert heard[0].startswith("q?"), "one job: one worker claims it"
        await asyncio.sleep(0.1)
        heard.clear()
        await asyncio.to_thread(lambda: [producer.task.enqueue(n) for n in range(3)])
        # On a slow machine each of them may be the first of its 10 ms, and is told by itself.
        while "q" not in heard and len(heard) < 3:
            await asyncio.sleep(0.01)
    await listener.close()
