"""The Postgres backend passes the conformance suite, on a real server."""

from collections.abc import Iterator

import pytest

from forge_jobs.backends.postgres.store import PostgresStore
from forge_jobs.kit.entropy import SeededEntropy
from forge_jobs.store.store import Store
from forge_jobs.testing.clock import MovableClock
from forge_jobs.testing.conformance.all import *  # noqa: F403
from forge_jobs.testing.conformance.fixtures import MakeStore, OpenTransaction, SecondStore
from tests.postgres.schemas import Schemas
from tests.postgres.server import PrivateServer
from tests.postgres.user_transaction import opening_on


@pytest.fixture
def make_store(clock: MovableClock, schemas: Schemas) -> Iterator[MakeStore]:
    taken: list[str] = []

    def make() -> PostgresStore:
        taken.append(schemas.take())
        return PostgresStore(schemas.url(taken[-1]), clock, SeededEntropy(len(taken)))

    yield make
    for schema in taken:
        schemas.give_back(schema)


@pytest.fixture
def second_store(clock: MovableClock, schemas: Schemas) -> SecondStore:
    def second(store: Store) -> PostgresStore:
        return PostgresStore(
            schemas.url(store.maintenance.describe()["namespace"]), clock, SeededEntropy(9)
        )

    return second


@pytest.fixture
def open_transaction(postgres: PrivateServer) -> OpenTransaction:
    return opening_on(postgres)
