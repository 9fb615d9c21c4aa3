"""The SQLite backend passes the conformance suite, on files and with a movable clock."""

import contextlib
import sqlite3
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import pytest

from forge_jobs.backends.sqlite.store import SqliteStore
from forge_jobs.kit.entropy import SeededEntropy
from forge_jobs.store.store import Store
from forge_jobs.testing.clock import MovableClock
from forge_jobs.testing.conformance.all import *  # noqa: F403
from forge_jobs.testing.conformance.fixtures import OpenTransaction


@pytest.fixture
def make_store(clock: MovableClock, tmp_path: Path) -> Callable[[], Store]:
    made = 0

    def make() -> Store:
        nonlocal made
        made += 1
        return SqliteStore(tmp_path / f"{made}.db", clock=clock, entropy=SeededEntropy(made))

    return make


@pytest.fixture
def second_store(clock: MovableClock) -> Callable[[Store], Store]:
    def second(store: Store) -> Store:
        path = store.maintenance.describe()["place"]
        return SqliteStore(path, clock=clock, entropy=SeededEntropy("second"))

    return second


@pytest.fixture
def open_transaction() -> OpenTransaction:
    @contextlib.asynccontextmanager
    async def begin(store: Store) -> AsyncGenerator[object, None]:
        connection = sqlite3.connect(store.maintenance.describe()["place"])
        try:
            with connection:
                connection.execute("CREATE TABLE IF NOT EXISTS accounts (name TEXT)")
                connection.execute("BEGIN IMMEDIATE")
                connection.execute("INSERT INTO accounts VALUES ('ada')")
                yield connection
        finally:
            connection.close()

    return begin
