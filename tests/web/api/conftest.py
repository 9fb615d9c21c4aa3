"""A Mission Control with an admin at it, on every backend."""

from collections.abc import AsyncIterator

import httpx
import pytest

from forge_jobs.web import Role
from tests.web.panel import Panel, panel


@pytest.fixture
async def desk(any_url: str) -> AsyncIterator[Panel]:
    made = panel(any_url)
    yield made
    await made.app.operations.close()
    await made.forge.aclose()


@pytest.fixture
async def admin(desk: Panel) -> AsyncIterator[httpx.AsyncClient]:
    async with desk.client(Role.ADMIN) as client:
        yield client
