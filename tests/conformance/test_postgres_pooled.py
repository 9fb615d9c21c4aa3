"""The Postgres backend passes the conformance suite behind a pooler in transaction mode."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest

from forge_jobs.backends.postgres.store import PostgresStore
from forge_jobs.core.errors import Unavailable
from forge_jobs.kit.entropy import SeededEntropy
from forge_jobs.store.bundle import Store
from forge_jobs.testing.clock import MovableClock
from forge_jobs.testing.conformance.all import *  # noqa: F403
from forge_jobs.testing.conformance.fixtures import MakeStore, SecondStore
from tests.postgres.places import Places
from tests.postgres.pooler import transaction_pooler
from tests.postgres.server import PrivateServer


@pytest.fixture(scope="session")
def pooler(postgres: PrivateServer) -> Iterator[Path]:
    with transaction_pooler(postgres.folder) as folder:
        yield folder


def pooled(folder: Path, schema: str) -> str:
    return "postgresql://postgres@/postgres?" + urlencode({"host": str(folder), "schema": schema})


@pytest.fixture
def make_store(clock: MovableClock, places: Places, pooler: Path) -> Iterator[MakeStore]:
    taken: list[str] = []

    def make() -> PostgresStore:
        taken.append(places.take())
        return PostgresStore(pooled(pooler, taken[-1]), clock, SeededEntropy(len(taken)))

    yield make
    for schema in taken:
        places.give_back(schema)


@pytest.fixture
def second_store(clock: MovableClock, pooler: Path) -> SecondStore:
    def beside(store: Store) -> PostgresStore:
        schema = store.upkeep.describe()["namespace"]
        return PostgresStore(pooled(pooler, schema), clock, SeededEntropy(9))

    return beside


async def test_the_pooler_is_noticed(store: PostgresStore) -> None:
    assert store._server.pooled


async def test_session_state_does_not_survive_this_pooler(
    store: PostgresStore, pooler: Path
) -> None:
    """Otherwise passing the suite behind it would prove nothing."""
    schema = store.upkeep.describe()["namespace"]
    careless = PostgresStore(pooled(pooler, schema) + "&pooler=off")
    await careless.open()

    async def many() -> None:
        for _ in range(50):
            await asyncio.gather(*(careless.ledger.oldest_due() for _ in range(2)))

    with pytest.raises(Unavailable, match="prepared statement"):
        await many()
    await careless.close()
