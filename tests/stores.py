"""Which backends the layers above are tested on: decided here and nowhere else.

``any_url`` is an address for tests within one process, ``shared_url`` one that several processes
can share. Each test gets an empty store.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

EVERY = ("memory", "sqlite", "postgres")
SHARED = ("sqlite", "postgres")


@pytest.fixture(params=EVERY)
def any_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    yield from _address(request, tmp_path)


@pytest.fixture(params=SHARED)
def shared_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    yield from _address(request, tmp_path)


def _address(request: pytest.FixtureRequest, folder: Path) -> Iterator[str]:
    match request.param:
        case "memory":
            yield "memory://"
        case "sqlite":
            yield f"sqlite:///{folder}/jobs.db"
        case _:
            # Asked for only now: a run without Postgres tests starts no server.
            schemas = request.getfixturevalue("schemas")
            schema = schemas.take()
            yield schemas.url(schema)
            schemas.give_back(schema)
