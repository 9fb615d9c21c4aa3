"""``tx=``: jobs, events and steps exist if and only if the user's own transaction commits."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import psycopg
import psycopg2
import pytest
import sqlalchemy
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from forge_jobs.backends.postgres.store import PostgresStore
from forge_jobs.core.errors import BadOption, Conflict, LeaseLost
from forge_jobs.core.events import NewEvent
from forge_jobs.core.job import LaneOrder, NewJob, Successor, UniqueWhile
from forge_jobs.core.steps import StepKind, StepWrite, step_identity
from forge_jobs.store.jobs import Exchange, Want
from forge_jobs.store.processes import NewProcess

from .server import PrivateServer, private_server

FULL = NewJob(
    kind="work",
    queue="q",
    payload='{"text":"é \\u00e9 \\n 🦊","n":1.0}'.encode(),
    priority=-3,
    delay_s=60.0,
    expires_s=600.0,
    max_attempts=2,
    timeout_s=1.5,
    dedupe_key="order:1",
    dedupe_for_s=5.0,
    unique_while=UniqueWhile.WAITING,
    tags=("a", "b"),
    limit_key="l",
    lane="lane",
    order=LaneOrder.SERIAL,
    on_dead=Successor("told", "q2"),
    trace="00-trace",
    options={"rare": [1, None]},
)
PLAIN = NewJob(kind="plain", queue="q")

Opened = tuple[Any, Callable[[], Any], Callable[[], Any]]


def sqlalchemy_url(server: PrivateServer, driver: str) -> str:
    return server.url().replace("postgresql://", f"postgresql+{driver}://")


@asynccontextmanager
async def opened(way: str, server: PrivateServer) -> AsyncGenerator[Opened, None]:
    """(connection, commit, rollback) with a transaction open or about to be."""
    library, _, rest = way.partition(" ")
    if library == "asyncpg":
        connection = await asyncpg.connect(server.url())
        transaction = connection.transaction()
        await transaction.start()
        yield connection, transaction.commit, transaction.rollback
        await connection.close()
    elif way == "psycopg":
        with psycopg.connect(server.url(), row_factory=dict_row) as sync:
            yield sync, sync.commit, sync.rollback
    elif way == "psycopg2":
        two = psycopg2.connect(server.url())
        yield two, two.commit, two.rollback
        two.close()
    elif way == "psycopg async":
        async with await psycopg.AsyncConnection.connect(server.url()) as aconnection:
            yield aconnection, aconnection.commit, aconnection.rollback
    elif rest in ("connection", "session"):
        engine = sqlalchemy.create_engine(sqlalchemy_url(server, "psycopg"))
        with engine.connect() if rest == "connection" else Session(engine) as given:
            yield given, given.commit, given.rollback
        engine.dispose()
    else:
        aengine = create_async_engine(sqlalchemy_url(server, "asyncpg"))
        made = aengine.connect() if rest == "async connection" else AsyncSession(aengine)
        async with made as agiven:
            yield agiven, agiven.commit, agiven.rollback
        await aengine.dispose()


WAYS = [
    "asyncpg",
    "psycopg",
    "psycopg2",
    "psycopg async",
    "sqlalchemy connection",
    "sqlalchemy session",
    "sqlalchemy async connection",
    "sqlalchemy async session",
]


async def call(end: Callable[[], Any]) -> None:
    answer = end()
    if answer is not None:
        await answer


@pytest.mark.parametrize("way", WAYS)
async def test_the_jobs_are_part_of_the_transaction(
    store: PostgresStore, postgres: PrivateServer, way: str
) -> None:
    async with opened(way, postgres) as (connection, _, rollback):
        [answer, _] = await store.aenqueue_in(connection, [FULL, PLAIN])
        assert await store.jobs.get(answer.id) is None
        await call(rollback)
    assert await store.metrics.counts() == []
    async with opened(way, postgres) as (connection, commit, _):
        [answer, plain] = await store.aenqueue_in(connection, [FULL, PLAIN])
        [twice] = await store.aenqueue_in(connection, [FULL])
        assert (twice.key, twice.duplicate) == (answer.key, True)
        await call(commit)
    [direct] = await store.jobs.enqueue([FULL])
    assert (direct.key, direct.duplicate) == (answer.key, True)
    stored = await store.jobs.get(answer.id)
    assert stored is not None
    given = {name: getattr(FULL, name) for name in FULL.__struct_fields__}
    for name in ("delay_s", "run_at", "expires_s", "expires_at", "hold", "track"):
        del given[name]
    assert {name: getattr(stored, name) for name in given} == given
    assert stored.run_at - stored.enqueued_at == 60_000_000
    assert stored.expires_at == stored.enqueued_at + 600_000_000
    assert await store.jobs.get(plain.id) is not None
    assert sum(count.jobs for count in await store.metrics.counts()) == 2


@pytest.mark.parametrize("way", WAYS)
async def test_events_and_steps_are_part_of_the_transaction(
    store: PostgresStore, postgres: PrivateServer, way: str
) -> None:
    me = NewProcess(host_id="h", label="l", queues=("q",), pid=1, hostname="b", lease_s=600.0)
    owner = await store.processes.register(me)
    [answer] = await store.jobs.enqueue([PLAIN])
    [job] = (await store.jobs.exchange(Exchange(owner=owner, number=1, want=[Want("q", 1)]))).claims
    name, value = step_identity("é", key="🦊"), '{"text":"é \\u0000 🦊","n":1.0}'.encode()
    step = StepWrite(job.key, job.epoch, name, StepKind.STEP, 1, 2, value, 2**63 - 1)
    event = NewEvent(name="paid", key="é", payload=value, dedupe_key="k")
    async with opened(way, postgres) as (connection, _, rollback):
        await store.asend_in(connection, [event])
        await store.astore_step_in(connection, owner, step)
        await call(rollback)
    assert await store.steps.page(answer.id) == []
    async with opened(way, postgres) as (connection, commit, _):
        sent = await store.asend_in(connection, [event, event])
        assert [one.duplicate for one in sent] == [False, True]
        await store.astore_step_in(connection, owner, step)
        await call(commit)
    [stored] = await store.steps.page(answer.id)
    assert (stored.name, stored.value, stored.fingerprint) == (name, value, 2**63 - 1)
    [listed] = await store.events.page(limit=10)
    assert (listed.key, listed.payload, listed.seq) == ("é", value, None)
    for wrong, given in ((LeaseLost, owner + 1), (Conflict, owner)):
        async with opened(way, postgres) as (connection, _, rollback):
            with pytest.raises(wrong):
                await store.astore_step_in(connection, given, step)
            await call(rollback)


async def test_asynchronous_connections_need_aenqueue(
    store: PostgresStore, postgres: PrivateServer
) -> None:
    for way in WAYS:
        async with opened(way, postgres) as (connection, _, rollback):
            if way in ("psycopg", "psycopg2", "sqlalchemy connection", "sqlalchemy session"):
                assert len(store.enqueue_in(connection, [PLAIN])) == 1
            else:
                with pytest.raises(BadOption, match="aenqueue"):
                    store.enqueue_in(connection, [PLAIN])
            await call(rollback)


async def test_a_connection_without_a_transaction_is_refused(
    store: PostgresStore, postgres: PrivateServer
) -> None:
    connection = await asyncpg.connect(postgres.url())
    with pytest.raises(BadOption, match="no open transaction"):
        await store.aenqueue_in(connection, [PLAIN])
    await connection.close()
    with (
        psycopg.connect(postgres.url(), autocommit=True) as automatic,
        pytest.raises(BadOption, match="no open transaction"),
    ):
        store.enqueue_in(automatic, [PLAIN])
    two = psycopg2.connect(postgres.url())
    two.autocommit = True
    with pytest.raises(BadOption, match="no open transaction"):
        store.enqueue_in(two, [PLAIN])
    two.close()
    assert await store.metrics.counts() == []


async def test_another_database_is_refused(store: PostgresStore, postgres: PrivateServer) -> None:
    with (
        psycopg.connect(postgres.url(database="template1")) as elsewhere,
        pytest.raises(BadOption, match="another database"),
    ):
        store.enqueue_in(elsewhere, [PLAIN])
    engine = sqlalchemy.create_engine("sqlite://")
    with engine.connect() as lite, pytest.raises(BadOption, match="sqlite"):
        store.enqueue_in(lite, [PLAIN])
    engine.dispose()
    with pytest.raises(BadOption, match="cannot be joined"):
        store.enqueue_in("a connection", [PLAIN])


def test_r12e_a_transaction_with_jobs_cannot_be_prepared() -> None:
    """It notifies workers when it commits, and Postgres refuses to prepare such a transaction. The
    refusal ends it: neither the jobs nor the user's rows are stored."""
    with private_server(max_prepared_transactions="5") as server:
        store = PostgresStore(server.url(schema="s"))
        asyncio.run(store.open())
        with psycopg.connect(server.url()) as connection:
            connection.execute("CREATE TABLE orders (id int)")
            connection.commit()
            connection.execute("INSERT INTO orders VALUES (1)")
            store.enqueue_in(connection, [PLAIN])
            with pytest.raises(psycopg.errors.FeatureNotSupported, match="PREPARE"):
                connection.execute("PREPARE TRANSACTION 'both'")
            connection.rollback()
            counted = "SELECT (SELECT count(*) FROM orders) + (SELECT count(*) FROM s.jobs)"
            assert connection.execute(counted).fetchone() == (0,)
        asyncio.run(store.close())
