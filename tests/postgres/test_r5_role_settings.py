"""R5: the store works whatever settings the role has, directly and behind a pooler.

The settings are those of ``ALTER ROLE … IN DATABASE … SET``, in a database of its own.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping
from typing import Any

import asyncpg
import psycopg
import pytest
import pytest_asyncio

from forge_jobs.backends.postgres.connection.driver import Transaction
from forge_jobs.backends.postgres.store import PostgresStore
from forge_jobs.core.errors import BadUrl, ForgeError, Unavailable
from forge_jobs.core.job import LaneOrder, NewJob, Successor
from forge_jobs.core.limits import Declared, key_bucket
from forge_jobs.core.outcome import Dead, Done, Failed, Throttled
from forge_jobs.core.selection import BulkAction, Filter, Selection
from forge_jobs.core.status import JobStatus
from forge_jobs.testing.clock import MovableClock
from forge_jobs.testing.conformance.worker import Process, record

from .bouncer import bouncer, program
from .server import PrivateServer

DATABASE = "role_settings"
HOSTS = Declared(name="task:fetch", concurrency=1, per="args.host")
KEYED = NewJob(kind="fetch", queue="q", limit_key=key_bucket("fetch", "a"))
TEXT = "it's a \\ back\\nslash \\x00 \\' “quoted” 🦊"

SETTINGS: dict[str, Mapping[str, str]] = {
    "repeatable read": {"default_transaction_isolation": "repeatable read"},
    "serializable": {"default_transaction_isolation": "serializable"},
    "old strings": {
        "standard_conforming_strings": "off", "backslash_quote": "on", "array_nulls": "off",
        "bytea_output": "escape", "transform_null_equals": "on",
    },
    "timeouts": {
        "statement_timeout": "1ms", "lock_timeout": "1ms",
        "idle_in_transaction_session_timeout": "1ms",
    },
    "search path": {"search_path": "nowhere, pg_catalog"},
    "formats": {
        "DateStyle": "German", "IntervalStyle": "sql_standard", "TimeZone": "Asia/Kathmandu",
        "client_encoding": "LATIN1", "extra_float_digits": "-15", "row_security": "off",
    },
    "plans": {
        "plan_cache_mode": "force_custom_plan", "jit": "on", "jit_above_cost": "0",
        "enable_indexscan": "off", "enable_indexonlyscan": "off", "enable_bitmapscan": "off",
        "enable_nestloop": "off", "enable_tidscan": "off", "enable_sort": "off",
        "max_parallel_workers_per_gather": "8",
    },
}  # fmt: skip
SETTINGS["all at once"] = {
    name: value for settings in SETTINGS.values() for name, value in settings.items()
}


def apply(server: PrivateServer, settings: Mapping[str, str]) -> None:
    """Let new sessions in the database have these settings and no others."""
    role = f"ALTER ROLE postgres IN DATABASE {DATABASE}"
    values = [f"{role} SET {name} TO {_value(name, value)}" for name, value in settings.items()]
    server.sql(f"{role} RESET ALL", *values, database="template1")


def _value(name: str, value: str) -> str:
    return value if name == "search_path" else f"'{value}'"


@pytest.fixture(scope="module")
def server(postgres: PrivateServer) -> Iterator[PrivateServer]:
    postgres.sql(f"CREATE DATABASE {DATABASE}")
    yield postgres
    postgres.sql(f"DROP DATABASE {DATABASE} WITH (FORCE)")


@pytest.fixture(params=SETTINGS)
def url(request: pytest.FixtureRequest, server: PrivateServer) -> Iterator[str]:
    apply(server, SETTINGS[request.param])
    schema = "s_" + request.param.replace(" ", "_")
    yield server.url(database=DATABASE, schema=schema)
    apply(server, {})


@pytest_asyncio.fixture
async def store(url: str) -> AsyncGenerator[PostgresStore, None]:
    made = PostgresStore(url)
    await made.open()
    yield made
    await made.close()
    await made.maintenance.drop()


async def walk(store: PostgresStore) -> None:
    """Most calls once, with the results that they have on a server of default settings."""
    payload = ('{"t":"' + TEXT.replace("\\", "\\\\") + '"}').encode()
    plain = NewJob(kind="work", queue="q", payload=payload)
    keyed = NewJob(kind="work", queue="q", dedupe_key=TEXT, tags=("a", "b"), payload=b" " * 5_000)
    [one] = await store.jobs.enqueue([plain])
    await store.jobs.enqueue([plain] * 5)
    [first] = await store.jobs.enqueue([keyed])
    [again] = await store.jobs.enqueue([keyed])
    assert (again.id, again.duplicate) == (first.id, True)
    later = NewJob(kind="work", queue="q", delay_s=0.05, lane="l", order=LaneOrder.STRICT)
    on_dead = NewJob(kind="work", queue="q", on_dead=Successor("told", "other"))
    await store.jobs.enqueue([later, on_dead])
    worker = await Process.register(store, MovableClock())
    jobs = await worker.claim(free=8)
    assert [job.payload for job in jobs[:6]] == [payload] * 6
    await worker.finish(jobs[0], Done(), result=b'"\\\\"')
    await worker.finish(jobs[1], Failed(TEXT))
    await worker.finish(jobs[2], Throttled(0.0))
    await worker.finish(jobs[-1], Dead(TEXT))
    assert (await record(store, one.id)).result == b'"\\\\"'
    await asyncio.sleep(0.1)
    await store.jobs.promote(limit=100)
    found = (await store.jobs.page(Filter(), limit=100)).jobs
    texts = {job.last_error for job in found if job.status in (JobStatus.FAILED, JobStatus.DEAD)}
    assert texts == {TEXT}
    assert sum(job.kind == "told" for job in found) == 1
    await store.jobs.act(BulkAction.CANCEL, Selection(filter=Filter()), reason=TEXT, limit=100)
    await store.jobs.reap(crash_note="x", limit=100)
    await store.metrics.roll_up(limit=1_000)
    minutes = await store.metrics.minutes(since=0, until=1 << 62)
    assert sum(minute.enqueued for minute in minutes) == len(found)
    assert sum(minute.done for minute in minutes) == 1


async def test_r5_a_walk_with_each_setting_on_the_role(store: PostgresStore) -> None:
    await walk(store)


async def test_r5_an_exclusive_key_stays_exclusive(store: PostgresStore, url: str) -> None:
    """Two enqueues of one key wait for its lock: the second must see what the first stored."""
    await store.limits.publish([HOSTS])
    second = PostgresStore(url)
    await second.open()
    schema = store._server.address.schema
    no_limits = {"idle_in_transaction_session_timeout": "0", "statement_timeout": "0"}
    blocker = await asyncpg.connect(store._server.address.dsn, server_settings=no_limits)
    async with blocker.transaction(isolation="read_committed"):
        lock = f"pg_advisory_xact_lock({schema}.limit_bucket_lock_v1($1))"
        await blocker.fetch(f"SELECT {lock}", KEYED.limit_key)
        both = [asyncio.create_task(one.jobs.enqueue([KEYED])) for one in (store, second)]
        waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        async with asyncio.timeout(30):
            while await blocker.fetchval(waiting) < 2:
                await asyncio.sleep(0.01)
    stored = [reply for [reply] in await asyncio.gather(*both)]
    assert sorted(reply.status for reply in stored) == [JobStatus.HELD, JobStatus.PENDING]
    worker = await Process.register(store, MovableClock())
    assert len(await worker.claim(free=9)) == 1
    await blocker.close()
    await second.close()


async def test_r5_stores_that_open_at_once_create_the_schema_once(url: str) -> None:
    stores = [PostgresStore(url) for _ in range(5)]
    await asyncio.gather(*(store.open() for store in stores))
    assert len({store.tag for store in stores}) == 1
    for store in stores:
        await store.close()
    await stores[0].maintenance.drop()


async def test_r5_jobs_in_a_users_own_transaction(store: PostgresStore, url: str) -> None:
    """The user's settings hold there, and what the user stores is right all the same."""
    await store.limits.publish([HOSTS])
    keyed = NewJob(kind="work", queue="q", dedupe_key="k", payload=b'{"t":"\\\\"}')
    for _ in range(2):
        # Long limits only: a user whose statements end after 1 ms cannot store anything.
        options = "-c statement_timeout=0 -c idle_in_transaction_session_timeout=0"
        with psycopg.connect(store._server.address.dsn, options=options) as connection:
            store.enqueue_in(connection, [keyed, KEYED, KEYED])
    counts = {row.status: row.jobs for row in await store.metrics.counts() if row.jobs}
    assert sum(counts.values()) == 5
    worker = await Process.register(store, MovableClock())
    claimed = await worker.claim(free=9)
    assert sorted(job.kind for job in claimed) == ["fetch", "work"]
    assert [job.payload for job in claimed if job.kind == "work"] == [keyed.payload]


async def test_r5_a_users_old_snapshot_gets_an_error_and_no_second_job(
    server: PrivateServer,
) -> None:
    """Under repeatable read a key that was taken meanwhile cannot be seen: the user's transaction
    has to be repeated, as with any other row."""
    store = PostgresStore(server.url(database=DATABASE, schema="snapshot"))
    await store.open()
    keyed = NewJob(kind="work", queue="q", dedupe_key="k")
    with psycopg.connect(store._server.address.dsn) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("SELECT 1")
        await store.jobs.enqueue([keyed])
        with pytest.raises(Unavailable, match="could not serialize"):
            store.enqueue_in(connection, [keyed])
        connection.rollback()
        [again] = store.enqueue_in(connection, [keyed])
        assert again.duplicate
    await store.close()
    await store.maintenance.drop()


@pytest.mark.skipif(program() is None, reason="pgbouncer is not installed")
async def test_r5_the_same_walk_behind_a_pooler(server: PrivateServer) -> None:
    apply(server, SETTINGS["all at once"])
    found = program()
    assert found is not None
    with bouncer(server.folder, found) as folder:
        url = f"postgresql://postgres@/{DATABASE}?host={folder}&schema=behind"
        stores = [PostgresStore(url) for _ in range(3)]
        await asyncio.gather(*(store.open() for store in stores))
        assert stores[0]._server.pooled
        await walk(stores[0])
        await stores[0].limits.publish([HOSTS])
        replies = await asyncio.gather(*(store.jobs.enqueue([KEYED]) for store in stores))
        states = sorted(reply.status for [reply] in replies)
        assert states == [JobStatus.HELD, JobStatus.HELD, JobStatus.PENDING]
        for store in stores:
            await store.close()
        await stores[0].maintenance.drop()
        direct = PostgresStore(f"{url}&pooler=off")
        await direct.open()
        with pytest.raises(BadUrl, match="pooler=on"):
            await direct.jobs.enqueue([KEYED])
        await direct.close()
        await direct.maintenance.drop()
    apply(server, {})


async def test_r5_every_session_has_the_settings(server: PrivateServer) -> None:
    """Also those that servers know only since some version, and on the connection that listens."""
    newer: dict[str, Any] = {"idle_session_timeout": 14, "transaction_timeout": 17}
    major = int(server.sql("SHOW server_version_num")) // 10_000
    settings = {name: "1h" for name, since in newer.items() if major >= since}
    apply(server, {**settings, **SETTINGS["all at once"]})
    store = PostgresStore(server.url(database=DATABASE, schema="every"))
    await store.open()
    subscription = await store.subscribe(["q"], lambda: None)
    async with asyncio.timeout(30):
        while store._server.line is None:
            await asyncio.sleep(0.01)
    line = store._server.line
    for ask in (line.fetch, store._server.ask):
        for name in ("statement_timeout", "lock_timeout", *settings):
            [row] = await ask(f"SHOW {name}")
            assert row[0] == "0", name
        [row] = await ask("SHOW transaction_isolation")
        assert row[0] == "read committed"
    await subscription.close()
    await store.close()
    await store.maintenance.drop()
    apply(server, {})


async def test_r5_a_role_that_may_only_read_is_told_so(server: PrivateServer) -> None:
    """That setting is respected: it protects full disks, and marks roles that are meant to read."""
    apply(server, {"default_transaction_read_only": "on"})
    store = PostgresStore(server.url(database=DATABASE, schema="reader"))
    with pytest.raises(ForgeError, match="default_transaction_read_only") as caught:
        await store.open()
    assert isinstance(caught.value, Unavailable)
    apply(server, {})
    await store.open()
    await store.jobs.enqueue([NewJob(kind="work", queue="q")])
    await store.close()
    await store.maintenance.drop()


class _Cancelling:
    """A connection whose first statements are cancelled, as by a statement timeout of the role."""

    def __init__(self, driver: Any, cancels: int) -> None:
        self._driver = driver
        self._cancels = cancels

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    async def execute(self, statement: str) -> Any:
        if self._cancels:
            self._cancels -= 1
            raise asyncpg.QueryCanceledError("canceling statement due to user request")
        return await self._driver.execute(statement)


async def test_r5_a_cancelled_begin_is_repeated(postgres: PrivateServer) -> None:
    connection = await asyncpg.connect(postgres.url())
    try:
        cancelling: Any = _Cancelling(connection, 3)
        transaction = Transaction(cancelling, pooled=True)
        await transaction.start()
        assert connection.is_in_transaction()
        assert await connection.fetchval("SHOW statement_timeout") == "0"
        await transaction.rollback()
        cancelling = _Cancelling(connection, 10**6)
        with pytest.raises(asyncpg.QueryCanceledError):
            await Transaction(cancelling, pooled=True).start()
        assert not connection.is_in_transaction()
    finally:
        await connection.close()
