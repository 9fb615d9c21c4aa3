"""A Mission Control on every backend, and a client with the admin role."""

from collections.abc import AsyncIterator

import httpx
import pytest

from forge_jobs.web import Role
from tests.web.harness import WebHarness, web_harness


@pytest.fixture
async def harness(any_url: str) -> AsyncIterator[WebHarness]:
    harness = web_harness(any_url)
    yield harness
    await harness.app.operations.close()
    await harness.forge.aclose()


@pytest.fixture
async def admin(harness: WebHarness) -> AsyncIterator[httpx.AsyncClient]:
    async with harness.client(Role.ADMIN) as client:
        yield client
