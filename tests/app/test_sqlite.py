"""Forge on a SQLite file: the caller's own transactions, threads, forks, shared commits."""

import asyncio
import os
import sqlite3
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from forge_jobs import BadOption, Forge, testing
from forge_jobs.client.task import Task


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "forge.db"


@pytest.fixture
def forge(file: Path) -> Iterator[Forge]:
    with Forge(f"sqlite:///{file}") as made:
        yield made


@pytest.fixture
def job(forge: Forge) -> Task[[int], None]:
    @forge.task(queue="mail")
    def job(n: int) -> None: ...

    return job


@pytest.fixture
def mine(file: Path, forge: Forge) -> Iterator[sqlite3.Connection]:
    forge.ready()
    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE orders (n INTEGER)")
    connection.commit()
    yield connection
    connection.close()


def numbers(forge: Forge) -> list[int]:
    return sorted(job.payload["n"] for job in testing.enqueued(forge, "job"))


def test_a_job_exists_if_and_only_if_the_transaction_commits(
    forge: Forge, job: Task[[int], None], mine: sqlite3.Connection
) -> None:
    with mine:
        mine.execute("INSERT INTO orders VALUES (1)")
        stored = job.using(tx=mine).enqueue(1)
        assert len(stored.id) == 26
    assert stored.refresh().status == "pending"

    mine.execute("INSERT INTO orders VALUES (2)")
    lost = job.using(tx=mine, priority=3).enqueue(2)
    assert numbers(forge) == [1], "nobody sees it before the commit"
    mine.rollback()
    assert numbers(forge) == [1]
    with pytest.raises(Exception, match="does not exist here"):
        lost.refresh()

    with mine:
        handles = job.using(tx=mine).enqueue_many([(3,), (4,)])
        asyncio.run(_aenqueue(job, mine))
        forge.enqueue("job", {"n": 6}, tx=mine)
    assert [handle.refresh().payload["n"] for handle in handles] == [3, 4]
    assert numbers(forge) == [1, 3, 4, 5, 6]
    assert mine.execute("SELECT n FROM orders").fetchall() == [(1,)]


async def _aenqueue(job: Task[[int], None], mine: sqlite3.Connection) -> None:
    await job.using(tx=mine).aenqueue(5)


async def test_a_worker_takes_what_a_transaction_stored(forge: Forge, file: Path) -> None:
    @forge.task(queue="mail")
    async def double(n: int) -> int:
        return 2 * n

    async with forge.worker(queues=["mail"]):
        connection = sqlite3.connect(file)
        with connection:
            stored = double.using(tx=connection).enqueue(21)
        connection.close()
        assert await stored.aresult(timeout=30) == 42


def test_connections_that_cannot_be_joined(
    job: Task[[int], None], tmp_path: Path, forge: Forge, file: Path
) -> None:
    forge.ready()
    elsewhere = sqlite3.connect(tmp_path / "other.db")
    in_memory = sqlite3.connect(":memory:")
    automatic = sqlite3.connect(file, isolation_level=None)
    for connection, complaint in (
        (elsewhere, "but the jobs are in"),
        (in_memory, "has no file"),
        (automatic, "autocommit"),
        ("connection", "tx=str cannot be joined"),
    ):
        with pytest.raises(BadOption, match=complaint):
            job.using(tx=connection).enqueue(1)
    for connection in (elsewhere, in_memory, automatic):
        connection.close()
    driver = type("Connection", (), {"__module__": "psycopg.connection"})()
    with pytest.raises(BadOption, match="pass a connection to that file of sqlite3"):
        job.using(tx=driver).enqueue(1)
    assert numbers(forge) == []


def test_many_threads_enqueue(forge: Forge, job: Task[[int], None]) -> None:
    def produce(first: int) -> None:
        for n in range(first, first + 25):
            job.enqueue(n)

    threads = [threading.Thread(target=produce, args=(25 * t,)) for t in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert numbers(forge) == list(range(200))


async def test_many_coroutines_enqueue(forge: Forge, job: Task[[int], None]) -> None:
    await asyncio.gather(*(job.aenqueue(n) for n in range(300)))
    assert numbers(forge) == list(range(300))


def test_one_forge_on_several_loops_one_after_the_other(
    forge: Forge, job: Task[[int], None]
) -> None:
    async def once(n: int) -> None:
        await job.aenqueue(n)
        await forge.drain()

    for n in range(3):
        asyncio.run(once(n))
    assert [handle.status for handle in testing.enqueued(forge, "job")] == ["done"] * 3


def test_forked_children_enqueue_into_the_same_file(file: Path) -> None:
    script = f"""
        import os, warnings
        from forge_jobs import Forge

        warnings.simplefilter("ignore", DeprecationWarning)  # fork with threads is the point here
        forge = Forge("sqlite:///{file}")

        @forge.task
        def job(n: int) -> None: ...

        job.enqueue(0).refresh()
        children = []
        for number in range(1, 5):
            pid = os.fork()
            if pid == 0:
                for n in range(10):
                    handle = job.enqueue(100 * number + n)
                handle.refresh()
                forge.close()
                os._exit(0)
            children.append(pid)
        job.enqueue(1)
        assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * 4
        job.enqueue(2).refresh()
        forge.close()
    """
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env=dict(os.environ),
    )
    assert done.returncode == 0, done.stderr
    with Forge(f"sqlite:///{file}") as forge:
        expected = [0, 1, 2] + [100 * child + n for child in range(1, 5) for n in range(10)]
        assert numbers(forge) == sorted(expected)


def test_racing_first_uses_of_one_file(file: Path) -> None:
    found: list[str] = []

    def first_use(n: int) -> None:
        with Forge(f"sqlite:///{file}") as forge:
            found.append(forge.enqueue("job", {"n": n}).refresh().status)

    threads = [threading.Thread(target=first_use, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["pending"] * 6


def test_nothing_is_left_open(file: Path) -> None:
    # What other tests of this process left running is theirs.
    before = set(threading.enumerate())
    for n in range(3):
        with Forge(f"sqlite:///{file}") as forge:
            forge.enqueue("job", {"n": n}).refresh()
    # A child that has written its answer may still be exiting.
    for thread in set(threading.enumerate()) - before:
        thread.join(60)
        assert not thread.is_alive(), thread
    held = [opened.path for opened in psutil.Process().open_files()]
    assert not [path for path in held if path.startswith(str(file))]
    assert not (file.parent / "forge.db-wal").exists()
