"""At most four connections per process, for all its threads and event loops."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import asyncpg
import pytest

from forge_jobs.backends.postgres.connection import driver
from forge_jobs.backends.postgres.connection.driver import Driver
from forge_jobs.backends.postgres.connection.loop_connections import Eviction, LoopConnections
from forge_jobs.backends.postgres.connection.pool import Pool
from forge_jobs.backends.postgres.connection.server import Link
from forge_jobs.backends.postgres.connection.session import IDLE_IN_TRANSACTION_S
from forge_jobs.backends.postgres.store import PostgresStore
from forge_jobs.core.errors import ForgeError, Unavailable, Unknown
from forge_jobs.core.job import NewJob
from forge_jobs.store.processes import NewProcess, ProcessStats

from .server import PrivateServer

JOB = NewJob(kind="work", queue="q")
OURS = "SELECT pid FROM pg_stat_activity WHERE application_name = 'forge-jobs'"


async def test_never_more_than_four(store: PostgresStore, postgres: PrivateServer) -> None:
    def connected() -> set[int]:
        return set(map(int, postgres.sql(OURS).split()))

    # Stores of other tests may be open on the same server; connections from here on are ours.
    own = [driver for loop in store._server.pool._loops.values() for driver in loop.idle]
    others = connected() - {driver.get_server_pid() for driver in own}
    me = NewProcess(host_id="h", label="l", queues=("q",), pid=1, hostname="b")
    owner = await store.processes.register(me)
    subscription = await store.subscribe(["q"], lambda: None)
    over = threading.Event()
    seen: list[int] = []

    def watch() -> None:
        before = connected()
        while not over.is_set():
            # The server needs a moment to notice that a connection was closed.
            now = connected()
            seen.append(len((now & before) - others))
            before = now

    def elsewhere(n: int) -> None:
        async def calls() -> None:
            for _ in range(5):
                await asyncio.gather(*(store.jobs.enqueue([JOB]) for _ in range(5)))
                await store.processes.heartbeat(owner, ProcessStats())

        asyncio.run(calls())

    async def here() -> None:
        for _ in range(20):
            await asyncio.gather(
                *(store.jobs.enqueue([JOB]) for _ in range(10)),
                store.metrics.counts(),
                store.processes.heartbeat(owner, ProcessStats()),
            )

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        await asyncio.gather(here(), *(asyncio.to_thread(elsewhere, n) for n in range(6)))
    finally:
        over.set()
        await asyncio.to_thread(watcher.join)
    assert 2 <= max(seen) <= 4
    await subscription.close()
    stored = sum(count.jobs for count in await store.metrics.counts())
    assert stored == 6 * 5 * 5 + 20 * 10


async def test_a_stopped_process_holds_no_locks_for_ever(store: PostgresStore) -> None:
    """The server ends a session of ours that is idle in a transaction."""
    [row] = await store._server.ask("SHOW idle_in_transaction_session_timeout", writes=False)
    assert row[0] == f"{IDLE_IN_TRANSACTION_S:.0f}s"


async def test_a_loop_that_ends_leaves_no_connection(url: str, postgres: PrivateServer) -> None:
    store = PostgresStore(url)

    def elsewhere() -> None:
        async def calls() -> None:
            await store.open()
            await store.jobs.enqueue([JOB])

        asyncio.run(calls())

    await asyncio.to_thread(elsewhere)
    assert store._server.pool.count() == 0
    assert [count.jobs for count in await store.metrics.counts()] == [1]
    await store.close()


FORK = """
import asyncio, os, sys
from forge_jobs.backends.postgres.store import PostgresStore
from forge_jobs.core.job import NewJob

store = PostgresStore(sys.argv[1])
loop = asyncio.new_event_loop()

async def enqueue():
    return (await store.jobs.enqueue([NewJob(kind="work", queue="q")]))[0].key

loop.run_until_complete(store.open())
first = loop.run_until_complete(enqueue())
child = os.fork()
if child == 0:
    store.after_fork()
    asyncio.run(enqueue())
    os._exit(0)
_, status = os.waitpid(child, 0)
last = loop.run_until_complete(enqueue())
other = loop.run_until_complete(enqueue())
loop.run_until_complete(store.close())
print(status, (last - first) // (other - last))
"""


@pytest.mark.processes
def test_a_forked_child_opens_its_own_connections(url: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORK, url], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.split() == ["0", "2"], done.stderr


class FakeDriver:
    """A driver that only counts open connections."""

    guard = threading.Lock()
    open_now = 0
    max_open = 0

    def __init__(self) -> None:
        self._closed = False
        with self.guard:
            FakeDriver.open_now += 1
            FakeDriver.max_open = max(FakeDriver.max_open, FakeDriver.open_now)

    def is_closed(self) -> bool:
        return self._closed

    def terminate(self) -> None:
        with self.guard:
            FakeDriver.open_now -= not self._closed
            self._closed = True

    async def close(self, *, timeout: float | None = None) -> None:
        self.terminate()


@pytest.mark.parametrize("loops", [1, 2, 5])
def test_the_pool_serves_calls_of_all_loops(loops: int) -> None:
    FakeDriver.open_now = FakeDriver.max_open = 0

    async def connect() -> Driver:
        await asyncio.sleep(0.001)
        return FakeDriver()  # type: ignore[return-value]

    pool = Pool(connect, max_size=3, per_loop=2)
    turns = [0] * loops

    def run(n: int) -> None:
        async def one() -> None:
            for _ in range(10):
                driver, _ = await pool.acquire()
                await asyncio.sleep(0.0005)
                turns[n] += 1
                pool.release(driver, broken=turns[n] % 7 == 0)

        async def many() -> None:
            await asyncio.gather(*(one() for _ in range(5)))

        asyncio.run(many())

    threads = [threading.Thread(target=run, args=(n,)) for n in range(loops)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert turns == [50] * loops
    assert FakeDriver.max_open <= 3
    assert (pool.count(), FakeDriver.open_now) == (0, 0)


def test_a_woken_call_that_takes_another_connection_wakes_the_next_waiter() -> None:
    async def connect() -> Driver:
        return FakeDriver()  # type: ignore[return-value]

    pool = Pool(connect, max_size=3, per_loop=2)
    here, there, third = (asyncio.new_event_loop() for _ in range(3))

    async def take() -> Driver:
        return (await pool.acquire())[0]

    async def give_back(driver: Driver, *, broken: bool = False) -> None:
        pool.release(driver, broken=broken)

    async def turns() -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    try:
        mine = here.run_until_complete(take())
        theirs, _kept = (third.run_until_complete(take()) for _ in range(2))
        first = there.create_task(take())
        there.run_until_complete(turns())
        second = here.create_task(take())
        here.run_until_complete(turns())
        # The first is woken for the connection that became idle here, and then may open its own.
        here.run_until_complete(give_back(mine))
        third.run_until_complete(give_back(theirs, broken=True))
        there.run_until_complete(turns())
        here.run_until_complete(turns())
        assert first.done()
        assert second.done()
        assert second.result() is mine
    finally:
        for loop in (here, there, third):
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()


async def test_a_cancelled_waiter_does_not_block_the_next_one() -> None:
    async def connect() -> Driver:
        return FakeDriver()  # type: ignore[return-value]

    pool = Pool(connect, max_size=1, per_loop=1)
    held, _ = await pool.acquire()
    impatient = asyncio.create_task(pool.acquire())
    patient = asyncio.create_task(pool.acquire())
    await asyncio.sleep(0)
    impatient.cancel()
    pool.release(held)
    driver, used = await asyncio.wait_for(patient, 60)
    assert used
    pool.release(driver)
    await pool.close()


async def test_an_eviction_closes_once_when_its_loop_ends_meanwhile() -> None:
    closed: list[str] = []

    class Slow(FakeDriver):
        async def close(self, *, timeout: float | None = None) -> None:
            closed.append("began")
            await asyncio.sleep(0.05)
            self.terminate()

    async def connect() -> Driver:
        raise AssertionError("no connection is needed")

    driver: Any = Slow()
    pool = Pool(connect)
    own = LoopConnections(asyncio.get_running_loop())
    eviction = Eviction(own, driver)
    own.evictions.append(eviction)
    closing = asyncio.create_task(pool._close_connections(own))
    await asyncio.sleep(0.01)
    # Another loop starts the eviction while the connection is being closed already.
    eviction.start()
    await closing
    await asyncio.sleep(0.1)
    assert closed == ["began"]
    assert eviction.done.done()
    assert own.evictions == []


@pytest.fixture
def end_sleepers(postgres: PrivateServer) -> Iterator[None]:
    """Ends abandoned statements: the server would go on with them and hold their snapshots."""
    yield
    postgres.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
    )


@pytest.mark.usefixtures("end_sleepers")
@pytest.mark.parametrize(("writes", "means"), [(True, Unknown), (False, Unavailable)])
async def test_a_call_fails_at_its_time_limit(
    store: PostgresStore, writes: bool, means: type[ForgeError]
) -> None:
    async with asyncio.timeout(20):
        with pytest.raises(means, match="did not answer in time"):
            await store._server.ask("SELECT pg_sleep(60)", writes=writes, limit_s=1.0)
        # Its connection is not used again and not counted any more.
        [row] = await store._server.ask("SELECT 1", limit_s=5.0)
    assert row[0] == 1
    assert store._server.pool.count() == 1


async def test_a_time_limit_ends_with_its_attempt(store: PostgresStore) -> None:
    """A call that waits for its retry holds no connection: another call may use it by then."""
    server, pids = store._server, list[int]()

    class Slow:
        async def sleep(self, _s: float) -> None:
            await asyncio.sleep(1.5)

    async def work(link: Link) -> None:
        pids.append(link.driver.get_server_pid())
        if len(pids) == 1:
            raise asyncpg.SerializationError("try again")

    server.clock = Slow()  # type: ignore[assignment]
    async with asyncio.timeout(20):
        await server.within(work, limit_s=1.0)
    assert pids == [pids[0]] * 2


async def test_a_connection_whose_socket_is_gone_is_replaced(store: PostgresStore) -> None:
    server = store._server
    [before] = await server.ask("SELECT pg_backend_pid()", writes=False)
    [own] = server.pool._loops.values()
    # The connection ends, but the driver has not seen it yet.
    own.idle[0]._transport.abort()  # type: ignore[attr-defined]
    async with asyncio.timeout(20):
        [after] = await server.ask("SELECT pg_backend_pid()", writes=True)
    assert before[0] != after[0]
    assert server.pool.count() == 1


@pytest.mark.usefixtures("end_sleepers")
async def test_a_transaction_that_takes_too_long_has_no_effect(store: PostgresStore) -> None:
    async def work(link: Link) -> None:
        await store._enqueuer.insert(link, [NewJob(kind="work", queue="q")], None)
        await link.fetch("SELECT pg_sleep(60)")

    async with asyncio.timeout(20):
        with pytest.raises(Unavailable, match="did not answer in time: the call had no effect"):
            await store._server.within(work, limit_s=1.0)
        assert await store.metrics.counts() == []


async def test_a_connection_whose_closing_is_cancelled_is_terminated(
    postgres: PrivateServer,
) -> None:
    """It was left open, and the garbage collector warned of it in a later test."""
    opened = await asyncpg.connect(postgres.url())
    closing = asyncio.create_task(driver.close(opened))
    opened.add_termination_listener(lambda _: None)
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert opened.is_closed()
