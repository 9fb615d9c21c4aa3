"""Fixtures of the pull queue: the same tests over memory, SQLite and Postgres."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from forge_jobs import JobQueue
from forge_jobs.kit.entropy import SeededEntropy
from forge_jobs.testing.clock import MovableClock
from tests.postgres.schemas import Schemas, schemas
from tests.postgres.server import postgres

__all__ = ["postgres", "schemas"]

OpenQueue = Callable[..., JobQueue]


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock()


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of an empty store."""
    match request.param:
        case "memory":
            yield f"memory://{tmp_path.name}"
        case "sqlite":
            yield f"sqlite:///{tmp_path / 'jobs.db'}"
        case _:
            taken: Schemas = request.getfixturevalue("schemas")
            schema = taken.take()
            yield taken.url(schema)
            taken.give_back(schema)


@pytest.fixture
def open_queue(url: str, clock: MovableClock) -> Iterator[OpenQueue]:
    """Opens queues of that store in the time of the test; closed at its end."""
    opened: list[JobQueue] = []

    def open_one(table: str = "jobs", **how: object) -> JobQueue:
        made = JobQueue.open(url, table, clock=clock, entropy=SeededEntropy(len(opened)), **how)
        opened.append(made)
        return made

    yield open_one
    for made in opened:
        made.close()


@pytest.fixture
def queue(open_queue: OpenQueue) -> JobQueue:
    return open_queue()
