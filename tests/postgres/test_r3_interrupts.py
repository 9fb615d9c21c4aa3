"""R3: an exception from a signal handler, anywhere in a call, leaves Postgres consistent.

Synchronous calls wait for the I/O thread. It continues when they are interrupted, so that a call
takes effect completely; no thread is stuck and no transaction stays open.
"""

import asyncio
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator

import psycopg
import pytest

from forge_jobs import Forge
from tests.interrupting import Interrupt, Late, Tracing, alarm, not_stuck, raised_at, sweep

from .server import PrivateServer

BULK = 20


class Bench:
    """A Forge on a schema, and queries on that schema from outside."""

    def __init__(self, url: str, schema: str, outside: "psycopg.Connection[tuple[object, ...]]"):
        self.url = url
        self.schema = schema
        self.outside = outside
        self.forge = Forge(url)
        self.task = self.forge.task(kind="swept")(_nothing)
        self.marks = self.forge.task(kind="mark")(_nothing)
        self.number = 0
        self.marks.enqueue(0)

    def count(self, condition: str, *values: object) -> int:
        found = self.outside.execute(
            f"SELECT count(*) FROM {self.schema}.jobs WHERE {condition}", values
        ).fetchone()
        assert found is not None
        assert isinstance(found[0], int)
        return found[0]

    def stored(self, number: int) -> int:
        return self.count("kind = 'swept' AND %s = ANY(tags)", str(number))

    def next_number(self) -> int:
        self.number += 1
        return self.number

    def check_honest(self, where: str) -> None:
        before = self.count("kind = 'mark'")
        self.marks.enqueue(1)
        assert self.count("kind = 'mark'") == before + 1, where

    def check_idle(self) -> None:
        """No connection of ours stays in a transaction."""
        until = time.monotonic() + 10
        while time.monotonic() < until:
            found = self.outside.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%%'"
                " AND query LIKE %s",
                (f"%{self.schema}%",),
            ).fetchone()
            if found == (0,):
                return
            time.sleep(0.05)
        pytest.fail("a transaction stays open")


def _nothing(n: int) -> None: ...


@pytest.fixture
def bench(postgres: PrivateServer, url: str, schema: str) -> Iterator[Bench]:
    with psycopg.connect(postgres.url(), autocommit=True) as outside:
        made = Bench(url, schema, outside)
        yield made
        made.forge.close()


def _plain(bench: Bench, number: int) -> None:
    bench.task.using(tags=[str(number)]).enqueue(number)


def _keyed(bench: Bench, number: int) -> None:
    bench.task.using(tags=[str(number)], dedupe_key=str(number)).enqueue(number)


def _bulk(bench: Bench, number: int) -> None:
    bench.task.using(tags=[str(number)]).enqueue_many([(place,) for place in range(BULK)])


@pytest.mark.parametrize("error", [Interrupt, Late])
@pytest.mark.parametrize(("call", "whole"), [(_plain, 1), (_keyed, 1), (_bulk, BULK)])
def test_r3_an_enqueue_is_atomic(
    bench: Bench,
    call: Callable[[Bench, int], None],
    whole: int,
    error: type[BaseException],
) -> None:
    def check(tracing: Tracing) -> None:
        assert bench.stored(bench.number) in (0, whole), tracing.where
        bench.check_honest(tracing.where)

    assert sweep(lambda: call(bench, bench.next_number()), check, error=error, max_points=60) > 30
    bench.check_idle()


def test_r3_a_call_inside_a_users_transaction_is_atomic(
    bench: Bench, postgres: PrivateServer
) -> None:
    """Whether the user then commits or rolls back, all jobs of the call are in it or none."""
    with psycopg.connect(postgres.url()) as mine:

        def call() -> None:
            number = bench.next_number()
            bound = bench.task.using(tx=mine, tags=[str(number)])
            bound.enqueue_many([(place,) for place in range(BULK)])

        def check(tracing: Tracing) -> None:
            if bench.number % 2:
                mine.rollback()
                assert bench.stored(bench.number) == 0
            else:
                mine.commit()
                assert bench.stored(bench.number) in (0, BULK), tracing.where
            bench.check_honest(tracing.where)

        assert sweep(call, check, max_points=40) > 30
        mine.rollback()
    bench.check_idle()


def test_r3_cancel_and_result(bench: Bench) -> None:
    finished = bench.marks.enqueue(1)
    asyncio.run(_drained(bench.forge))
    waiting = bench.task.enqueue(1)

    def check(tracing: Tracing) -> None:
        assert waiting.refresh().status in ("pending", "cancelled")
        assert finished.result(timeout=10) is None
        assert not bench.forge.client.poller._waiters, "nobody waits any more"

    assert sweep(waiting.cancel, check, max_points=40) > 10
    assert waiting.refresh().status == "cancelled", "it goes on when its caller is interrupted"
    assert sweep(lambda: finished.result(timeout=10), check, max_points=40) > 10
    bench.check_idle()


async def _drained(forge: Forge) -> None:
    await forge.drain()


def test_r3_opening_and_closing(bench: Bench) -> None:
    """The next call repeats an interrupted ``open`` and completes an interrupted ``close``."""
    threads = set(threading.enumerate())
    made = [Forge(bench.url)]

    def used(tracing: Tracing) -> None:
        made[-1].enqueue("later", {})
        made[-1].close()
        made[-1].enqueue("again", {})
        made.append(Forge(bench.url))

    assert sweep(lambda: made[-1].ready(), used, max_points=30) > 20  # noqa: PLW0108 - one each time
    for place in range(0, 200, 5):
        made.append(Forge(bench.url))
        made[-1].ready()
        tracing = raised_at(place, made[-1].close)
        with not_stuck(tracing.where):
            made[-1].close()
    for forge in made:
        forge.close()
    until = time.monotonic() + 10
    while set(threading.enumerate()) - threads and time.monotonic() < until:
        time.sleep(0.01)
    assert set(threading.enumerate()) <= threads, "no thread is left"


# A handler may also run in the callback of a weak reference: Python reports what it raises there.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("error", [KeyboardInterrupt, Late])
def test_r3_real_signals_with_threads(bench: Bench, error: type[BaseException]) -> None:
    """SIGALRM at any moment of calls on the main thread, while other threads write."""
    dice = random.Random(3)
    accepted: list[tuple[int, int]] = []
    by_threads: list[int] = []
    stop = threading.Event()

    def producer(first: int) -> None:
        number = first
        while not stop.is_set():
            number += 1
            _plain(bench, number)
            by_threads.append(number)

    threads = [threading.Thread(target=producer, args=(10_000_000 * n,)) for n in (1, 2)]
    for thread in threads:
        thread.start()
    calls = ((_plain, 1), (_keyed, 1), (_bulk, BULK))
    interrupted = 0
    try:
        with alarm(error) as after:
            for _ in range(200):
                call, whole = dice.choice(calls)
                number = bench.next_number()
                try:
                    try:
                        after(dice.uniform(1e-5, 8e-3))
                        call(bench, number)
                        accepted.append((number, whole))
                    finally:
                        signal.setitimer(signal.ITIMER_REAL, 0)
                except error:
                    interrupted += 1
                    signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
    assert interrupted > 10
    with not_stuck("the sweep"):
        bench.check_honest("the sweep")
    assert [number for number, whole in accepted if bench.stored(number) != whole] == []
    assert bench.count("kind = 'swept' AND tags[1]::bigint > 9999999") == len(by_threads)
    bench.check_idle()
