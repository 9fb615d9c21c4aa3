"""Fixtures of the Postgres tests: the server, an empty schema, an open store on it."""

from collections.abc import AsyncGenerator, Iterator
from typing import Any

import pytest
import pytest_asyncio

from forge_jobs.backends.postgres.store import PostgresStore
from tests.postgres.schemas import Schemas

from .server import PrivateServer


@pytest.fixture
def schema(schemas: Schemas) -> Iterator[str]:
    """The name of a schema without jobs."""
    name = schemas.take()
    yield name
    schemas.give_back(name)


@pytest.fixture
def url(postgres: PrivateServer, schema: str) -> str:
    return postgres.url(schema=schema)


@pytest_asyncio.fixture
async def store(url: str) -> AsyncGenerator[PostgresStore, None]:
    """An open store on the server's own time."""
    made = PostgresStore(url)
    await made.open()
    yield made
    await made.close()


@pytest.fixture
def asked(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements that the store sends by ``ask`` from now on, each up to its arguments."""
    statements: list[str] = []
    ask = store._server.ask

    async def recording(query: str, *args: Any, **options: Any) -> Any:
        statements.append(query.split("(")[0])
        return await ask(query, *args, **options)

    monkeypatch.setattr(store._server, "ask", recording)
    return statements
