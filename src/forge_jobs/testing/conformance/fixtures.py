"""The fixtures of the suite: a movable clock, an open store, one worker process."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from typing import TypeAlias

import pytest
import pytest_asyncio

from forge_jobs.store.store import Store
from forge_jobs.testing.clock import MovableClock

from .worker import Process

MakeStore: TypeAlias = Callable[[], Store]
SecondStore: TypeAlias = Callable[[Store], Store]
OpenTransaction: TypeAlias = Callable[[Store], AbstractAsyncContextManager[object]]


@pytest.fixture
def clock() -> MovableClock:
    """The store clock of every store in a test."""
    return MovableClock()


@pytest.fixture
def second_store() -> SecondStore | None:
    """None. The backend's module replaces it when several processes can share a store."""
    return None


@pytest.fixture
def open_transaction() -> OpenTransaction | None:
    """None. The backend's module replaces it when a user's own transaction can store jobs."""
    return None


@pytest_asyncio.fixture
async def store(make_store: MakeStore) -> AsyncGenerator[Store, None]:
    """A fresh open store."""
    fresh = make_store()
    await fresh.open()
    yield fresh
    await fresh.close()


@pytest_asyncio.fixture
async def worker(store: Store, clock: MovableClock) -> Process:
    """A living process that serves the queue ``q``."""
    return await Process.register(store, clock)
