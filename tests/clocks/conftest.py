"""Fixtures of the tests with wrong clocks."""

from collections.abc import Iterator

import pytest

from tests.postgres.places import Places


@pytest.fixture
def server_url(places: Places) -> Iterator[str]:
    """An empty store on a Postgres server."""
    schema = places.take()
    yield places.url(schema)
    places.give_back(schema)
