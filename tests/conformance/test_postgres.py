"""The Postgres backend passes the conformance suite, on a real server."""

from collections.abc import Iterator

import pytest

from forge_jobs.backends.postgres.store import PostgresStore
from forge_jobs.kit.entropy import SeededEntropy
from forge_jobs.store.store import Store
from forge_jobs.testing.clock import MovableClock
from forge_jobs.testing.conformance.all import *  # noqa: F403
from forge_jobs.testing.conformance.fixtures import MakeStore, SecondStore
from tests.postgres.places import Places


@pytest.fixture
def make_store(clock: MovableClock, places: Places) -> Iterator[MakeStore]:
    taken: list[str] = []

    def make() -> PostgresStore:
        taken.append(places.take())
        return PostgresStore(places.url(taken[-1]), clock, SeededEntropy(len(taken)))

    yield make
    for schema in taken:
        places.give_back(schema)


@pytest.fixture
def second_store(clock: MovableClock, places: Places) -> SecondStore:
    def second(store: Store) -> PostgresStore:
        return PostgresStore(
            places.url(store.maintenance.describe()["namespace"]), clock, SeededEntropy(9)
        )

    return second
