"""Enqueueing: group commit, large batches, and errors that fail only their own call."""

import asyncio
from collections.abc import Iterator

import asyncpg
import pytest

from forge_jobs.backends.postgres import enqueue
from forge_jobs.backends.postgres.notify import claim_turns
from forge_jobs.backends.postgres.store import PostgresStore
from forge_jobs.core.errors import Invalid, Unavailable, Unknown
from forge_jobs.core.job import Enqueued, NewJob
from forge_jobs.core.selection import Filter
from forge_jobs.core.status import JobStatus

from .server import PrivateServer


def plain(n: int) -> NewJob:
    return NewJob(kind="work", queue="q", payload=b'{"n":%d}' % n)


async def payloads(store: PostgresStore, answers: list[Enqueued]) -> list[bytes]:
    found: dict[str, bytes] = {}
    cursor = None
    while True:
        page = await store.jobs.page(Filter(), limit=1_000, after=cursor)
        found |= {job.id: job.payload for job in page.jobs}
        cursor = page.next
        if cursor is None:
            return [found[answer.id] for answer in answers]


@pytest.mark.parametrize("count", [1, 2, enqueue.CHUNK, 2 * enqueue.CHUNK + 1])
async def test_replies_are_in_the_order_of_the_jobs(store: PostgresStore, count: int) -> None:
    jobs = [plain(n) for n in range(count)]
    answers = await store.jobs.enqueue(jobs)
    assert [answer.key for answer in answers] == sorted({answer.key for answer in answers})
    assert await payloads(store, answers) == [job.payload for job in jobs]
    [counted] = await store.metrics.counts()
    assert (counted.status, counted.jobs) == (JobStatus.PENDING, count)


@pytest.mark.parametrize("odd", [b"", b'{"n":"a\x1eb"}'], ids=["empty", "with the separator"])
async def test_payloads_that_cannot_be_joined_into_one_text(
    store: PostgresStore, odd: bytes
) -> None:
    jobs = [plain(1), NewJob(kind="work", queue="q", payload=odd), plain(2)] * 50
    answers = await store.jobs.enqueue(jobs)
    assert await payloads(store, answers) == [job.payload for job in jobs]


async def test_keys_of_concurrent_calls_are_distinct(store: PostgresStore) -> None:
    """Calls of one job take a block of keys each, like calls of many."""
    sizes = (enqueue.CHUNK, 1, 2, enqueue.CHUNK, 1, 600, 600, 1)
    calls = [[plain(1_000 * call + n) for n in range(size)] for call, size in enumerate(sizes)]
    answers = await asyncio.gather(*(store.jobs.enqueue(jobs) for jobs in calls))
    keys = [answer.key for told in answers for answer in told]
    assert len(set(keys)) == sum(sizes)
    for jobs, told in zip(calls, answers, strict=True):
        assert await payloads(store, told) == [job.payload for job in jobs]
    later = await store.jobs.enqueue([plain(0)])
    assert later[0].key > max(keys)


async def test_a_call_has_no_more_jobs_than_its_block_has_keys(
    store: PostgresStore, schema: str, postgres: PrivateServer
) -> None:
    sequence = f"'{schema}.jobs_id_seq'::regclass"
    block = int(postgres.sql(f"SELECT seqincrement FROM pg_sequence WHERE seqrelid = {sequence}"))
    assert block >= enqueue.CHUNK
    many = enqueue._SEPARATOR.join(["{}"] * (block + 1))
    with pytest.raises(Unavailable, match="more than a block has keys"):
        await store._server.ask(
            f"SELECT {schema}.enqueue_alike_v1(NULL, 'work', 'q', 0, 5, $1)", many, limit_s=60.0
        )
    assert await store.metrics.counts() == []


async def test_a_large_batch_within_a_transaction(store: PostgresStore) -> None:
    """As the successors that a finish carries."""
    jobs = [plain(n) for n in range(2 * enqueue.CHUNK + 1)]
    enqueuer = store.jobs._enqueuer
    answers = await store._server.within(lambda link: enqueuer.insert(link, jobs, None))
    assert await payloads(store, answers) == [job.payload for job in jobs]


async def test_replies_of_a_large_mixed_batch_are_in_order(store: PostgresStore) -> None:
    jobs = [
        NewJob(
            kind=f"k{n % 3}",
            queue="q",
            payload=b'{"n":%d,"x":"%s"}' % (n, b"x" * (3_000 if n % 700 == 0 else 1)),
            delay_s=60.0 if n % 2 else 0.0,
            tags=("odd",) if n % 2 else (),
        )
        for n in range(enqueue.CHUNK + 500)
    ]
    answers = await store.jobs.enqueue(jobs)
    assert await payloads(store, answers) == [job.payload for job in jobs]
    assert [answer.status for answer in answers[:2]] == [JobStatus.PENDING, JobStatus.SCHEDULED]


async def test_a_large_batch_is_atomic(store: PostgresStore) -> None:
    jobs = [plain(n) for n in range(2 * enqueue.CHUNK)]
    jobs.append(NewJob(kind="work", queue="q", limit_key="a\0b"))
    with pytest.raises(Invalid):
        await store.jobs.enqueue(jobs)
    assert await store.metrics.counts() == []


async def test_concurrent_calls_share_commits(
    store: PostgresStore, schema: str, postgres: PrivateServer
) -> None:
    before = int(postgres.sql("SELECT pg_current_xact_id()::text"))
    answers = await asyncio.gather(*(store.jobs.enqueue([plain(n)]) for n in range(300)))
    used = int(postgres.sql("SELECT pg_current_xact_id()::text")) - before
    assert used < 100
    flat = [answer for [answer] in answers]
    assert await payloads(store, flat) == [plain(n).payload for n in range(300)]


def keyed(n: int, key: str | None = None) -> NewJob:
    return NewJob(kind="work", queue="q", payload=b'{"n":%d}' % n, dedupe_key=key or f"key-{n}")


async def test_concurrent_calls_with_keys_share_commits_too(
    store: PostgresStore, postgres: PrivateServer
) -> None:
    before = int(postgres.sql("SELECT pg_current_xact_id()::text"))
    calls = [store.jobs.enqueue([keyed(n % 100)]) for n in range(300)]
    flat = [answer for [answer] in await asyncio.gather(*calls)]
    used = int(postgres.sql("SELECT pg_current_xact_id()::text")) - before
    assert used < 100
    assert [answer.duplicate for answer in flat] == [False] * 100 + [True] * 200
    assert await payloads(store, flat) == [keyed(n % 100).payload for n in range(300)]


async def test_a_call_that_waits_for_a_dedupe_key_delays_no_other(
    store: PostgresStore, schema: str, postgres: PrivateServer
) -> None:
    """An open transaction of another program holds the key."""
    connection = await asyncpg.connect(postgres.url())
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute(
        f"INSERT INTO {schema}.dedupe_keys (kind, key, job) VALUES ('work', 'theirs', 1)"
    )
    first = asyncio.create_task(store.jobs.enqueue([keyed(500)]))
    await asyncio.sleep(0)
    # In one batch with the calls after it.
    waiting = asyncio.create_task(store.jobs.enqueue([keyed(1_000, "theirs")]))
    others = [asyncio.create_task(store.jobs.enqueue([keyed(n)])) for n in range(200)]
    try:
        async with asyncio.timeout(4):
            await asyncio.gather(first, *others)
        assert not waiting.done()
    finally:
        await transaction.rollback()
        await connection.close()
    [answer] = await waiting
    assert not answer.duplicate


async def test_a_bad_job_fails_alone(store: PostgresStore) -> None:
    bad = NewJob(kind="work", queue="q", limit_key="a\0b")
    calls = [store.jobs.enqueue([bad if n == 20 else plain(n)]) for n in range(40)]
    done = await asyncio.gather(*calls, return_exceptions=True)
    assert [n for n, answer in enumerate(done) if isinstance(answer, Invalid)] == [20]
    [counted] = await store.metrics.counts()
    assert counted.jobs == 39


async def test_a_cancelled_call_does_not_stop_the_others(store: PostgresStore) -> None:
    calls = [asyncio.create_task(store.jobs.enqueue([plain(n)])) for n in range(20)]
    await asyncio.sleep(0)
    calls[0].cancel()
    calls[7].cancel()
    done = await asyncio.gather(*calls, return_exceptions=True)
    failed = [n for n, answer in enumerate(done) if isinstance(answer, BaseException)]
    assert failed == [0, 7]


@pytest.mark.parametrize(("count", "single"), [(1, True), (2, False), (enqueue.CHUNK, False)])
async def test_an_enqueue_that_finds_none_running_stores_and_notifies_in_one_call(
    store: PostgresStore,
    schema: str,
    postgres: PrivateServer,
    asked: list[str],
    count: int,
    single: bool,
) -> None:
    """The notification of a single job chooses the process that claims first; others do not."""
    arrived: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    listening = await asyncpg.connect(postgres.url())
    await listening.add_listener(
        store._server.address.channel, lambda *args: arrived.set_result(args[3])
    )
    try:
        answers = await store.jobs.enqueue([plain(1)] * count)
        async with asyncio.timeout(20):
            text = await arrived
    finally:
        await listening.close()
    assert asked == [f"CALL {schema}.enqueue_and_notify_v1"]
    assert (claim_turns.decode(text) is not None) == single
    assert text.startswith("q")
    assert await payloads(store, answers) == [plain(1).payload] * count
    [counted] = await store.metrics.counts()
    assert (counted.status, counted.jobs) == (JobStatus.PENDING, count)


@pytest.fixture
def slow_notification(schema: str, postgres: PrivateServer) -> Iterator[None]:
    """The notification after the commit takes for ever, so that the call can be stopped there."""
    text = postgres.sql(f"SELECT pg_get_functiondef('{schema}.enqueue_and_notify_v1'::regproc)")
    slow = text.replace("pg_notify(p_channel, p_queues)", "pg_sleep(60)")
    assert slow != text
    postgres.sql(slow)
    yield
    # Other tests get the same schema.
    postgres.sql(text)


@pytest.mark.usefixtures("slow_notification")
@pytest.mark.parametrize(("count", "text"), [(1, "the job"), (3, "3 jobs")])
async def test_a_call_that_was_cancelled_after_its_commit_has_an_unknown_effect(
    store: PostgresStore, count: int, text: str
) -> None:
    await store._server.ask("SELECT set_config('statement_timeout', '1s', false)", writes=False)
    with pytest.raises(Unknown, match=f"{text} may be stored"):
        await store.jobs.enqueue([plain(1)] * count)
    page = await store.jobs.page(Filter(), limit=10)
    assert [job.payload for job in page.jobs] == [plain(1).payload] * count


@pytest.mark.usefixtures("slow_notification")
async def test_a_call_whose_session_was_ended_after_its_commit_has_an_unknown_effect(
    store: PostgresStore, schema: str, postgres: PrivateServer
) -> None:
    """As a fast restart of the server does it."""
    call = asyncio.create_task(store.jobs.enqueue([plain(1)]))
    async with asyncio.timeout(20):
        while not (await store.jobs.page(Filter(), limit=1)).jobs:
            await asyncio.sleep(0.05)
    postgres.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        f" WHERE query LIKE 'CALL {schema}.enqueue_and_notify_v1%'"
    )
    with pytest.raises(Unknown, match="may have had its effect"):
        await call


@pytest.mark.parametrize("count", [1, 600])
async def test_jobs_are_on_the_disk_when_their_call_returns(
    store: PostgresStore, count: int
) -> None:
    """Visible jobs need not be on the disk, so the test compares the positions in the write-ahead
    log. A record of another session may follow ours in one try, but not in all five."""
    written: list[bool] = []
    for n in range(5):
        await asyncio.sleep(
            0.1
        )  # past the notification window: the jobs are stored by their own statement
        await store.jobs.enqueue([plain(n)] * count)
        flushed = "SELECT pg_current_wal_flush_lsn() >= pg_current_wal_insert_lsn()"
        written.append((await store._server.ask(flushed, writes=False))[0][0])
    assert written.count(True) >= 4
