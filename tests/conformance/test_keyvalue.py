"""The store of ``tests/keyvalue_store`` passes the conformance suite."""

import pytest

from forge_jobs.kit.entropy import SeededEntropy
from forge_jobs.testing.clock import MovableClock
from forge_jobs.testing.conformance.all import *  # noqa: F403
from forge_jobs.testing.conformance.fixtures import MakeStore
from tests.keyvalue_store.store import KeyValueStore


@pytest.fixture
def make_store(clock: MovableClock) -> MakeStore:
    return lambda: KeyValueStore(clock, SeededEntropy(7))
