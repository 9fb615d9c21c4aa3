"""A Forge of its own for every test."""

from collections.abc import Iterator

import pytest

from forge_jobs import Forge


@pytest.fixture
def forge() -> Iterator[Forge]:
    made = Forge("memory://")
    yield made
    made.close()
