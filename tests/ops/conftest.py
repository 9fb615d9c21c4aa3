"""Every test of this folder runs on the memory and the SQLite store."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from forge_jobs.backends.url import open_store
from forge_jobs.kit.entropy import SeededEntropy
from forge_jobs.testing.clock import MovableClock
from tests.ops.harness import StoreHarness


@pytest.fixture(params=["memory", "sqlite"])
async def harness(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[StoreHarness]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/ops.db"
    clock = MovableClock()
    store = open_store(url, clock=clock, entropy=SeededEntropy(1))
    await store.open()
    yield StoreHarness(store, clock)
    await store.close()
