"""Every behaviour of the engine is tested on each backend."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from forge_jobs.backends.url import open_store
from forge_jobs.store.bundle import Store
from tests.engine.rig import Rig

BACKENDS = ("memory", "sqlite")


@pytest.fixture(params=BACKENDS)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/engine.db"
    opened = open_store(url)
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
def rig(store: Store) -> Rig:
    return Rig(store)
