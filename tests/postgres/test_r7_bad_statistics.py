"""R7: hot calls read what they take, also when ANALYZE saw an empty table that is full.

It is full of dead rows that an old snapshot keeps, or was filled since. Plans are judged by the
index entries and rows that they read, by the server's own count.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from forge_jobs.backends.postgres.store import PostgresStore
from forge_jobs.core import ids
from forge_jobs.core.decide import Finish, done
from forge_jobs.core.job import Claim, ClaimedJob, LaneOrder, NewJob
from forge_jobs.core.limits import Declared, key_bucket
from forge_jobs.core.selection import BulkAction, Selection
from forge_jobs.core.status import Event, JobStatus
from forge_jobs.store.jobs import Exchange, Exchanged, Note, Want
from forge_jobs.store.processes import NewProcess
from tests.postgres.schemas import Schemas

from .counters import handed_over
from .server import PrivateServer

MANY = 4_000
# A call that reads a table reads MANY.
MOST = MANY // 5
PLAIN = NewJob(kind="plain", queue="q")
HOSTS = Declared(name="task:fetch", concurrency=2, per="args.host")
# A search passes the dead entries of these: the claims of queue and owner. For the first see
# claim_watermark; the second is read by the reaper and the reconciler only.
PASSED = ("jobs_claim", "jobs_owner")
READ = """
SELECT COALESCE((SELECT sum(idx_tup_read) FROM pg_stat_user_indexes
        WHERE schemaname = $1 AND relname = ANY ($2) AND indexrelname <> ALL ($3)), 0)
    + COALESCE((SELECT sum(seq_tup_read) FROM pg_stat_user_tables
        WHERE schemaname = $1 AND relname = ANY ($2)), 0) AS entries
"""
TABLES = ("jobs", "history", "dedupe_keys", "large_payloads", "job_logs")
Call = Callable[[], Awaitable[Any]]


class Worker:
    """A worker process that counts what the server reads for each of its calls."""

    def __init__(self, store: PostgresStore, connection: Any, key: int) -> None:
        self.store = store
        self.connection = connection
        self.key = key
        self.number = 0
        self.read: dict[str, int] = {}
        # Servers before 15 publish their counts slowly: there only the sum of all calls is read.
        self.call_by_call = connection.get_server_version()[0] >= 15

    async def in_sum(self, *walks: "Callable[[Worker], Awaitable[None]]") -> None:
        before = await self._entries()
        for one in walks:
            await one(self)
        self.read["all calls"] = await self._entries() - before

    async def exchange(self, **how: Any) -> Exchanged:
        self.number += 1
        return await self.store.jobs.exchange(Exchange(owner=self.key, number=self.number, **how))

    async def claim(self, free: int, queue: str = "q") -> Sequence[ClaimedJob]:
        return (await self.exchange(want=[Want(queue, free)])).claims

    async def measured(self, name: str, call: Call) -> Any:
        if not self.call_by_call:
            return await call()
        before = await self._entries()
        result = await call()
        self.read[name] = await self._entries() - before
        return result

    async def _entries(self) -> int:
        await handed_over(self.store._server.ask)
        await self.connection.execute("SELECT pg_stat_clear_snapshot()")
        schema = self.store._server.address.schema
        return await self.connection.fetchval(READ, schema, TABLES, PASSED)


async def flow(worker: Worker, jobs: Sequence[NewJob]) -> None:
    """Store jobs and bring them all to done."""
    await worker.store.jobs.enqueue(jobs)
    left, finish = len(jobs), list[Finish]()
    while left > 0 or finish:
        answer = await worker.exchange(finish=finish, want=[Want("q", 1_000)])
        finish = [done(job, result=None) for job in answer.claims]
        left -= len(finish)


def varied(count: int) -> list[NewJob]:
    """Jobs with dedupe keys, and some in lanes and under limit keys, which end in several turns."""
    jobs = [NewJob(kind="keyed", queue="q", dedupe_key=f"k{n}") for n in range(count)]
    for n in range(count // 10):
        jobs.append(NewJob(kind="step", queue="q", lane=f"l{n // 2}", order=LaneOrder.SERIAL))
        jobs.append(NewJob(kind="fetch", queue="q", limit_key=key_bucket("fetch", f"h{n // 3}")))
    return jobs


@pytest_asyncio.fixture
async def sleeper(postgres: PrivateServer) -> AsyncGenerator[Any, None]:
    """A connection whose old snapshot keeps dead rows."""
    connection = await asyncpg.connect(postgres.url())
    transaction = connection.transaction(isolation="repeatable_read")
    await transaction.start()
    await connection.fetch("SELECT 1")
    yield connection
    await transaction.rollback()
    await connection.close()


@pytest_asyncio.fixture(params=["dead rows", "live rows"])
async def worker(
    request: pytest.FixtureRequest, postgres: PrivateServer, schemas: Schemas, sleeper: Any
) -> AsyncGenerator[Worker, None]:
    """A worker on tables that seem to be empty; all plans are made after that."""
    schema = schemas.unused()
    store = PostgresStore(postgres.url(schema=schema))
    await store.open()
    connection = await asyncpg.connect(postgres.url())
    for table in TABLES:
        await connection.execute(f"ALTER TABLE {schema}.{table} SET (autovacuum_enabled = off)")
    await store.limits.publish([HOSTS])
    me = NewProcess(host_id="h", label="l", queues=("q",), pid=1, hostname="b", lease_s=600.0)
    made = Worker(store, connection, await store.processes.register(me))
    await flow(made, [PLAIN] * MANY)
    await flow(made, varied(MANY // 4))
    await connection.execute(f"TRUNCATE {schema}.history")
    for table in TABLES:
        await connection.execute(f"ANALYZE {schema}.{table}")
    if request.param == "live rows":
        others = [NewJob(kind="plain", queue="other")] * MANY
        later = [NewJob(kind="plain", queue="other", delay_s=9e6)] * MANY
        await store.jobs.enqueue([*others, *later, *varied(0)])
    await store.close()
    await store.open()
    yield made
    await store.close()
    await connection.execute(f"DROP SCHEMA {schema} CASCADE")
    await connection.close()


def other(job: ClaimedJob, event: Event, status: JobStatus) -> Finish:
    return Finish(job.key, job.epoch, event, status, job.queue, job.kind, 0.0, error="no")


async def walk(worker: Worker) -> None:
    """Every call of the hot path, measured."""
    jobs, measured, exchange = worker.store.jobs, worker.measured, worker.exchange
    await jobs.enqueue([PLAIN])
    [one] = await measured("claim one", lambda: worker.claim(1))
    await measured("done one", lambda: exchange(finish=[done(one, result=None)]))
    await jobs.enqueue([PLAIN] * 20)
    found = await measured("claim", lambda: worker.claim(20))
    claims = [Claim(job.key, job.epoch) for job in found]
    await measured("started", lambda: exchange(started=claims[5:]))
    await measured("notes", lambda: exchange(notes=[Note(one, progress=0.5) for one in claims]))
    await measured("done", lambda: exchange(finish=[done(job, result=None) for job in found[:5]]))
    await measured("done again", lambda: exchange(finish=[done(found[0], result=None)]))
    failed = [other(job, Event.FAIL, JobStatus.FAILED) for job in found[5:8]]
    await measured("failed", lambda: exchange(finish=failed))
    dead = [other(job, Event.DIE, JobStatus.DEAD) for job in found[8:10]]
    await measured("dead", lambda: exchange(finish=dead))
    throttled = [other(found[10], Event.THROTTLE, JobStatus.SCHEDULED)]
    await measured("throttled", lambda: exchange(finish=throttled))
    await measured("released", lambda: exchange(release=claims[11:13]))
    await measured("promote", lambda: jobs.promote(limit=100))
    await measured("reap", lambda: jobs.reap(crash_note="x", limit=100))
    await measured("owned", lambda: jobs.owned(worker.key))
    public = [ids.job_id(job.key, job.enqueued_at, worker.store.tag) for job in found[:15]]
    await measured("peek", lambda: jobs.peek(public))
    await measured("get", lambda: jobs.get(public[0]))
    await measured("cancel", lambda: jobs.act(BulkAction.CANCEL, Selection(ids=public), limit=50))
    await measured("retry", lambda: jobs.act(BulkAction.RETRY, Selection(ids=public), limit=50))
    await measured("delete", lambda: jobs.act(BulkAction.DELETE, Selection(ids=public), limit=50))


async def bound_walk(worker: Worker) -> None:
    """The same for jobs with dedupe keys, lanes and limit keys."""
    jobs, measured, exchange = worker.store.jobs, worker.measured, worker.exchange
    await worker.exchange(release=[Claim(one.claim.key, one.claim.epoch) for one in
                                   await jobs.owned(worker.key)])  # fmt: skip
    keyed = NewJob(kind="keyed", queue="bound", dedupe_key="new")
    step = NewJob(kind="step", queue="bound", lane="new", order=LaneOrder.SERIAL)
    strict = NewJob(kind="step", queue="bound", lane="newer", order=LaneOrder.STRICT)
    fetch = NewJob(kind="fetch", queue="bound", limit_key=key_bucket("fetch", "new"))
    await measured("enqueue keyed", lambda: jobs.enqueue([keyed]))
    await measured("enqueue lane", lambda: jobs.enqueue([step, step, strict, strict]))
    await measured("enqueue limited", lambda: jobs.enqueue([fetch] * 4))
    found = await measured("claim bound", lambda: worker.claim(20, "bound"))
    assert len(found) == 5
    finish = [done(job, result=None) for job in found]
    answer = await measured("done bound", lambda: exchange(finish=finish, want=[Want("bound", 9)]))
    assert len(answer.claims) == 4
    await measured("reapply", lambda: worker.store._limits.reapply("task:fetch"))
    await measured("repair", lambda: worker.store._limits.admit(limit=100))


async def test_r7_no_plan_reads_a_whole_table(worker: Worker) -> None:
    if not worker.call_by_call:
        await worker.in_sum(walk, bound_walk, *[walk] * 6)
        assert worker.read["all calls"] < MANY * len(TABLES)
        return
    await walk(worker)
    await bound_walk(worker)
    assert {name: count for name, count in worker.read.items() if count > MOST} == {}
    # Twice: the server keeps a plan after some calls.
    for _ in range(6):
        await flow(worker, [PLAIN])
        await asyncio.sleep(0)
    worker.read.clear()
    await walk(worker)
    assert {name: count for name, count in worker.read.items() if count > MOST} == {}
