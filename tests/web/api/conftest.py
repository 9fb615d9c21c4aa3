"""A Mission Control with an admin at it, on memory and on SQLite."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from forge_jobs.web import Role
from tests.web.panel import Panel, panel


@pytest.fixture(params=["memory", "sqlite"])
async def desk(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Panel]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/web.db"
    made = panel(url)
    yield made
    await made.app.operations.close()
    await made.forge.aclose()


@pytest.fixture
async def admin(desk: Panel) -> AsyncIterator[httpx.AsyncClient]:
    async with desk.client(Role.ADMIN) as client:
        yield client
