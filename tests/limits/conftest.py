"""A Forge of its own for every test, on each backend."""

from collections.abc import Iterator

import pytest

from forge_jobs import EngineSettings, Forge


@pytest.fixture
def forge(any_url: str) -> Iterator[Forge]:
    # On a busy machine the calls of a shutdown may need seconds.
    made = Forge(any_url, settings=EngineSettings(shutdown_s=10.0))
    yield made
    made.close()
