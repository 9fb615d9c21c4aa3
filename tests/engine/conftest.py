"""Every behaviour of the engine is tested on each backend."""

from collections.abc import AsyncIterator

import pytest

from forge_jobs.backends.url import open_store
from forge_jobs.store.store import Store
from tests.engine.rig import Rig


@pytest.fixture
async def store(any_url: str) -> AsyncIterator[Store]:
    opened = open_store(any_url)
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
def rig(store: Store) -> Rig:
    return Rig(store)
