"""Fixtures of the tests with wrong clocks."""

from collections.abc import Iterator

import pytest

from tests.postgres.schemas import Schemas


@pytest.fixture
def server_url(schemas: Schemas) -> Iterator[str]:
    """An empty store on a Postgres server."""
    schema = schemas.take()
    yield schemas.url(schema)
    schemas.give_back(schema)
