"""A limit that is lowered while another transaction admits jobs by the old number."""

import asyncio

import asyncpg

from forge_jobs.backends.postgres import rows
from forge_jobs.backends.postgres.store import PostgresStore
from forge_jobs.core.job import NewJob
from forge_jobs.core.limits import Declared, key_bucket
from forge_jobs.core.status import JobStatus
from forge_jobs.store.limits import LimitChange
from forge_jobs.testing.conformance.worker import job_counts

from .server import PrivateServer

KEYED = NewJob(kind="fetch", queue="q", limit_key=key_bucket("fetch", "a"))
WAITING = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"


async def test_a_lowered_limit_holds_jobs_that_were_admitted_meanwhile(
    store: PostgresStore, schema: str, postgres: PrivateServer
) -> None:
    await store.limits.publish([Declared(name="task:fetch", concurrency=2, per="args.host")])
    other = await asyncpg.connect(postgres.url())
    transaction = other.transaction()
    await transaction.start()
    jobs = rows.as_json([rows.plain(KEYED)] * 2)
    enqueue = f"SELECT e_status FROM {schema}.enqueue_json_v1(NULL, $1, NULL, $2)"
    stored = await other.fetch(enqueue, str(store.tag), jobs)
    assert [row[0] for row in stored] == ["pending", "pending"]
    change = asyncio.create_task(store.limits.change("task:fetch", LimitChange(concurrency=1)))
    async with asyncio.timeout(30):
        while not change.done() and await other.fetchval(WAITING) == 0:
            await asyncio.sleep(0.01)
    await transaction.commit()
    await change
    counts = await job_counts(store)
    assert counts == {("q", JobStatus.PENDING): 1, ("q", JobStatus.HELD): 1}
    await other.close()
