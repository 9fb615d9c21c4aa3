"""The hot calls stay cheap in a full database: by index, they read only the rows they take."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import asyncpg
import pytest

from forge_jobs.backends.postgres.store import PostgresStore
from forge_jobs.backends.shared.pagination import MAX_ROWS_READ
from forge_jobs.core import ids
from forge_jobs.core.decide import Finish, done
from forge_jobs.core.job import Claim, NewJob
from forge_jobs.core.selection import Filter, Order
from forge_jobs.core.status import Event, JobStatus
from forge_jobs.store.jobs import Exchange, Note, Verdict, Want
from forge_jobs.store.processes import NewProcess, ProcessStats
from tests.postgres.schemas import Schemas

from .counters import handed_over
from .server import PrivateServer

MANY = 100_000
TABLES = (
    "jobs", "history", "dedupe_keys", "cancel_requests", "processes", "queues", "gates",
    "large_payloads",
)  # fmt: skip

LARGE = ("jobs", "history")

ENDS = [
    (Event.FAIL, JobStatus.FAILED),
    (Event.DIE, JobStatus.DEAD),
    (Event.SNOOZE, JobStatus.SCHEDULED),
]

FILL = """
INSERT INTO {s}.jobs (id, status, queue, kind, priority, run_at, enqueued_at, max_attempts, payload)
SELECT n, 'pending', 'q' || n % 3, 'work', n % 2, 1000 + n, 1000, 5, '{{}}'
FROM generate_series(1, {n}) AS n;
INSERT INTO {s}.jobs (id, status, queue, kind, priority, run_at, enqueued_at, max_attempts, payload)
SELECT {n} + n, 'scheduled', 'q' || n % 3, 'work', 0, 9000000000000000 + n, 1000, 5, '{{}}'
FROM generate_series(1, {n} / 2) AS n;
INSERT INTO {s}.history (id, status, queue, kind, priority, run_at, enqueued_at, max_attempts,
    finished_at, payload, error_group)
SELECT 1000000000000 + n, CASE WHEN n % 1000 = 0 THEN 'dead' ELSE 'done' END, 'q' || n % 3, 'work',
    0, 1000, 1000, 5, 2000 + n, '{{}}', CASE WHEN n % 1000 = 0 THEN 'g1' END
FROM generate_series(1, {n} / 2) AS n;
SELECT setval('{s}.jobs_id_seq', 2 * {n});
INSERT INTO {s}.counters (queue, kind, status, jobs)
SELECT queue, kind, status, count(*) FROM (
    SELECT queue, kind, status FROM {s}.jobs UNION ALL SELECT queue, kind, status FROM {s}.history
) AS j GROUP BY queue, kind, status;
"""


class Meter:
    """What the server read of our tables, by its own statistics."""

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


@pytest.fixture(scope="module")
def filled(postgres: PrivateServer, schemas: Schemas) -> Iterator[str]:
    """A schema full of jobs, for all tests here; they change little of it. It is a new one: a
    session of an earlier test could publish its statistics late."""
    name = schemas.unused()

    async def make() -> None:
        store = PostgresStore(postgres.url(schema=name))
        await store.open()
        await store.close()

    asyncio.run(make())
    postgres.sql(
        FILL.format(s=name, n=MANY), f"VACUUM ANALYZE {name}.jobs", f"VACUUM ANALYZE {name}.history"
    )
    yield name
    # Deleting row by row would take longer than all the tests.
    postgres.sql(f"TRUNCATE {name}.jobs, {name}.history, {name}.counter_entries, {name}.counters")
    schemas.give_back(name)


@pytest.fixture
def schema(filled: str) -> str:
    return filled


@pytest.fixture
async def meter(postgres: PrivateServer, filled: str) -> AsyncIterator[Meter]:
    connection = await asyncpg.connect(postgres.url())
    yield Meter(connection, filled)
    await connection.close()


async def settled(store: PostgresStore) -> None:
    """Wait until the session of the store has published its statistics."""
    await handed_over(store._server.ask)


@pytest.mark.slow
async def test_hot_calls_read_what_they_take_and_no_more(
    store: PostgresStore, meter: Meter
) -> None:
    me = NewProcess(host_id="h", label="l", queues=("q0",), pid=1, hostname="b", lease_s=600.0)
    owner = await store.processes.register(me)
    wants = [Want("q0", 50), Want("q1", 50), Want("empty", 50)]
    number = taken = 0
    finish: list[Any] = []
    # Custom plans, then generic ones: the first calls are not measured, but must not be slow.
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
        # Search, lock, update, finish: a handful of reads per job, however many others wait.
        assert rows_after - rows_before < 12 * rounds * 100


@pytest.mark.slow
async def test_a_waiting_worker_claims_in_one_statement_and_reads_what_it_takes(
    store: PostgresStore, meter: Meter, asked: list[str]
) -> None:
    me = NewProcess(host_id="h", label="l", queues=("q0",), pid=1, hostname="b", lease_s=600.0)
    owner = await store.processes.register(me)
    wants = [Want("q0", 2), Want("q1", 2), Want("empty", 2, 1)]
    for first in (1, 9):
        await settled(store)
        scans_before, rows_before = await meter.read()
        asked.clear()
        for number in range(first, first + 8):
            answer = await store.jobs.exchange(Exchange(owner=owner, number=number, want=wants))
            assert len(answer.claims) == 4
            assert {job.priority for job in answer.claims} == {0}
        assert len(asked) == 8
        assert all("claim_waiting" in query for query in asked)
        await settled(store)
        scans_after, rows_after = await meter.read()
        assert scans_after == scans_before
        assert rows_after - rows_before < 12 * 8 * 4


@pytest.mark.slow
async def test_other_finishes_are_as_cheap(store: PostgresStore, meter: Meter) -> None:
    """Failures, deaths, snoozes, releases, start marks and notes use the primary key."""
    me = NewProcess(host_id="o", label="l", queues=("q2",), pid=1, hostname="b", lease_s=600.0)
    owner = await store.processes.register(me)
    for number in range(1, 6):
        answer = await store.jobs.exchange(
            Exchange(owner=owner, number=2 * number, want=[Want("q2", 10, 30)])
        )
        jobs = answer.claims
        assert len(jobs) == 40
        ends = [
            Finish(job.key, job.epoch, event, status, job.queue, job.kind, 9e6, error="no")
            for job, (event, status) in zip(jobs[:30], ENDS * 10, strict=True)
        ]
        round_ = Exchange(
            owner=owner,
            number=2 * number + 1,
            finish=ends,
            release=[Claim(job.key, job.epoch) for job in jobs[30:35]],
            started=[Claim(job.key, job.epoch) for job in jobs[35:]],
            notes=[Note(Claim(job.key, job.epoch), progress=0.5) for job in jobs],
        )
        await settled(store)
        scans_before, rows_before = await meter.read()
        verdicts = (await store.jobs.exchange(round_)).verdicts
        await settled(store)
        scans_after, rows_after = await meter.read()
        assert set(verdicts) == {Verdict.APPLIED}
        assert [scans_after[name] for name in LARGE] == [scans_before[name] for name in LARGE]
        assert rows_after - rows_before < 12 * 40


CALLS: dict[str, tuple[int, Callable[[PostgresStore], Awaitable[Any]]]] = {
    "enqueue": (5, lambda store: store.jobs.enqueue([NewJob(kind="work", queue="q9")])),
    "enqueue many": (200, lambda store: store.jobs.enqueue([NewJob(kind="w", queue="q9")] * 100)),
    "enqueue later": (
        5, lambda store: store.jobs.enqueue([NewJob(kind="work", queue="q9", delay_s=9e6)])
    ),
    "enqueue keyed": (
        20, lambda store: store.jobs.enqueue([NewJob(kind="work", queue="q9", dedupe_key="k")])
    ),
    "get": (5, lambda store: store.jobs.get(ids.job_id(500, 1000, store.tag))),
    "peek": (5, lambda store: store.jobs.peek([ids.job_id(500, 1000, store.tag)])),
    "owned": (5, lambda store: store.jobs.owned(999)),
    "route": (5, lambda store: store.jobs.route({"work": "q9", "other": "q8"}, limit=100)),
    "promote": (50, lambda store: store.jobs.promote(limit=100)),
    "reap": (150, lambda store: store.jobs.reap(crash_note="x", limit=100)),
    "beat": (5, lambda store: store.processes.heartbeat(1, ProcessStats())),
    "control": (5, lambda store: store.processes.control(1)),
    "oldest due": (50, lambda store: store.metrics.oldest_due()),
    "counts": (5, lambda store: store.metrics.counts()),
}  # fmt: skip

# Newest first. No index has the newest jobs of a common state in one queue: such a page scans
# until it is full or has read its maximum, each job twice and in two tables. A scan starts with
# 250 jobs and continues in larger steps while the page is not full.
PAGES: dict[str, tuple[int, Filter]] = {
    "all": (500, Filter()),
    "by key": (50, Filter(dedupe_key="k")),
    "by parent": (50, Filter(parent="01ARZ3NDEKTSV4RRFFQ69G5FAV")),
    "by error group": (200, Filter(group="g1")),
    "by error group and state": (200, Filter(group="g1", statuses=(JobStatus.DEAD,))),
    "by queue": (4 * 250, Filter(queue="q1")),
    "by kind": (4 * 250, Filter(kind="work")),
    "by queue and state": (4 * MAX_ROWS_READ, Filter(queue="q1", statuses=(JobStatus.PENDING,))),
    "by queue and rare state": (500, Filter(queue="q1", statuses=(JobStatus.FAILED,))),
    **{f"by state {state}": (500, Filter(statuses=(state,))) for state in JobStatus},
    "by state pending": (4 * MAX_ROWS_READ, Filter(statuses=(JobStatus.PENDING,))),
    "by state scheduled": (MAX_ROWS_READ, Filter(statuses=(JobStatus.SCHEDULED,))),
}


ORDERED: dict[str, tuple[int, Filter, tuple[Order, Order]]] = {
    "by end": (
        1_000, Filter(statuses=(JobStatus.DEAD, JobStatus.CANCELLED)),
        (Order.ENDED_LAST, Order.ENDED_FIRST),
    ),
    "by due time": (
        2_000, Filter(statuses=(JobStatus.SCHEDULED,)), (Order.DUE_FIRST, Order.DUE_LAST)
    ),
    "by start": (
        1_000, Filter(statuses=(JobStatus.RUNNING,)), (Order.STARTED_LAST, Order.STARTED_FIRST)
    ),
}  # fmt: skip


async def rows_read(store: PostgresStore, meter: Meter, call: Callable[[], Awaitable[Any]]) -> int:
    """Rows of jobs and history that one call reads, the median of three: now and then the server
    reads some for itself (the ends of an index while it plans, a sample)."""
    read: list[int] = []
    for _ in range(3):
        await settled(store)
        scans_before, before = await meter.read()
        await call()
        await settled(store)
        scans_after, after = await meter.read()
        # The planner may read a small table whole; these two are not small.
        assert [scans_after[name] for name in LARGE] == [scans_before[name] for name in LARGE]
        read.append(after - before)
    return sorted(read)[1]


@pytest.mark.parametrize("name", CALLS)
async def test_calls_read_what_they_need(store: PostgresStore, meter: Meter, name: str) -> None:
    bound, call = CALLS[name]
    assert await rows_read(store, meter, lambda: call(store)) <= bound


@pytest.fixture(scope="module")
def tidied(postgres: PrivateServer, filled: str) -> None:
    """Vacuum: otherwise rows that the calls above wrote are read again to check visibility."""
    postgres.sql(f"VACUUM ANALYZE {filled}.jobs", f"VACUUM ANALYZE {filled}.history")


@pytest.mark.usefixtures("tidied")
@pytest.mark.parametrize("name", PAGES)
async def test_pages_read_what_they_show(store: PostgresStore, meter: Meter, name: str) -> None:
    bound, wanted = PAGES[name]
    assert await rows_read(store, meter, lambda: _two_pages(store, wanted)) <= 2 * bound


@pytest.mark.usefixtures("tidied")
@pytest.mark.parametrize("name", ORDERED)
async def test_ordered_pages_read_a_range_of_their_index(
    store: PostgresStore, meter: Meter, name: str
) -> None:
    bound, wanted, orders = ORDERED[name]
    for order in orders:
        read = await rows_read(store, meter, lambda order=order: _two_pages(store, wanted, order))
        assert read <= 2 * bound, (order, read)


async def _two_pages(store: PostgresStore, wanted: Filter, order: Order = Order.NEWEST) -> None:
    first = await store.jobs.page(wanted, limit=20, order=order)
    if first.next is not None:
        await store.jobs.page(wanted, limit=20, after=first.next, order=order)
