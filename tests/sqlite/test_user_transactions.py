"""``tx=``: jobs inside a user's own sqlite3 transaction exist if and only if it commits."""

import asyncio
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from forge_jobs.backends.sqlite.store import SqliteStore
from forge_jobs.core.errors import BadOption, Unavailable
from forge_jobs.core.job import NewJob
from forge_jobs.core.status import JobStatus
from forge_jobs.store.jobs import Exchange, Want
from forge_jobs.store.processes import NewProcess

A_JOB = NewJob(kind="k", queue="q", payload=b'{"a":1}')
KEYED = NewJob(kind="k", queue="q", dedupe_key="one")


@pytest.fixture
def connection(store: SqliteStore, path: Path) -> Iterator[sqlite3.Connection]:
    """A program's own connection, with its own table in the same file."""
    opened = sqlite3.connect(path)
    opened.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, what TEXT)")
    opened.commit()
    yield opened
    opened.close()


async def total(store: SqliteStore) -> int:
    return sum(count.jobs for count in await store.metrics.counts())


async def test_a_commit_brings_both_and_a_rollback_neither(
    store: SqliteStore, connection: sqlite3.Connection
) -> None:
    connection.execute("INSERT INTO orders (what) VALUES ('bread')")
    (kept,) = store.enqueue_in(connection, [A_JOB])
    assert connection.in_transaction
    assert await total(store) == 0
    assert await store.jobs.get(kept.id) is None
    connection.commit()
    assert await total(store) == 1
    found = await store.jobs.get(kept.id)
    assert found is not None
    assert found.payload == A_JOB.payload
    connection.execute("INSERT INTO orders (what) VALUES ('wine')")
    store.enqueue_in(connection, [A_JOB, A_JOB])
    connection.rollback()
    assert await total(store) == 1
    assert connection.execute("SELECT what FROM orders").fetchall() == [("bread",)]


async def test_without_a_transaction_one_is_begun(
    store: SqliteStore, connection: sqlite3.Connection
) -> None:
    store.enqueue_in(connection, [A_JOB])
    assert connection.in_transaction
    assert await total(store) == 0
    connection.commit()
    assert await total(store) == 1


async def test_autocommit_needs_a_transaction(store: SqliteStore, path: Path) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    with pytest.raises(BadOption, match="BEGIN IMMEDIATE"):
        store.enqueue_in(connection, [A_JOB])
    connection.execute("BEGIN")
    store.enqueue_in(connection, [A_JOB])
    connection.execute("COMMIT")
    connection.close()
    assert await total(store) == 1


async def test_keys_hold_across_transactions(
    store: SqliteStore, connection: sqlite3.Connection
) -> None:
    (first,) = store.enqueue_in(connection, [KEYED])
    (again,) = store.enqueue_in(connection, [KEYED])
    assert (again.key, again.duplicate) == (first.key, True)
    connection.commit()
    (outside,) = store.enqueue_sync([KEYED])
    assert (outside.key, outside.duplicate) == (first.key, True)
    (inside,) = store.enqueue_in(connection, [KEYED])
    connection.rollback()
    assert (inside.key, inside.duplicate) == (first.key, True)


async def test_a_rolled_back_key_is_free(
    store: SqliteStore, connection: sqlite3.Connection
) -> None:
    store.enqueue_in(connection, [KEYED])
    connection.rollback()
    (stored,) = store.enqueue_sync([KEYED])
    assert not stored.duplicate


async def test_the_users_factories_do_not_matter(
    store: SqliteStore, connection: sqlite3.Connection
) -> None:
    connection.row_factory = sqlite3.Row
    connection.text_factory = bytes
    store.enqueue_in(connection, [KEYED])
    (again,) = store.enqueue_in(connection, [KEYED])
    assert (again.duplicate, again.status) == (True, JobStatus.PENDING)
    connection.commit()


async def test_other_connections_are_refused(store: SqliteStore, tmp_path: Path) -> None:
    with pytest.raises(BadOption, match=r"pass a connection to that file"):
        store.enqueue_in(object(), [A_JOB])
    for target in (":memory:", tmp_path / "other.db"):
        other = sqlite3.connect(target)
        with pytest.raises(BadOption, match="the jobs are in"):
            store.enqueue_in(other, [A_JOB])
        other.close()


async def test_a_snapshot_that_is_too_old_is_unavailable(
    store: SqliteStore, connection: sqlite3.Connection
) -> None:
    connection.execute("BEGIN")
    connection.execute("SELECT * FROM orders").fetchall()
    store.enqueue_sync([A_JOB])
    with pytest.raises(Unavailable, match="BEGIN IMMEDIATE"):
        store.enqueue_in(connection, [A_JOB])
    connection.rollback()
    assert await total(store) == 1


async def test_a_listener_is_notified_after_the_commit(
    store: SqliteStore, connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forge_jobs.backends.sqlite.notify._POLL_S", 600.0)
    notified = asyncio.Event()
    subscription = await store.subscribe(["q"], notified.set)
    store.enqueue_in(connection, [A_JOB])
    await asyncio.sleep(0.05)
    assert not notified.is_set()
    connection.commit()
    await asyncio.wait_for(notified.wait(), 60)
    await subscription.close()


async def test_many_jobs_and_their_counters(
    store: SqliteStore, connection: sqlite3.Connection
) -> None:
    store.enqueue_in(connection, [A_JOB] * 100)
    connection.commit()
    key = await store.processes.register(
        NewProcess(host_id="h", label="h", queues=("q",), pid=1, hostname="here")
    )
    answer = await store.jobs.exchange(Exchange(owner=key, number=1, want=[Want("q", 30)]))
    assert len(answer.claims) == 30
    counts = {count.status: count.jobs for count in await store.metrics.counts()}
    assert counts == {JobStatus.PENDING: 70, JobStatus.RUNNING: 30}
    (minute,) = await store.metrics.minutes(since=0, until=1 << 60)
    assert minute.enqueued == 100


async def test_a_store_opens_during_a_long_transaction(
    store: SqliteStore, connection: sqlite3.Connection, path: Path
) -> None:
    connection.execute("INSERT INTO orders (what) VALUES ('bread')")
    other = SqliteStore(path)
    await other.open()
    (stored,) = other.enqueue_in(connection, [A_JOB])
    connection.commit()
    assert await other.jobs.get(stored.id) is not None
    await other.close()


async def test_ids_of_rolled_back_jobs_name_no_other_job(store: SqliteStore, path: Path) -> None:
    """An id is made of key and millisecond; a rollback lets SQLite assign its keys again."""
    connection = sqlite3.connect(path, isolation_level=None)
    seen: list[str] = []

    def enqueue() -> None:
        seen.extend(stored.id for stored in store.enqueue_in(connection, [A_JOB]))

    connection.execute("BEGIN IMMEDIATE")
    for _ in range(40):
        connection.execute("SAVEPOINT inner")
        enqueue()
        connection.execute("ROLLBACK TO inner")
    connection.rollback()
    for _ in range(20):
        connection.execute("BEGIN IMMEDIATE")
        enqueue()
        connection.rollback()
        seen.append(store.enqueue_sync([A_JOB])[0].id)
    connection.close()
    assert len(set(seen)) == 80
    assert await total(store) == 20
