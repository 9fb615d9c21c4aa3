"""Limited jobs inside a user's own transaction: no worker waits for it, and they run after it."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from forge_jobs.backends.postgres.store import PostgresStore
from forge_jobs.backends.sqlite.store import SqliteStore
from forge_jobs.core.job import LaneOrder, NewJob
from forge_jobs.core.limits import Declared, key_bucket
from forge_jobs.core.status import JobStatus
from forge_jobs.store.jobs import Want
from forge_jobs.testing.clock import MovableClock
from forge_jobs.testing.conformance.worker import Process
from tests.postgres.schemas import Schemas

LANE = NewJob(kind="step", queue="q", lane="a", order=LaneOrder.SERIAL)
KEY = NewJob(kind="fetch", queue="q", limit_key=key_bucket("fetch", "a"))
HOSTS = Declared(name="task:fetch", concurrency=1, per="args.host")


async def test_sqlite(tmp_path: Path) -> None:
    clock = MovableClock()
    store = SqliteStore(tmp_path / "jobs.db", clock=clock)
    await store.open()
    await store.limits.publish([HOSTS])
    worker = await Process.register(store, clock)
    connection = sqlite3.connect(tmp_path / "jobs.db")
    answers = store.enqueue_in(connection, [LANE, LANE, KEY, KEY])
    connection.commit()
    connection.close()
    states = [answer.status for answer in answers]
    assert states == [JobStatus.PENDING, JobStatus.HELD] * 2
    seen = [job.key for job in await worker.claim(free=9)]
    assert seen == [answers[0].key, answers[2].key]
    await store.close()


@pytest.fixture
def schema(schemas: Schemas) -> Iterator[str]:
    taken = schemas.take()
    yield taken
    schemas.give_back(taken)


async def test_postgres(schemas: Schemas, schema: str) -> None:
    clock = MovableClock()
    store = PostgresStore(schemas.url(schema), clock)
    await store.open()
    await store.limits.publish([HOSTS])
    worker = await Process.register(store, clock)
    await store.jobs.enqueue([LANE, KEY])
    jobs = await worker.claim(free=9)
    url = schemas.url(schema).partition("&schema")[0].partition("?schema")[0]
    connection = await asyncpg.connect(url)
    transaction = connection.transaction()
    await transaction.start()
    answers = await store.aenqueue_in(connection, [LANE, KEY])
    assert {answer.status for answer in answers} == {JobStatus.HELD}
    # A finish of a job of the same lane and key does not wait for the open transaction.
    ends = [worker.build_finish(job) for job in jobs]
    answer = await worker.exchange(finish=ends, want=[Want("q", 9)])
    assert answer.claims == []
    await transaction.commit()
    await connection.close()
    seen = {job.key for job in await worker.claim(free=9)}
    assert seen == {answer.key for answer in answers}
    await store.close()
