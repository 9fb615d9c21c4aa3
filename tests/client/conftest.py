"""A Forge of its own for every test, on each backend."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from forge_jobs import Forge


@pytest.fixture(params=["memory", "sqlite"])
def forge(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Forge]:
    made = Forge("memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/forge.db")
    yield made
    made.close()
