"""R3: an exception from a signal handler, anywhere in a call, leaves SQLite consistent.

An interrupted call took effect completely or not at all. No transaction stays open, no lock is
held, no thread is stuck, and later calls behave as usual.
"""

import asyncio
import fcntl
import os
import random
import signal
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from forge_jobs import Forge
from forge_jobs.backends.sqlite.os.database_file import DatabaseFile
from forge_jobs.backends.sqlite.store import SqliteStore
from forge_jobs.core.errors import ForgeError
from tests.interrupting import Interrupt, Late, Tracing, alarm, not_stuck, raised_at, sweep

from .conftest import Start, ended

BULK = 20
BIG = "x" * 40_000


class Bench:
    """A Forge on a file, with a second connection to that file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.forge = Forge(f"sqlite:///{path}")
        self.task = self.forge.task(kind="swept")(_nothing)
        self.others = self.forge.task(kind="other-thread")(_nothing)
        self.marks = self.forge.task(kind="mark")(_nothing)
        self.number = 0
        self.marks.enqueue(0, "")

    def rows(self, statement: str, *values: object) -> list[tuple[object, ...]]:
        outside = sqlite3.connect(self.path, timeout=0)
        try:
            return outside.execute(statement, values).fetchall()
        finally:
            outside.close()

    def stored(self, number: int) -> int:
        """How many jobs of the call of that number are in the file."""
        pattern = f'%"n":{number},%'
        statement = (
            "SELECT count(*) FROM forge_jobs j LEFT JOIN forge_bodies b ON b.job = j.id"
            " WHERE j.kind = 'swept' AND CAST(coalesce(b.payload, j.payload) AS TEXT) LIKE ?"
        )
        ((count,),) = self.rows(statement, pattern)
        assert isinstance(count, int)
        return count

    def next_number(self) -> int:
        self.number += 1
        return self.number

    def check_unlocked(self, where: str) -> None:
        """Another process could write now, without waiting."""
        for name in ("turn-a.lock", "turn-b.lock"):
            lock = os.open(os.path.join(DatabaseFile.at(self.path).directory, name), os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                pytest.fail(f"{name} is held after an interrupt in {where}")
            finally:
                os.close(lock)
        outside = sqlite3.connect(self.path, timeout=0, isolation_level=None)
        try:
            outside.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            pytest.fail(f"{error} after an interrupt in {where}")
        finally:
            outside.close()

    def check_next_call(self, where: str) -> None:
        """The next call stores its job."""
        ((before,),) = self.rows("SELECT count(*) FROM forge_jobs WHERE kind = 'mark'")
        self.marks.enqueue(1, "")
        ((after,),) = self.rows("SELECT count(*) FROM forge_jobs WHERE kind = 'mark'")
        assert after == before + 1, f"an accepted job is missing after an interrupt in {where}"

    def check_counters(self) -> None:
        """The counters equal the rows."""
        store = self.forge.ready()
        counted = self.forge.client.access.run(lambda _: store.metrics.counts())
        ((rows,),) = self.rows("SELECT count(*) FROM forge_jobs")
        assert sum(row.jobs for row in counted) == rows
        assert self.rows("PRAGMA integrity_check") == [("ok",)]


def _nothing(n: int, text: str) -> None: ...


@pytest.fixture
def bench(path: Path) -> Iterator[Bench]:
    made = Bench(path)
    yield made
    made.forge.close()


def _plain(bench: Bench, number: int) -> None:
    bench.task.enqueue(number, "")


def _with_body(bench: Bench, number: int) -> None:
    bench.task.enqueue(number, BIG)


def _keyed(bench: Bench, number: int) -> None:
    bench.task.using(dedupe_key=str(number)).enqueue(number, "")


def _bulk(bench: Bench, number: int) -> None:
    bench.task.enqueue_many([(number, str(index)) for index in range(BULK)])


@pytest.mark.parametrize("error", [Interrupt, Late])
@pytest.mark.parametrize(
    ("call", "whole"), [(_plain, 1), (_with_body, 1), (_keyed, 1), (_bulk, BULK)]
)
def test_r3_an_enqueue_is_atomic(
    bench: Bench,
    call: Callable[[Bench, int], None],
    whole: int,
    error: type[BaseException],
) -> None:
    def check(tracing: Tracing) -> None:
        bench.check_unlocked(tracing.where)
        assert bench.stored(bench.number) in (0, whole), tracing.where
        bench.check_next_call(tracing.where)

    count = sweep(lambda: call(bench, bench.next_number()), check, error=error)
    assert count > 30, "the sweep has hit the call"
    ((lost,),) = bench.rows(
        "SELECT count(*) FROM forge_dedupe d WHERE NOT EXISTS"
        " (SELECT 1 FROM forge_jobs j WHERE j.id = d.job)"
    )
    assert lost == 0, "no key without its job"
    bench.check_counters()


@pytest.mark.parametrize("began", [True, False])
def test_r3_a_call_inside_a_users_transaction_is_atomic(bench: Bench, began: bool) -> None:
    """Whether the user then commits or rolls back, all jobs of the call are in it or none."""
    mine = sqlite3.connect(bench.path)
    mine.execute("CREATE TABLE orders (id INTEGER)")

    def call() -> None:
        number = bench.next_number()
        if began:
            mine.execute("BEGIN IMMEDIATE")
        bench.task.using(tx=mine).enqueue_many([(number, BIG) for _ in range(BULK)])

    def check(tracing: Tracing) -> None:
        assert mine.in_transaction or not began
        if bench.number % 2:
            mine.rollback()
            assert bench.stored(bench.number) == 0
        else:
            mine.execute("INSERT INTO orders VALUES (?)", (bench.number,))
            mine.commit()
            assert bench.stored(bench.number) in (0, BULK), tracing.where
        bench.check_unlocked(tracing.where)

    def fresh() -> None:
        if mine.in_transaction:
            mine.commit()
        call()

    assert sweep(fresh, check) > 30
    mine.commit()
    mine.close()
    bench.check_next_call("the last one")
    bench.check_counters()


def test_r3_cancel_and_result(bench: Bench) -> None:
    async def done() -> None:
        await bench.forge.drain()

    finished = bench.marks.enqueue(1, "")
    asyncio.run(done())
    access = bench.forge.client.access
    waiting = bench.task.enqueue(bench.next_number(), "")

    def check(tracing: Tracing) -> None:
        bench.check_next_call(tracing.where)
        assert waiting.refresh().status in ("pending", "cancelled")
        assert finished.result(timeout=10) is None
        assert not bench.forge.client.poller._waiters, "no waiter is left"
        assert access.run(_alive), "the I/O thread answers"

    assert sweep(waiting.cancel, check, max_points=40) > 10
    assert waiting.refresh().status == "cancelled", "it goes on when its caller is interrupted"
    assert sweep(lambda: finished.result(timeout=10), check, max_points=40) > 10
    bench.check_counters()


async def _alive(_: object) -> bool:
    return True


def test_r3_opening_and_closing(tmp_path: Path) -> None:
    """The next call repeats an interrupted ``open`` and completes an interrupted ``close``."""
    threads = set(threading.enumerate())
    forges = [Forge(f"sqlite:///{tmp_path}/0.db")]

    def used(tracing: Tracing) -> None:
        forges[-1].enqueue("later", {})
        closed(tracing)

    def closed(tracing: Tracing) -> None:
        forges[-1].close()
        forges[-1].enqueue("again", {})
        forges.append(Forge(f"sqlite:///{tmp_path}/{len(forges)}.db"))

    assert sweep(lambda: forges[-1].ready(), used, max_points=40) > 20  # noqa: PLW0108 - one each time

    closed_at: list[str] = []
    for point in range(60):
        forges.append(Forge(f"sqlite:///{tmp_path}/{len(forges)}.db"))
        forges[-1].ready()
        tracing = raised_at(point, forges[-1].close)
        closed_at += [tracing.where] if tracing.raised else []
        with not_stuck(tracing.where):
            forges[-1].close()
    assert len(closed_at) > 15
    for forge in forges:
        forge.close()
    until = time.monotonic() + 10
    while set(threading.enumerate()) - threads and time.monotonic() < until:
        time.sleep(0.01)
    assert set(threading.enumerate()) <= threads, "no thread is left"


def test_r3_other_calls_of_an_interrupted_group_get_true_results(bench: Bench) -> None:
    """Calls of other threads in the group: reported as stored if and only if stored."""
    accepted: Counter[int] = Counter()
    stop = threading.Event()
    failed: list[BaseException] = []
    lock = threading.Lock()

    def producer(first: int) -> None:
        number = first
        while not stop.is_set():
            number += 1
            try:
                bench.others.using(dedupe_key=str(number)).enqueue(number, "")
            except ForgeError as error:
                failed.append(error)
            else:
                with lock:
                    accepted[number] += 1

    threads = [
        threading.Thread(target=producer, args=(10_000_000 * worker,)) for worker in range(1, 5)
    ]
    for thread in threads:
        thread.start()

    def check(tracing: Tracing) -> None:
        assert bench.stored(bench.number) in (0, 1), tracing.where

    try:
        for _ in range(4):
            sweep(lambda: _keyed(bench, bench.next_number()), check, max_points=60)
    finally:
        stop.set()
        for thread in threads:
            thread.join(20)
    assert not any(thread.is_alive() for thread in threads), "no thread is stuck"
    assert failed == [], "nothing is wrong with their calls"
    ((stored,),) = bench.rows("SELECT count(*) FROM forge_jobs WHERE kind = 'other-thread'")
    ((twice,),) = bench.rows(
        "SELECT count(*) - count(DISTINCT payload) FROM forge_jobs WHERE kind = 'other-thread'"
    )
    assert (stored, twice) == (sum(accepted.values()), 0)
    bench.check_unlocked("the last one")
    bench.check_counters()


# A handler may also run in the callback of a weak reference: Python reports what it raises there.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.processes
@pytest.mark.parametrize("error", [KeyboardInterrupt, Late])
def test_r3_real_signals_with_threads_and_another_process(
    bench: Bench, start: Start, error: type[BaseException]
) -> None:
    """SIGALRM at any moment of calls on the main thread, while threads and a process write."""
    other = start("enqueue_many", bench.path, 400)
    dice = random.Random(3)
    accepted: list[int] = []
    stop = threading.Event()
    by_threads: list[int] = []

    def producer(first: int) -> None:
        number = first
        while not stop.is_set():
            number += 1
            bench.task.enqueue_many([(number, "a"), (number, "b")])
            by_threads.append(number)

    threads = [threading.Thread(target=producer, args=(10_000_000 * n,)) for n in (1, 2)]
    for thread in threads:
        thread.start()
    calls = ((_plain, 1), (_keyed, 1), (_bulk, BULK))
    interrupted = 0
    try:
        with alarm(error) as after:
            for _ in range(250):
                call, whole = dice.choice(calls)
                number = bench.next_number()
                try:
                    try:
                        after(dice.uniform(1e-5, 3e-3))
                        call(bench, number)
                        accepted.append(number)
                    finally:
                        signal.setitimer(signal.ITIMER_REAL, 0)
                except error:
                    interrupted += 1
                    signal.setitimer(signal.ITIMER_REAL, 0)
                if number % 25 == 0:
                    assert bench.stored(number) in (0, whole)
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
    assert interrupted > 10
    with not_stuck("the sweep"):
        bench.check_next_call("the sweep")
    numbers = Counter(
        int(str(payload).split('"n":')[1].split(",")[0])
        for (payload,) in bench.rows(
            "SELECT CAST(payload AS TEXT) FROM forge_jobs WHERE kind = 'swept'"
        )
    )
    assert [number for number in accepted if number not in numbers] == []
    assert [number for number in by_threads if numbers[number] != 2] == []
    assert {count for number, count in numbers.items()} <= {1, 2, BULK}
    assert ended(other).split()[0] == "400"
    assert bench.rows("SELECT count(*) FROM forge_jobs WHERE kind = 'other'") == [(400,)]
    bench.check_unlocked("the sweep")
    bench.check_counters()


def test_r3_the_sweep_sees_an_open_transaction(bench: Bench) -> None:
    """The checks themselves: a transaction that is left open does not pass."""
    connection = sqlite3.connect(bench.path, isolation_level=None)

    def careless() -> None:
        connection.execute("BEGIN IMMEDIATE")

    assert not raised_at(0, careless).raised
    with pytest.raises(pytest.fail.Exception, match="locked"):
        bench.check_unlocked("careless")
    connection.close()


async def test_r3_a_store_that_closes_ends_unowned_subscriptions(path: Path) -> None:
    """The subscriber may have been interrupted before it got the subscription."""
    store = SqliteStore(path)
    await store.open()
    subscription = await store.subscribe(["q"], lambda: None)
    await store.close()
    assert subscription.socket.fileno() == -1
    await subscription.close()
