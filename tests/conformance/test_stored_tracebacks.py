"""U1: how many tracebacks a store keeps, counted in its tables: nothing of its contract shows those
of deleted jobs."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing

import pytest

from forge_jobs.backends.memory.store import MemoryStore
from forge_jobs.backends.postgres.store import PostgresStore
from forge_jobs.backends.url import open_store
from forge_jobs.core.job import ERRORS_KEPT
from forge_jobs.core.outcome import Dead, Failed
from forge_jobs.core.selection import BulkAction, Selection
from forge_jobs.store.jobs import Retention
from forge_jobs.store.store import Store
from forge_jobs.testing.clock import MovableClock
from forge_jobs.testing.conformance.worker import Process, enqueue


@pytest.fixture
async def store(any_url: str, clock: MovableClock) -> AsyncIterator[Store]:
    opened = open_store(any_url, clock=clock)
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock()


async def _stored(store: Store, url: str) -> int:
    """How many tracebacks the store holds."""
    if isinstance(store, MemoryStore):
        return sum(map(len, store._storage.tables.tracebacks.values()))
    if isinstance(store, PostgresStore):
        table = f'"{store._server.address.schema}".job_tracebacks'
        return (await store._server.ask(f"SELECT count(*) FROM {table}"))[0][0]
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as outside:
        return outside.execute("SELECT count(*) FROM forge_tracebacks").fetchone()[0]


@pytest.mark.parametrize("way", ["delete", "purge"])
async def test_u1_a_job_takes_its_tracebacks_along(
    store: Store, any_url: str, clock: MovableClock, way: str
) -> None:
    worker = await Process.register(store, clock)
    answers = [await enqueue(store) for _ in range(2)]
    for job in await worker.claim(free=2):
        outcome = Dead("a")
        outcome.traceback = "where it was"
        await worker.finish(job, outcome)
    assert await _stored(store, any_url) == 2
    if way == "delete":
        await store.jobs.act(BulkAction.DELETE, Selection(ids=(answers[0].id,)), limit=1)
        assert await _stored(store, any_url) == 1
        await store.jobs.act(BulkAction.DELETE, Selection(ids=(answers[1].id,)), limit=1)
    else:
        clock.advance(60)
        assert await store.jobs.purge(Retention(dead_s=1.0), limit=10) == 2
    assert await _stored(store, any_url) == 0


async def test_u1_only_the_newest_thirty_two_are_stored(
    store: Store, any_url: str, clock: MovableClock
) -> None:
    worker = await Process.register(store, clock)
    answer = await enqueue(store, max_attempts=100)
    for n in range(ERRORS_KEPT + 3):
        outcome = Failed("a")
        outcome.traceback = f"t{n}"
        await worker.finish(await worker.claim_one(), outcome)
        await store.jobs.act(BulkAction.RUN_NOW, Selection(ids=(answer.id,)), limit=1)
    assert await _stored(store, any_url) == ERRORS_KEPT
