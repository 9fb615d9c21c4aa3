"""The memory backend passes the conformance suite."""

import pytest

from forge_jobs.backends.memory.store import MemoryStore
from forge_jobs.kit.entropy import SeededEntropy
from forge_jobs.testing.clock import MovableClock
from forge_jobs.testing.conformance.all import *  # noqa: F403
from forge_jobs.testing.conformance.fixtures import MakeStore, OpenTransaction
from forge_jobs.testing.transaction import Transaction


@pytest.fixture
def make_store(clock: MovableClock) -> MakeStore:
    return lambda: MemoryStore(clock, SeededEntropy(7))


@pytest.fixture
def open_transaction() -> OpenTransaction:
    return lambda store: Transaction()
