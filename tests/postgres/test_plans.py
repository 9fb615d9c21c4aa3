"""The hot calls stay cheap in a full database: they read what they take, by index, and no more."""

from typing import Any

import asyncpg
import pytest

from forge_jobs.backends.postgres.store import PostgresStore
from forge_jobs.core.decide import done
from forge_jobs.core.job import NewJob
from forge_jobs.core.select import Filter
from forge_jobs.core.status import JobStatus
from forge_jobs.store.jobs import Exchange, Want
from forge_jobs.store.processes import NewProcess

from .server import PrivateServer

MANY = 100_000
TABLES = ("jobs", "history", "dedupe", "cancels", "processes", "queues", "gates", "bodies")

FILL = """
INSERT INTO {s}.jobs (status, queue, kind, priority, run_at, enqueued_at, max_attempts, payload)
SELECT 'pending', 'q' || n % 3, 'work', n % 2, 1000 + n, 1000, 5, '{{}}'
FROM generate_series(1, {n}) AS n;
INSERT INTO {s}.jobs (status, queue, kind, priority, run_at, enqueued_at, max_attempts, payload)
SELECT 'scheduled', 'q' || n % 3, 'work', 0, 9000000000000000 + n, 1000, 5, '{{}}'
FROM generate_series(1, {n} / 2) AS n;
INSERT INTO {s}.history (id, status, queue, kind, priority, run_at, enqueued_at, max_attempts,
    finished_at, payload)
SELECT 10000000 + n, CASE WHEN n % 1000 = 0 THEN 'dead' ELSE 'done' END, 'q' || n % 3, 'work', 0,
    1000, 1000, 5, 2000 + n, '{{}}'
FROM generate_series(1, {n} / 2) AS n;
"""


class Meter:
    """What the server read of our tables, as it counts it itself."""

    def __init__(self, connection: Any, schema: str) -> None:
        self._connection = connection
        self._schema = schema

    async def read(self) -> tuple[dict[str, int], int]:
        """(sequential scans by table, rows of jobs and history fetched by any index)."""
        await self._connection.execute("SELECT pg_stat_clear_snapshot()")
        scans = await self._connection.fetch(
            "SELECT relname, seq_scan, idx_tup_fetch, seq_tup_read FROM pg_stat_user_tables "
            "WHERE schemaname = $1 AND relname = ANY ($2)",
            self._schema,
            list(TABLES),
        )
        rows = sum(
            (row["idx_tup_fetch"] or 0) + (row["seq_tup_read"] or 0)
            for row in scans
            if row["relname"] in ("jobs", "history")
        )
        return {row["relname"]: row["seq_scan"] for row in scans}, rows


@pytest.fixture
async def meter(store: PostgresStore, postgres: PrivateServer, schema: str) -> Any:
    connection = await asyncpg.connect(postgres.url())
    await connection.execute(FILL.format(s=schema, n=MANY))
    await connection.execute(f"VACUUM ANALYZE {schema}.jobs")
    await connection.execute(f"VACUUM ANALYZE {schema}.history")
    yield Meter(connection, schema)
    # Emptying row by row would take longer than all the tests.
    await connection.execute(f"TRUNCATE {schema}.jobs, {schema}.history, {schema}.ledger")
    await connection.close()


async def settled(store: PostgresStore) -> None:
    """Let the store's own session hand its counters to the server."""
    await store._server.ask("SELECT pg_stat_force_next_flush()")
    await store._server.ask("SELECT 1")


@pytest.mark.slow
async def test_hot_calls_read_what_they_take_and_no_more(
    store: PostgresStore, meter: Meter
) -> None:
    me = NewProcess(host_id="h", label="l", queues=("q0",), pid=1, hostname="b", lease_s=600.0)
    owner = await store.processes.register(me)
    wants = [Want("q0", 50), Want("q1", 50), Want("empty", 50)]
    number = taken = 0
    finish: list[Any] = []
    # Custom plans, then generic ones: the first rounds are not measured, but must not be slow.
    for rounds in (8, 10):
        await settled(store)
        scans_before, rows_before = await meter.read()
        for _ in range(rounds):
            number += 1
            answer = await store.jobs.exchange(
                Exchange(owner=owner, number=number, finish=finish, want=wants)
            )
            assert len(answer.claims) == 100
            assert {job.priority for job in answer.claims} == {0}
            finish = [done(job, result=None) for job in answer.claims]
            taken += len(finish)
        await settled(store)
        scans_after, rows_after = await meter.read()
        assert scans_after == scans_before
        # Searched, locked, updated and ended: a handful of visits per job, whatever waits behind.
        assert rows_after - rows_before < 12 * rounds * 100


@pytest.mark.slow
async def test_small_calls_read_little(store: PostgresStore, meter: Meter) -> None:
    [answer] = await store.jobs.enqueue([NewJob(kind="work", queue="q9", dedupe_key="k")])
    await settled(store)
    _, rows_before = await meter.read()
    for _ in range(10):
        await store.jobs.enqueue([NewJob(kind="work", queue="q9", dedupe_key="k")])
        await store.jobs.get(answer.id)
        await store.jobs.peek([answer.id])
        await store.jobs.page(Filter(), limit=20)
        await store.jobs.page(Filter(dedupe_key="k"), limit=20)
        await store.jobs.promote(limit=100)
        await store.jobs.reap(crash_note="x", limit=100)
        await store.ledger.oldest_due()
        await store.ledger.counts()
    await settled(store)
    _, rows_after = await meter.read()
    assert rows_after - rows_before < 10 * 300


@pytest.mark.slow
async def test_a_rare_state_is_found_without_reading_the_common_ones(
    store: PostgresStore, meter: Meter
) -> None:
    await settled(store)
    _, rows_before = await meter.read()
    for _ in range(10):
        page = await store.jobs.page(Filter(statuses=(JobStatus.DEAD,)), limit=20)
        assert len(page.jobs) == 20
    await settled(store)
    _, rows_after = await meter.read()
    assert rows_after - rows_before < 10 * 200
