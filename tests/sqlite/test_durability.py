"""What is on the disk, and who may read it."""

import os
import sqlite3
import stat
from pathlib import Path

import pytest

from forge_jobs.backends.sqlite.store import SqliteStore
from forge_jobs.core.decide import done
from forge_jobs.core.job import NewJob
from forge_jobs.store.jobs import Exchange, Want
from forge_jobs.store.processes import NewProcess

FULL, NORMAL = 2, 1
A_JOB = NewJob(kind="k", queue="q")


class Levels:
    """The synchronous level at each commit of a store's writer."""

    def __init__(self, store: SqliteStore) -> None:
        self._connection: sqlite3.Connection = store._writer.connection  # type: ignore
        self.at_commit: list[int] = []
        self._connection.set_trace_callback(self._trace)

    def _trace(self, statement: str) -> None:
        if statement == "COMMIT" or statement.startswith("INSERT INTO forge_jobs"):
            self._connection.set_trace_callback(None)
            (level,) = self._connection.execute("PRAGMA synchronous").fetchone()
            self.at_commit.append(level)
            self._connection.set_trace_callback(self._trace)

    def taken(self) -> set[int]:
        found, self.at_commit = set(self.at_commit), []
        return found


async def registered(store: SqliteStore) -> int:
    return await store.processes.register(
        NewProcess(host_id="h", label="h", queues=("q",), pid=1, hostname="here")
    )


async def test_whatever_stores_a_job_is_full_and_the_rest_is_normal(store: SqliteStore) -> None:
    key = await registered(store)
    levels = Levels(store)
    store.enqueue_sync([A_JOB])
    assert levels.taken() == {FULL}
    await store.jobs.enqueue([A_JOB, A_JOB])
    assert levels.taken() == {FULL}
    claimed = await store.jobs.exchange(Exchange(owner=key, number=1, want=[Want("q", 3)]))
    assert levels.taken() == {NORMAL}
    first, second, _ = claimed.claims
    plain = Exchange(owner=key, number=2, finish=[done(first, result=None)])
    await store.jobs.exchange(plain)
    assert levels.taken() == {NORMAL}
    carrying = done(second, result=None, jobs=(A_JOB,))
    await store.jobs.exchange(Exchange(owner=key, number=3, finish=[carrying]))
    assert levels.taken() == {FULL}


async def test_normal_in_the_address_is_normal_throughout(path: Path) -> None:
    store = SqliteStore(path, synchronous="normal")
    await store.open()
    levels = Levels(store)
    store.enqueue_sync([A_JOB])
    await store.jobs.enqueue([A_JOB])
    assert levels.taken() == {NORMAL}
    await store.close()


async def test_full_in_the_address_is_full_throughout(path: Path) -> None:
    store = SqliteStore(path, synchronous="full")
    await store.open()
    key = await registered(store)
    levels = Levels(store)
    store.enqueue_sync([A_JOB])
    claimed = await store.jobs.exchange(Exchange(owner=key, number=1, want=[Want("q", 1)]))
    ending = [done(claimed.claims[0], result=None)]
    await store.jobs.exchange(Exchange(owner=key, number=2, finish=ending))
    assert levels.taken() == {FULL}
    await store.close()


async def test_the_wal_has_no_automatic_checkpoints(store: SqliteStore) -> None:
    store.enqueue_sync([A_JOB])
    connection: sqlite3.Connection = store._writer.connection  # type: ignore
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert connection.execute("PRAGMA wal_autocheckpoint").fetchone() == (0,)


async def test_files_are_for_their_owner_alone(store: SqliteStore, path: Path) -> None:
    await registered(store)
    store.enqueue_sync([A_JOB])
    for suffix in ("", "-wal", "-shm"):
        assert stat.S_IMODE(os.stat(f"{path}{suffix}").st_mode) == 0o600, suffix
    for root, directories, names in os.walk(f"{path}-forge"):
        for name in directories:
            assert stat.S_IMODE(os.stat(os.path.join(root, name)).st_mode) == 0o700
        for name in names:
            assert stat.S_IMODE(os.stat(os.path.join(root, name)).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(f"{path}-forge").st_mode) == 0o700


async def test_the_log_is_checkpointed_before_it_grows_long(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("io.session", "io.connection"):
        monkeypatch.setattr(f"forge_jobs.backends.sqlite.{module}.WAL_KEEP_BYTES", 1 << 20)
    store = SqliteStore(path, synchronous="normal")
    largest = 0
    for _ in range(1_500):
        store.enqueue_sync([A_JOB])
        largest = max(largest, os.stat(f"{path}-wal").st_size)
    assert 1 << 20 < largest < 3 << 20
    assert os.stat(path).st_size > 100_000
    await store.close()


async def test_a_closed_store_opens_again_and_has_everything(path: Path) -> None:
    store = SqliteStore(path)
    (stored,) = store.enqueue_sync([A_JOB])
    await store.close()
    assert not os.path.exists(f"{path}-wal")
    await store.open()
    found = await store.jobs.get(stored.id)
    assert found is not None
    assert found.key == stored.key
    await store.close()


async def test_a_restored_copy_gets_its_log_back(store: SqliteStore, path: Path) -> None:
    (stored,) = store.enqueue_sync([A_JOB])
    copy = path.with_name("copy.db")
    connection = sqlite3.connect(path)
    connection.execute("VACUUM INTO ?", (str(copy),))
    connection.close()
    restored = SqliteStore(copy)
    await restored.open()
    assert await restored.jobs.get(stored.id) is not None
    connection = restored._writer.connection  # type: ignore
    assert connection is not None
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    await restored.close()
