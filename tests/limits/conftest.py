"""A Forge of its own for every test, on each backend."""

from collections.abc import Iterator

import pytest

from forge_jobs import Forge


@pytest.fixture
def forge(any_url: str) -> Iterator[Forge]:
    made = Forge(any_url)
    yield made
    made.close()
