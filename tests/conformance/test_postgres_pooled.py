"""The Postgres backend passes the conformance suite on the oldest supported server (U19), behind a
pooler in transaction mode: PgBouncer, or a small one of the tests' own where that cannot be had.

test_postgres.py runs the suite on the newest server without a pooler: two runs of the suite cover
both ends of each. ``make matrix`` runs both on every major."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import asyncpg
import pytest

from forge_jobs.backends.postgres.connection import address
from forge_jobs.backends.postgres.notify import listener
from forge_jobs.backends.postgres.store import PostgresStore
from forge_jobs.kit.entropy import SeededEntropy
from forge_jobs.store.store import Store
from forge_jobs.testing.clock import MovableClock
from forge_jobs.testing.conformance.all import *  # noqa: F403
from forge_jobs.testing.conformance.fixtures import MakeStore, OpenTransaction, SecondStore
from tests.postgres.bouncer import bouncer, program
from tests.postgres.pooler import transaction_pooler
from tests.postgres.schemas import Schemas
from tests.postgres.server import PrivateServer, oldest
from tests.postgres.user_transaction import opening_on


@pytest.fixture(scope="module")
def schemas(oldest_postgres: PrivateServer) -> Iterator[Schemas]:
    made = Schemas(oldest_postgres)
    yield made
    made.close()


@pytest.fixture(scope="module")
def pooler(oldest_postgres: PrivateServer) -> Iterator[Path]:
    found, target = program(), oldest_postgres.folder
    with transaction_pooler(target) if found is None else bouncer(target, found) as folder:
        yield folder


def pooled(folder: Path, schema: str) -> str:
    return "postgresql://postgres@/postgres?" + urlencode({"host": str(folder), "schema": schema})


@pytest.fixture
def make_store(clock: MovableClock, schemas: Schemas, pooler: Path) -> Iterator[MakeStore]:
    taken: list[str] = []

    def make() -> PostgresStore:
        taken.append(schemas.take())
        return PostgresStore(pooled(pooler, taken[-1]), clock, SeededEntropy(len(taken)))

    yield make
    for schema in taken:
        schemas.give_back(schema)


@pytest.fixture
def second_store(clock: MovableClock, pooler: Path) -> SecondStore:
    def second(store: Store) -> PostgresStore:
        schema = store.maintenance.describe()["namespace"]
        return PostgresStore(pooled(pooler, schema), clock, SeededEntropy(9))

    return second


@pytest.fixture
def open_transaction(oldest_postgres: PrivateServer) -> OpenTransaction:
    return opening_on(oldest_postgres)


def test_u19_the_suite_runs_on_the_oldest_server(oldest_postgres: PrivateServer) -> None:
    assert oldest_postgres.sql("SHOW server_version").startswith(f"{oldest()}.")


async def test_the_pooler_is_detected(store: PostgresStore) -> None:
    assert store._server.pooled


async def test_a_pooler_that_delivers_no_notifications_is_detected(
    store: PostgresStore, pooler: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It accepts LISTEN and delivers nothing: listeners are notified by a timer instead."""
    monkeypatch.setattr(listener, "PROBE_S", 1.0)
    schema = store.maintenance.describe()["namespace"]
    hopeful = PostgresStore(pooled(pooler, schema))
    await hopeful.open()
    notified = asyncio.Event()
    subscription = await hopeful.subscribe(["q"], notified.set)
    async with asyncio.timeout(60):
        while hopeful._listener.state != "polling":
            await asyncio.sleep(0.05)
        for _ in range(3):
            notified.clear()
            await notified.wait()
    await subscription.close()
    await hopeful.close()


async def test_session_state_does_not_survive_this_pooler(
    store: PostgresStore, pooler: Path
) -> None:
    """Otherwise passing the suite behind it would prove nothing."""
    dsn = address.parse(pooled(pooler, store.maintenance.describe()["namespace"])).dsn
    careless = [await asyncpg.connect(dsn) for _ in range(2)]

    async def many() -> None:
        # On a busy machine two calls are seldom under way at once, and only then do they swap.
        async with asyncio.timeout(60):
            while True:
                await asyncio.gather(*(each.fetchval("SELECT 1") for each in careless))

    lost = (asyncpg.InvalidSQLStatementNameError, asyncpg.DuplicatePreparedStatementError)
    with pytest.raises(lost, match="prepared statement"):
        await many()
    for each in careless:
        each.terminate()
