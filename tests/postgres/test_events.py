"""Events on Postgres: sender, waiting job and deadline at once; users' transactions; plans."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import asyncpg
import pytest

from forge_jobs.backends.postgres.store import PostgresStore
from forge_jobs.core.decide import Finish
from forge_jobs.core.events import NewEvent, Wait, WaitTopic, topic_of
from forge_jobs.core.instant import SECOND
from forge_jobs.core.job import ClaimedJob, Enqueued, NewJob
from forge_jobs.core.status import Event, JobStatus
from forge_jobs.core.steps import FinishSteps, StepKind
from forge_jobs.store.jobs import Exchange, Want
from forge_jobs.store.processes import NewProcess

from .counters import handed_over
from .server import PrivateServer
from .test_steps import waiting_for_a_lock

HOUR = 3_600 * SECOND


class Worker:
    """A process that claims jobs of one queue and suspends them."""

    def __init__(self, store: PostgresStore, key: int) -> None:
        self.store = store
        self.key = key
        self._number = 0

    async def exchange(self, **writes: Any) -> Any:
        self._number += 1
        request = Exchange(owner=self.key, number=self._number, **writes)
        return await self.store.jobs.exchange(request)

    async def claims(self, count: int) -> tuple[list[Enqueued], list[ClaimedJob]]:
        answers = await self.store.jobs.enqueue([NewJob(kind="w", queue="q")] * count)
        reply = await self.exchange(want=[Want("q", count)])
        return answers, list(reply.claims)


def parked(job: ClaimedJob, topics: Sequence[str], now: int, deadline: int | None = None) -> Finish:
    wait = Wait("wait", now, tuple(WaitTopic(topic) for topic in topics), deadline)
    steps = FinishSteps(wait=wait, run_at=deadline)
    return Finish(
        job.key, job.epoch, Event.SUSPEND, JobStatus.SUSPENDED, job.queue, job.kind, steps=steps
    )


@pytest.fixture
async def worker(store: PostgresStore) -> Worker:
    process = NewProcess(host_id="h", label="l", queues=("q",), pid=1, hostname="b", lease_s=600.0)
    return Worker(store, await store.processes.register(process))


@pytest.fixture
async def user(postgres: PrivateServer) -> Any:
    connection = await asyncpg.connect(postgres.url())
    yield connection
    await connection.close()


async def states(store: PostgresStore, answers: Sequence[Enqueued]) -> set[JobStatus]:
    found = [await store.jobs.get(answer.id) for answer in answers]
    return {job.status for job in found if job is not None}


async def kinds(store: PostgresStore, answer: Enqueued) -> list[StepKind]:
    return [step.kind for step in await store.steps.page(answer.id)]


async def test_no_wake_up_is_lost_when_events_and_waits_come_at_once(
    store: PostgresStore, worker: Worker, schema: str
) -> None:
    """Each job waits for two topics and each event goes to one of them, in both orders."""
    now = await store.now()
    for _ in range(30):
        answers, jobs = await worker.claims(8)
        topics = [topic_of("e", f"{number}") for number in range(8)]
        finishes = [
            parked(job, [topics[number], topics[-1 - number]], now)
            for number, job in enumerate(jobs)
        ]
        events = [NewEvent(name="e", key=f"{number}") for number in range(8)]
        await asyncio.gather(
            worker.exchange(finish=finishes[:8]),
            store.events.send(events[:3]),
            store.events.send(events[7:4:-1]),
            store.events.send(events[3:5]),
        )
        await worker.exchange()
        assert await states(store, answers) == {JobStatus.PENDING}
        reply = await worker.exchange(want=[Want("q", 8)])
        assert all(job.steps and len(job.steps.records) == 1 for job in reply.claims)
        ends = [
            Finish(job.key, job.epoch, Event.DONE, JobStatus.DONE, "q", "w") for job in reply.claims
        ]
        await worker.exchange(finish=ends)
        await store._server.ask(f"DELETE FROM {schema}.events")
        now = await store.now()


async def test_a_sender_waits_for_a_job_that_is_being_suspended(
    store: PostgresStore, worker: Worker, user: Any, schema: str
) -> None:
    """Otherwise neither would see what the other wrote."""
    answers, [job] = await worker.claims(1)
    async with user.transaction():
        await user.execute(f"SELECT {schema}.lock_topics_v1($1)", [topic_of("e", "1")])
        sending = asyncio.create_task(store.events.send([NewEvent(name="e", key="1")]))
        await waiting_for_a_lock(user)
        now = await store.now()
        await user.execute(
            f"UPDATE {schema}.jobs SET status = 'suspended', run_at = $2, steps = true "
            "WHERE id = $1",
            job.key, now + HOUR,
        )  # fmt: skip
        await user.execute(
            f"INSERT INTO {schema}.waits (job, began_at, after, since, epoch, topic, step) "
            "VALUES ($1, $2, 0, 0, $3, $4, 'wait')",
            job.key, now, job.epoch, topic_of("e", "1"),
        )  # fmt: skip
    [sent] = await sending
    assert sent.resumed == 1
    assert await states(store, answers) == {JobStatus.PENDING}


async def test_a_job_that_is_being_suspended_waits_for_the_sender(
    store: PostgresStore, worker: Worker, user: Any, schema: str
) -> None:
    answers, [job] = await worker.claims(1)
    topic = topic_of("e", "1")
    async with user.transaction():
        now = await store.now()
        await user.execute(
            f"SELECT queues FROM {schema}.send_v1(NULL, $1, $2, $3, NULL, NULL, 500)",
            [topic], [b"1"], [60.0],
        )  # fmt: skip
        parking = asyncio.create_task(worker.exchange(finish=[parked(job, [topic], now)]))
        await waiting_for_a_lock(user)
    await parking
    assert await states(store, answers) == {JobStatus.PENDING}
    assert await kinds(store, answers[0]) == [StepKind.EVENT]


async def test_an_event_sent_by_the_deadline_wins_over_the_promotion(
    store: PostgresStore, worker: Worker, user: Any, schema: str, postgres: PrivateServer
) -> None:
    """The event is not committed yet when the deadline passes: the job is left for later."""
    answers, [job] = await worker.claims(1)
    topic = topic_of("e", "1")
    async with user.transaction():
        deadline = await store.now() + 2 * SECOND
        await worker.exchange(finish=[parked(job, [topic], deadline - 2 * SECOND, deadline)])
        # The sender skips the job's row, which another transaction holds.
        blocker = await asyncpg.connect(postgres.url())
        async with blocker.transaction():
            await blocker.execute(f"SELECT 1 FROM {schema}.jobs WHERE id = $1 FOR UPDATE", job.key)
            await user.execute(
                f"SELECT queues FROM {schema}.send_v1(NULL, $1, $2, $3, NULL, NULL, 500)",
                [topic], [b"1"], [60.0],
            )  # fmt: skip
        await blocker.close()
        async with asyncio.timeout(30):
            while await store.now() <= deadline:
                await asyncio.sleep(0.05)
        assert (await store.jobs.promote(limit=10)).promoted == 0
    assert (await store.jobs.promote(limit=10)).promoted == 1
    assert await kinds(store, answers[0]) == [StepKind.EVENT]


async def test_events_are_taken_in_the_order_of_their_commits(
    store: PostgresStore, worker: Worker, user: Any
) -> None:
    _, [job] = await worker.claims(1)
    async with user.transaction():
        await store.asend_in(user, [NewEvent(name="e", payload=b'"early"')])
        await store.events.send([NewEvent(name="e", payload=b'"late"')])
    now = await store.now()
    await worker.exchange(finish=[parked(job, [topic_of("e", "")], now)])
    [again] = (await worker.exchange(want=[Want("q", 1)])).claims
    assert again.steps is not None
    assert b'"late"' in (again.steps.records[0].value or b"")
    payloads = [event.payload for event in await store.events.page(limit=10)]
    assert payloads == [b'"early"', b'"late"']


async def test_a_transaction_that_sends_wakes_the_queues_of_waiting_jobs(
    store: PostgresStore, worker: Worker, user: Any
) -> None:
    answers, [job] = await worker.claims(1)
    await worker.exchange(finish=[parked(job, [topic_of("e", "1")], await store.now())])
    woken = asyncio.Event()
    subscription = await store.subscribe(["q"], woken.set)
    await asyncio.sleep(0.2)
    woken.clear()
    async with user.transaction():
        await store.asend_in(user, [NewEvent(name="e", key="1")])
    async with asyncio.timeout(20):
        await woken.wait()
    await worker.exchange()
    assert await states(store, answers) == {JobStatus.PENDING}
    await subscription.close()


async def test_a_locked_job_gets_its_event_later(
    store: PostgresStore, worker: Worker, user: Any, schema: str
) -> None:
    answers, [job] = await worker.claims(1)
    await worker.exchange(finish=[parked(job, [topic_of("e", "1")], await store.now())])
    async with user.transaction():
        await user.execute(f"SELECT 1 FROM {schema}.jobs WHERE id = $1 FOR UPDATE", job.key)
        [sent] = await store.events.send([NewEvent(name="e", key="1")])
        assert sent.resumed == 0
        await worker.exchange()
        assert await states(store, answers) == {JobStatus.SUSPENDED}
    await worker.exchange()
    assert await states(store, answers) == {JobStatus.PENDING}


async def test_waits_that_nobody_needs_do_not_keep_an_event_open(
    store: PostgresStore, worker: Worker, user: Any, schema: str
) -> None:
    topic = topic_of("e", "1")
    await user.execute(
        f"INSERT INTO {schema}.waits (job, began_at, after, since, epoch, topic, step) "
        "VALUES (1, 0, 0, 0, 1, $1, 'wait')",
        topic,
    )
    await store.events.send([NewEvent(name="e", key="1")])
    await worker.exchange()
    assert await user.fetchval(f"SELECT count(*) FROM {schema}.waits") == 0
    assert await user.fetchval(f"SELECT count(*) FROM {schema}.events WHERE open") == 0


async def test_a_wait_of_another_run_resumes_no_job(
    store: PostgresStore, worker: Worker, user: Any, schema: str
) -> None:
    """The job is suspended again, for another event."""
    answers, [job] = await worker.claims(1)
    await worker.exchange(finish=[parked(job, [topic_of("e", "new")], await store.now())])
    await user.execute(
        f"INSERT INTO {schema}.waits (job, began_at, after, since, epoch, topic, step) "
        "VALUES ($1, 0, 0, 0, $2, $3, 'wait')",
        job.key, job.epoch - 1, topic_of("e", "old"),
    )  # fmt: skip
    [sent] = await store.events.send([NewEvent(name="e", key="old")])
    assert sent.resumed == 0
    await worker.exchange()
    assert await states(store, answers) == {JobStatus.SUSPENDED}
    assert await kinds(store, answers[0]) == []
    [sent] = await store.events.send([NewEvent(name="e", key="new")])
    assert sent.resumed == 1


async def test_a_wait_of_a_running_job_does_not_take_it_from_its_worker(
    store: PostgresStore, worker: Worker, user: Any, schema: str
) -> None:
    answers, [job] = await worker.claims(1)
    await user.execute(
        f"INSERT INTO {schema}.waits (job, began_at, after, since, epoch, topic, step) "
        "VALUES ($1, 0, 0, 0, $2, $3, 'wait')",
        job.key, job.epoch, topic_of("e", "1"),
    )  # fmt: skip
    [sent] = await store.events.send([NewEvent(name="e", key="1")])
    assert sent.resumed == 0
    await worker.exchange()
    assert await states(store, answers) == {JobStatus.RUNNING}
    assert await kinds(store, answers[0]) == []


async def test_deliver_finds_a_wait_whose_event_was_missed(
    store: PostgresStore, worker: Worker, user: Any, schema: str
) -> None:
    answers, [job] = await worker.claims(1)
    topic = topic_of("e", "1")
    await worker.exchange(finish=[parked(job, [topic], await store.now())])
    now = await store.now()
    await user.execute(
        f"INSERT INTO {schema}.events (topic, at, ends_at, payload) VALUES ($1, $2, $3, '1')",
        topic, now, now + HOUR,
    )  # fmt: skip
    await worker.exchange()
    assert await states(store, answers) == {JobStatus.SUSPENDED}
    assert await store.events.deliver(limit=10) == 1
    assert await states(store, answers) == {JobStatus.PENDING}


FILL = """
INSERT INTO {s}.events (topic, at, ends_at, payload)
SELECT 'many' || chr(31) || n % 100, 1000, 9000000000000000, 'null'
FROM generate_series(1, 20000) n;
INSERT INTO {s}.jobs (id, status, queue, kind, priority, run_at, enqueued_at, max_attempts, payload,
    epoch, steps)
SELECT -n, 'suspended', 'other', 'w', 0, 253402300799000000, 1000, 5, '{{}}', 1, true
FROM generate_series(1, 20000) n;
INSERT INTO {s}.waits (job, began_at, after, since, epoch, topic, step)
SELECT -n, 1000, 20000, 2000, 1, 'many' || chr(31) || n % 100, 'wait'
FROM generate_series(1, 20000) n;
INSERT INTO {s}.steps (job, began_at, ended_at, epoch, kind, name, value)
SELECT -(n % 20000 + 1), 1000, 1000, 1, 'step', 's' || n, '1' FROM generate_series(1, 40000) n;
"""


@pytest.mark.slow
async def test_calls_read_what_they_need_among_many_waits_events_and_steps(
    store: PostgresStore, worker: Worker, user: Any, schema: str, postgres: PrivateServer
) -> None:
    async with user.transaction():
        await user.execute(FILL.format(s=schema))
        # Like an autovacuum that comes meanwhile: it takes the tables for empty.
        for table in ("jobs", "waits", "events", "steps"):
            postgres.sql(f"ANALYZE {schema}.{table}")
    _, jobs = await worker.claims(40)
    now = await store.now()
    read: list[Counter[str]] = []
    for number in range(20):
        await handed_over(store._server.ask)
        before, scans = await _read(user, schema)
        topic = topic_of("one", str(number))
        await worker.exchange(finish=[parked(jobs[number], [topic], now)])
        [sent] = await store.events.send([NewEvent(name="one", key=str(number))])
        assert sent.resumed == 1
        await worker.exchange(want=[Want("q", 1)])
        await handed_over(store._server.ask)
        after, scans_after = await _read(user, schema)
        assert scans_after == scans
        read.append(after - before)
    # Sessions report what they read with a delay, so that some windows hold that of others.
    assert min(one.total() for one in read) < 60, read


async def _read(user: Any, schema: str) -> tuple[Counter[str], int]:
    """Rows of the large tables that were read by table, and how often one was read whole."""
    await user.execute("SELECT pg_stat_clear_snapshot()")
    rows = await user.fetch(
        "SELECT relname, (COALESCE(idx_tup_fetch, 0) + seq_tup_read)::bigint AS rows, "
        "seq_scan FROM pg_stat_user_tables WHERE schemaname = $1 "
        "AND relname IN ('jobs', 'waits', 'events', 'steps')",
        schema,
    )
    return Counter({row["relname"]: row["rows"] for row in rows}), sum(
        row["seq_scan"] for row in rows
    )
