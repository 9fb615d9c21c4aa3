"""Steps on SQLite: on disk before the call returns, and a user's transaction that cannot commit."""

import sqlite3
from pathlib import Path

import pytest

from forge_jobs.backends.sqlite.store import SqliteStore
from forge_jobs.core.decide import decide
from forge_jobs.core.errors import LeaseLost
from forge_jobs.core.events import NewEvent, Wait, WaitTopic, topic_of
from forge_jobs.core.job import Claim, ClaimedJob
from forge_jobs.core.outcome import Parked
from forge_jobs.core.steps import StepKind, StepWrite
from forge_jobs.store.jobs import Exchange, Exchanged, WaitCheck, Want
from forge_jobs.testing.clock import MovableClock
from tests.sqlite.test_durability import A_JOB, FULL, NORMAL, Levels, registered

WAIT = Wait("w", 0, (WaitTopic(topic_of("paid", "1")),))
PAID = NewEvent(name="paid", key="1")


async def claimed(store: SqliteStore, owner: int) -> ClaimedJob:
    await store.jobs.enqueue([A_JOB])
    [job] = (await store.jobs.exchange(Exchange(owner=owner, number=1, want=[Want("q", 1)]))).claims
    return job


def a_step(job: ClaimedJob, name: str = "a") -> StepWrite:
    return StepWrite(job.key, job.epoch, name, StepKind.STEP, 1, 2, b"1")


async def ask(store: SqliteStore, owner: int, job: ClaimedJob) -> Exchanged:
    check = WaitCheck(Claim(job.key, job.epoch), WAIT)
    return await store.jobs.exchange(Exchange(owner=owner, number=2, waits=[check]))


async def test_whatever_stores_a_step_is_full(store: SqliteStore) -> None:
    owner = await registered(store)
    job = await claimed(store, owner)
    levels = Levels(store)
    await store.jobs.exchange(Exchange(owner=owner, number=2, steps=[a_step(job)]))
    assert levels.taken() == {FULL}
    await ask(store, owner, job)
    assert levels.taken() == {NORMAL}
    await store.events.send([PAID])
    assert levels.taken() == {FULL}
    [answer] = (await ask(store, owner, job)).waits
    assert answer.record is not None
    assert levels.taken() == {FULL}


async def test_a_timeout_that_a_claim_stores_is_full(path: Path) -> None:
    clock = MovableClock()
    store = SqliteStore(path, clock=clock)
    await store.open()
    owner = await registered(store)
    job = await claimed(store, owner)
    deadline = clock.now() + 1
    wait = Wait("w", 0, WAIT.topics, deadline)
    parked = decide(job, Parked(wait, deadline), now=clock.now())
    await store.jobs.exchange(Exchange(owner=owner, number=2, finish=[parked]))
    clock.advance(1)
    levels = Levels(store)
    reply = await store.jobs.exchange(Exchange(owner=owner, number=3, want=[Want("q", 1)]))
    [again] = reply.claims
    assert again.steps is not None
    assert [step.kind for step in again.steps.records] == [StepKind.TIMEOUT]
    assert levels.taken() == {FULL}
    await store.close()


async def test_a_refused_step_takes_the_whole_transaction_with_it(
    store: SqliteStore, path: Path
) -> None:
    owner = await registered(store)
    job = await claimed(store, owner)
    await store.jobs.exchange(Exchange(owner=owner, number=2, release=[Claim(job.key, job.epoch)]))
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE accounts (name TEXT)")
    connection.execute("INSERT INTO accounts VALUES ('ada')")
    with pytest.raises(LeaseLost, match="not stored"):
        store.store_step_in(connection, owner, a_step(job))
    connection.commit()
    assert connection.execute("SELECT count(*) FROM accounts").fetchone() == (0,)
    connection.close()


@pytest.mark.parametrize("left_by", ["an earlier run", "a running job"])
async def test_a_wait_that_suspends_no_job_decides_nothing(
    store: SqliteStore, path: Path, left_by: str
) -> None:
    owner = await registered(store)
    job = await claimed(store, owner)
    epoch = job.epoch
    if left_by == "an earlier run":
        wait = Wait("w", 0, (WaitTopic(topic_of("other", "1")),))
        parked = decide(job, Parked(wait, None), now=await store.now())
        await store.jobs.exchange(Exchange(owner=owner, number=2, finish=[parked]))
        epoch -= 1
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("DELETE FROM forge_waits")
        connection.execute(
            "INSERT INTO forge_waits (topic, job, epoch, step, began_at, after, since) "
            "VALUES (?, ?, ?, 'w', 0, 0, 0)",
            (topic_of("paid", "1"), job.key, epoch),
        )
    connection.close()
    before = await store.jobs.owned(owner)
    [sent] = await store.events.send([PAID])
    assert sent.resumed == 0
    assert await store.jobs.owned(owner) == before
    assert await store.events.waits(limit=10) == []
