"""One awaited enqueue after the other: written on the event loop while nobody else writes.

Many at once share a commit on the thread, and the loop never waits for another writer.
"""

import asyncio
import fcntl
import os
import sqlite3
import threading
import time
from asyncio import events
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from forge_jobs import StoreReplaced
from forge_jobs.backends.sqlite.io.writer import Writer
from forge_jobs.backends.sqlite.os.database_file import DatabaseFile
from forge_jobs.backends.sqlite.store import SqliteStore
from forge_jobs.core.errors import Closed
from forge_jobs.core.job import NewJob
from tests.interrupting import Interrupt, Late, Tracing, sweep

A_JOB = NewJob(kind="k", queue="q")
THREAD = "forge-sqlite-write"
HELD_S = 1.5


def writer_of(store: SqliteStore) -> Writer:
    return store._writer  # type: ignore[reportPrivateUsage]


def has_thread() -> bool:
    """Whether a store of this process has handed something over to its writer thread."""
    return any(thread.name == THREAD for thread in threading.enumerate())


def stored(path: Path) -> int:
    outside = sqlite3.connect(path)
    try:
        return outside.execute("SELECT count(*) FROM forge_jobs").fetchone()[0]
    finally:
        outside.close()


class Transactions:
    """Counts the write transactions of a store: its commits, and inserts on their own."""

    def __init__(self, store: SqliteStore) -> None:
        self.commits = self.inserts = 0
        connection = writer_of(store).connection
        assert connection is not None
        self._connection = connection
        connection.set_trace_callback(self._trace)

    def _trace(self, statement: str) -> None:
        self.commits += statement == "COMMIT"
        # A trace shows a statement before it runs, so one on its own has no transaction yet.
        self.inserts += statement.startswith("INSERT") and not self._connection.in_transaction


@pytest.mark.parametrize("synchronous", ["mixed", "full", "normal"])
async def test_one_after_the_other_needs_no_thread(path: Path, synchronous: str) -> None:
    store = SqliteStore(path, synchronous=synchronous)
    await store.open()
    count = Transactions(store)
    keys = [(await store.jobs.enqueue([A_JOB]))[0].key for _ in range(20)]
    assert keys == list(range(1, 21))
    # All but those after a commit that took longer than a millisecond.
    assert count.inserts > 0
    assert count.inserts + count.commits == stored(path) == 20
    await store.close()


async def test_many_at_once_share_commits(store: SqliteStore, path: Path) -> None:
    count = Transactions(store)

    async def caller() -> None:
        for _ in range(5):
            await store.jobs.enqueue([A_JOB])

    await asyncio.gather(*(caller() for _ in range(100)))
    assert stored(path) == 500
    assert count.commits + count.inserts <= 100


async def test_two_at_once_share_a_commit(store: SqliteStore) -> None:
    await store.jobs.enqueue([A_JOB, A_JOB])
    count = Transactions(store)
    await asyncio.gather(store.jobs.enqueue([A_JOB]), store.jobs.enqueue([A_JOB]))
    assert count.inserts == 0


async def test_others_get_their_turn_between_two_calls(store: SqliteStore) -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(count())
    for _ in range(50):
        await store.jobs.enqueue([A_JOB])
    beside.cancel()
    assert turns >= 50


async def test_cancelled_before_its_turn_it_stores_nothing(store: SqliteStore, path: Path) -> None:
    task = asyncio.create_task(store.jobs.enqueue([A_JOB]))
    asyncio.get_running_loop().call_soon(task.cancel)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert stored(path) == 0
    await store.jobs.enqueue([A_JOB])
    assert stored(path) == 1


async def test_cancelled_after_a_second_call_came_it_affects_only_itself(
    store: SqliteStore, path: Path
) -> None:
    first = asyncio.create_task(store.jobs.enqueue([A_JOB]))
    second = asyncio.create_task(store.jobs.enqueue([A_JOB]))
    asyncio.get_running_loop().call_soon(first.cancel)
    with pytest.raises(asyncio.CancelledError):
        await first
    await second
    # The second has handed both over before the cancel.
    assert stored(path) == 2


@contextmanager
def foreign_transaction(path: Path) -> Iterator[None]:
    """A program without this library writes."""
    outside = sqlite3.connect(path, isolation_level=None)
    try:
        outside.execute("BEGIN IMMEDIATE")
        yield
    finally:
        outside.close()


@contextmanager
def fair_lock_held(path: Path) -> Iterator[None]:
    """Another process with this library writes."""
    name = os.path.join(DatabaseFile.at(path).directory, "turn-b.lock")
    lock = os.open(name, os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


@pytest.mark.parametrize("held", [foreign_transaction, fair_lock_held])
async def test_the_loop_does_not_wait_for_another_writer(
    store: SqliteStore, path: Path, held: Callable[[Path], Any]
) -> None:
    await store.jobs.enqueue([A_JOB])
    longest_s, last = 0.0, time.monotonic()
    with held(path):
        waiting = asyncio.create_task(store.jobs.enqueue([A_JOB]))
        until = last + HELD_S
        while last < until:
            await asyncio.sleep(0.01)
            longest_s, last = max(longest_s, time.monotonic() - last), time.monotonic()
        assert not waiting.done()
    await waiting
    assert longest_s < 1
    assert stored(path) == 2


async def test_after_two_slow_inserts_the_thread_writes_for_a_while(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forge_jobs.backends.sqlite.io.writer._MAX_INSERT_S", 0.0)
    monkeypatch.setattr("forge_jobs.backends.sqlite.io.writer._SLOW_INSERT_FACTOR", 10**6)
    count = Transactions(store)
    for _ in range(3):
        await store.jobs.enqueue([A_JOB])
    assert (count.inserts, count.commits) == (2, 1)
    assert has_thread()


async def test_closed_while_it_waits_for_its_turn(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    task = asyncio.create_task(store.jobs.enqueue([A_JOB]))
    asyncio.get_running_loop().call_soon(writer_of(store).close)
    with pytest.raises(Closed):
        await asyncio.wait_for(task, 30)
    await store.close()


@pytest.mark.parametrize("how", ["removed", "replaced"])
async def test_r11_no_awaited_enqueue_is_accepted_by_a_replaced_file(
    store: SqliteStore, path: Path, how: str
) -> None:
    await store.jobs.enqueue([A_JOB])
    if how == "removed":
        path.unlink()
    else:
        path.with_name("other.db").write_bytes(path.read_bytes())
        path.with_name("other.db").replace(path)
    for _ in range(3):
        with pytest.raises(StoreReplaced):
            await store.jobs.enqueue([A_JOB])


def test_two_loops_in_two_threads(path: Path) -> None:
    store = SqliteStore(path)
    store.enqueue_sync([A_JOB])
    failures: list[BaseException] = []

    async def enqueue() -> None:
        for _ in range(200):
            await store.jobs.enqueue([A_JOB])

    def run() -> None:
        try:
            asyncio.run(enqueue())
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert stored(path) == 401
    asyncio.run(store.close())


async def test_single_jobs_are_ingested(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forge_jobs.backends.sqlite.enqueue._INGEST_EVERY", 1)
    store = SqliteStore(path, synchronous="normal")
    await store.open()
    await store.jobs.enqueue([A_JOB])
    await writer_of(store).call(lambda tx: None)
    outside = sqlite3.connect(path)
    assert outside.execute("SELECT ingested FROM forge_meta").fetchone() == (1,)
    outside.close()
    assert sum(count.jobs for count in await store.metrics.counts()) == 1
    await store.close()


def driven(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any]) -> None:
    """Run a coroutine that waits for its turn once. Without the steps of asyncio, which a signal
    handler's exception would end as well."""
    events._set_running_loop(loop)
    try:
        assert coroutine.send(None) is None
        with pytest.raises(StopIteration):
            coroutine.send(None)
    finally:
        events._set_running_loop(None)
        coroutine.close()


# An interrupt may come between making the coroutine and awaiting it.
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize("error", [Interrupt, Late])
def test_r3_an_awaited_enqueue_is_atomic(
    path: Path, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Tracing makes every insert slow.
    monkeypatch.setattr("forge_jobs.backends.sqlite.io.writer._MAX_INSERT_S", 60.0)
    store = SqliteStore(path)
    store.enqueue_sync([A_JOB])
    loop, before = asyncio.new_event_loop(), 0

    def call() -> None:
        nonlocal before
        before = stored(path)
        driven(loop, store.jobs.enqueue([A_JOB]))

    def check(tracing: Tracing) -> None:
        assert stored(path) - before in (0, 1), tracing.where
        with fair_lock_held(path):
            pass
        with foreign_transaction(path):
            pass
        known = stored(path)
        loop.run_until_complete(store.jobs.enqueue([A_JOB]))
        # An interrupted call that waited for its turn may be stored by the next one.
        assert stored(path) - known in (1, 2), tracing.where

    assert sweep(call, check, error=error) > 15, "the sweep has hit the call"
    loop.run_until_complete(store.close())
    loop.close()
