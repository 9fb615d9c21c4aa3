"""The writer: what waits shares a commit, one bad operation fails alone, threads get through."""

import asyncio
import threading
from functools import partial
from pathlib import Path

import pytest

from forge_jobs.backends.sqlite.io.transaction import Tx
from forge_jobs.backends.sqlite.io.writer import Writer
from forge_jobs.backends.sqlite.store import SqliteStore
from forge_jobs.core.errors import Invalid, NotFound
from forge_jobs.core.job import NewJob
from forge_jobs.core.selection import BulkAction, Selection
from forge_jobs.store.jobs import Exchange, Want
from forge_jobs.store.processes import NewProcess
from forge_jobs.store.queues import QueueChange

A_JOB = NewJob(kind="k", queue="q")


def writer_of(store: SqliteStore) -> Writer:
    return store._writer  # type: ignore[reportPrivateUsage]


class Commits:
    """Counts the commits of a store's writer."""

    def __init__(self, store: SqliteStore) -> None:
        self.seen = 0
        connection = writer_of(store).connection  # type: ignore[reportPrivateUsage]
        assert connection is not None
        connection.set_trace_callback(self._trace)

    def _trace(self, statement: str) -> None:
        self.seen += statement == "COMMIT"


class BlockedWriter:
    """Keeps the writer busy until it is opened, so that a group gathers behind it."""

    def __init__(self, store: SqliteStore) -> None:
        self._free = threading.Event()
        self._inside = threading.Event()
        self._task = asyncio.create_task(writer_of(store).call(self._hold))

    def _hold(self, tx: Tx) -> None:
        self._inside.set()
        assert self._free.wait(30)

    async def wait_blocked(self) -> None:
        while not self._inside.is_set():
            await asyncio.sleep(0.001)

    async def open(self) -> None:
        self._free.set()
        await self._task


async def total(store: SqliteStore) -> int:
    return sum(count.jobs for count in await store.metrics.counts())


async def test_waiting_operations_share_one_commit(store: SqliteStore) -> None:
    blocked = BlockedWriter(store)
    await blocked.wait_blocked()
    waiting = [asyncio.create_task(store.jobs.enqueue([A_JOB])) for _ in range(100)]
    await asyncio.sleep(0.05)
    commits = Commits(store)
    await blocked.open()
    answers = await asyncio.gather(*waiting)
    assert [answer[0].key for answer in answers] == list(range(1, 101))
    assert commits.seen <= 3
    assert await total(store) == 100


async def test_one_bad_operation_fails_alone(store: SqliteStore) -> None:
    blocked = BlockedWriter(store)
    await blocked.wait_blocked()
    good = [asyncio.create_task(store.jobs.enqueue([A_JOB])) for _ in range(5)]
    bad = asyncio.create_task(store.queues.change("unknown", QueueChange(slots=3)))
    worse = asyncio.create_task(writer_of(store).call(_broken))
    good += [asyncio.create_task(store.jobs.enqueue([A_JOB])) for _ in range(5)]
    await asyncio.sleep(0.05)
    await blocked.open()
    answers = await asyncio.gather(*good)
    assert sorted(answer[0].key for answer in answers) == list(range(1, 11))
    with pytest.raises(NotFound):
        await bad
    with pytest.raises(Invalid, match="on purpose"):
        await worse
    assert await total(store) == 10


def _broken(tx: Tx) -> None:
    tx.execute("DELETE FROM forge_jobs")
    raise Invalid("broken on purpose")


async def test_a_long_group_is_split_into_several_commits(store: SqliteStore) -> None:
    order: list[int] = []
    blocked = BlockedWriter(store)
    await blocked.wait_blocked()

    def slow(number: int, tx: Tx) -> None:
        order.append(number)
        threading.Event().wait(0.015)

    waiting = [
        asyncio.create_task(writer_of(store).call(partial(slow, number))) for number in range(6)
    ]
    await asyncio.sleep(0.05)
    commits = Commits(store)
    await blocked.open()
    await asyncio.gather(*waiting)
    assert order == list(range(6))
    assert commits.seen >= 3


async def test_threads_and_loops_write_side_by_side(store: SqliteStore) -> None:
    failures: list[BaseException] = []

    def enqueue_singly() -> None:
        try:
            for _ in range(100):
                store.enqueue_sync([A_JOB])
                store.enqueue_sync([A_JOB, A_JOB])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=enqueue_singly) for _ in range(8)]
    for thread in threads:
        thread.start()
    for _ in range(50):
        await store.jobs.enqueue([A_JOB] * 10)
    await asyncio.to_thread(lambda: [thread.join() for thread in threads])
    assert failures == []
    assert await total(store) == 8 * 300 + 500


async def test_a_cancelled_caller_affects_no_other(store: SqliteStore) -> None:
    blocked = BlockedWriter(store)
    await blocked.wait_blocked()
    impatient = asyncio.create_task(store.jobs.enqueue([A_JOB]))
    patient = asyncio.create_task(store.jobs.enqueue([A_JOB]))
    await asyncio.sleep(0.02)
    impatient.cancel()
    await blocked.open()
    await patient
    assert impatient.cancelled() or (await asyncio.wait([impatient]))
    assert await total(store) == 2


async def test_closing_resolves_every_call(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    waiting = [asyncio.create_task(store.jobs.enqueue([A_JOB])) for _ in range(50)]
    await asyncio.sleep(0)
    await store.close()
    done, left = await asyncio.wait(waiting, timeout=30)
    assert not left
    stored = sum(task.exception() is None for task in done)
    await store.open()
    assert await total(store) == stored
    await store.close()


async def test_keys_are_never_assigned_twice(store: SqliteStore) -> None:
    (first,) = store.enqueue_sync([A_JOB])
    acted = await store.jobs.act(BulkAction.DELETE, Selection(ids=(first.id,)), limit=1)
    assert acted.changed == 1
    (second,) = store.enqueue_sync([A_JOB])
    assert second.key > first.key
    assert await store.jobs.get(first.id) is None


async def test_single_jobs_are_claimed_and_counted(store: SqliteStore) -> None:
    for number in range(20):
        store.enqueue_sync([NewJob(kind="k", queue="q", priority=number % 2)])
    assert await total(store) == 20
    assert list(await store.metrics.oldest_due()) == ["q"]
    key = await store.processes.register(
        NewProcess(host_id="h", label="h", queues=("q",), pid=1, hostname="here")
    )
    answer = await store.jobs.exchange(Exchange(owner=key, number=1, want=[Want("q", 15)]))
    expected = [*range(1, 20, 2), *range(2, 12, 2)]
    assert [job.key for job in answer.claims] == expected
    assert await total(store) == 20


async def test_many_single_jobs_are_ingested(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forge_jobs.backends.sqlite.enqueue._INGEST_EVERY", 16)
    store = SqliteStore(path, synchronous="normal")
    for _ in range(40):
        store.enqueue_sync([A_JOB])
    connection = writer_of(store).connection
    assert connection is not None
    assert connection.execute("SELECT ingested FROM forge_meta").fetchone() == (32,)
    claimable = connection.execute("SELECT count(*) FROM forge_jobs WHERE claimable IS NOT NULL")
    assert claimable.fetchone() == (32,)
    await store.close()
