"""Steps on Postgres: who may store them while others take jobs away, and users' transactions."""

import asyncio
from typing import Any

import asyncpg
import pytest

from forge_jobs.backends.postgres.store import PostgresStore
from forge_jobs.core.decide import Finish, done
from forge_jobs.core.errors import LeaseLost, Unavailable
from forge_jobs.core.job import Claim, ClaimedJob, NewJob
from forge_jobs.core.status import Event, JobStatus
from forge_jobs.core.steps import FinishSteps, StepKind, StepWrite
from forge_jobs.store.jobs import Exchange, Note, Verdict, Want
from forge_jobs.store.processes import NewProcess

from .server import PrivateServer

AT = 1_700_000_000_000_000
NOTE = "its worker died"


class Worker:
    """A process with numbered exchanges."""

    def __init__(self, store: PostgresStore, key: int) -> None:
        self.store = store
        self.key = key
        self._number = 0

    async def exchange(self, **writes: Any) -> Any:
        self._number += 1
        request = Exchange(owner=self.key, number=self._number, **writes)
        return await self.store.jobs.exchange(request)

    async def claim(self, free: int = 1, prefetch: int = 0) -> list[ClaimedJob]:
        return list((await self.exchange(want=[Want("q", free, prefetch)])).claims)


async def registered(store: PostgresStore, host: str = "", replaces: str | None = None) -> Worker:
    process = NewProcess(
        host_id=host or "first", label="l", queues=("q",), pid=1, hostname="b", lease_s=600.0
    )
    return Worker(store, await store.processes.register(process, replaces=replaces))


def step(job: ClaimedJob, name: str = "one", value: bytes = b"1") -> StepWrite:
    return StepWrite(job.key, job.epoch, name, StepKind.STEP, AT, AT, value)


@pytest.fixture
async def worker(store: PostgresStore) -> Worker:
    return await registered(store)


@pytest.fixture
async def user(postgres: PrivateServer) -> Any:
    """A connection of the user's own."""
    connection = await asyncpg.connect(postgres.url())
    yield connection
    await connection.close()


async def stored(store: PostgresStore, job_id: str) -> list[str]:
    return [record.name for record in await store.steps.page(job_id)]


async def reaped(store: PostgresStore) -> int:
    return (await store.jobs.reap(crash_note=NOTE, limit=10)).pending


async def test_no_job_is_reaped_while_its_owner_stores_a_step(
    store: PostgresStore, worker: Worker, user: Any, schema: str
) -> None:
    """The exchange is stopped between its insert and its commit. A reaper that took the job then
    would let a second run begin without the step, which appears a moment later."""
    [answer] = await store.jobs.enqueue([NewJob(kind="w", queue="q")])
    [job] = await worker.claim()
    async with user.transaction():
        await user.execute(f"SELECT {schema}.lock_for_steps_v1(NULL, $1, false)", worker.key)
        await user.execute(
            f"SELECT {schema}.store_steps_v1($1, $2, $3, $4, $5, $6, $6, $7, $8)",
            worker.key, [job.key], [job.epoch], ["one"], ["step"], [AT], [b"1"], [None],
        )  # fmt: skip
        await registered(store, "next", replaces="first")
        assert await reaped(store) == 0
    assert await reaped(store) == 1
    assert await stored(store, answer.id) == ["one"]
    [again] = await (await registered(store, "third")).claim()
    assert again.steps is not None
    assert [record.name for record in again.steps.records] == ["one"]


async def test_a_step_that_comes_during_a_reap_is_stale(
    store: PostgresStore, worker: Worker, user: Any, schema: str
) -> None:
    [answer] = await store.jobs.enqueue([NewJob(kind="w", queue="q")])
    [job] = await worker.claim()
    await registered(store, "next", replaces="first")
    async with user.transaction():
        now = await store.now()
        assert (
            await user.fetchval(f"SELECT pending FROM {schema}.reap_v1($1, 'x', 9, 'g', 'x')", now)
            == 1
        )
        late = asyncio.create_task(worker.exchange(steps=[step(job)]))
        await waiting_for_a_lock(user)
    assert [reply.verdict for reply in (await late).steps] == [Verdict.STALE]
    assert await stored(store, answer.id) == []


@pytest.mark.parametrize("how", ["release", "fail", "deregister"])
async def test_a_job_is_given_back_only_after_an_earlier_call_that_stores_its_step(
    store: PostgresStore, worker: Worker, user: Any, schema: str, how: str
) -> None:
    """The reply to the earlier call was lost; it is still under way on the server."""
    [answer] = await store.jobs.enqueue([NewJob(kind="w", queue="q")])
    [job] = await worker.claim()
    failed = Finish(
        job.key, job.epoch, Event.FAIL, JobStatus.FAILED, "q", "w", error="x", steps=FinishSteps()
    )
    async with user.transaction():
        await user.execute(f"SELECT {schema}.lock_for_steps_v1(NULL, $1, false)", worker.key)
        await user.execute(
            f"SELECT {schema}.store_steps_v1($1, $2, $3, $4, $5, $6, $6, $7, $8)",
            worker.key, [job.key], [job.epoch], ["one"], ["step"], [AT], [b"1"], [None],
        )  # fmt: skip
        if how == "deregister":
            later = asyncio.create_task(store.processes.deregister(worker.key))
        elif how == "release":
            claims = [Claim(job.key, job.epoch)]
            later = asyncio.create_task(worker.exchange(release=claims))
        else:
            later = asyncio.create_task(worker.exchange(finish=[failed]))
        await waiting_for_a_lock(user)
    await later
    assert await stored(store, answer.id) == ["one"]
    found = await store.jobs.get(answer.id)
    assert found is not None
    assert found.has_steps
    if how != "fail":
        [again] = await (await registered(store, "next")).claim()
        assert again.steps is not None
        assert [record.name for record in again.steps.records] == ["one"]


async def test_a_job_with_an_open_step_in_a_users_transaction_is_not_reaped_and_others_are(
    store: PostgresStore, worker: Worker, user: Any
) -> None:
    await store.jobs.enqueue([NewJob(kind="w", queue="q")] * 2)
    first, _ = await worker.claim(2)
    async with user.transaction():
        await store.astore_step_in(user, worker.key, step(first))
        await registered(store, "next", replaces="first")
        assert await reaped(store) == 1
    assert await reaped(store) == 1


async def test_a_job_whose_client_host_vanished_runs_again_once_the_server_ends_its_session(
    store: PostgresStore, worker: Worker, postgres: PrivateServer
) -> None:
    """The host is gone without a word: for the server the transaction stays open, idle. Other jobs
    of that host are reaped at once."""
    answers = await store.jobs.enqueue([NewJob(kind="w", queue="q")] * 2)
    first, _ = await worker.claim(2)
    vanished = await asyncpg.connect(
        postgres.url(), server_settings={"idle_in_transaction_session_timeout": "1500"}
    )
    await vanished.execute("BEGIN")
    await store.astore_step_in(vanished, worker.key, step(first, "debit"))
    # Nothing more comes from it, not even the end of its connection.
    next_worker = await registered(store, "next", replaces="first")
    assert await reaped(store) == 1
    async with asyncio.timeout(60):
        while not await reaped(store):
            await asyncio.sleep(0.1)
    assert await stored(store, answers[0].id) == []
    assert {job.key for job in await next_worker.claim(2)} == {one.key for one in answers}
    again = await store.jobs.get(answers[0].id)
    assert again is not None
    assert not again.has_steps
    vanished.terminate()


async def test_an_exchange_waits_for_no_open_step(
    store: PostgresStore, worker: Worker, user: Any
) -> None:
    """Steps, notes, started marks and finishes of other jobs go on; a mark that could not be
    written is written by the next exchange."""
    answers = await store.jobs.enqueue([NewJob(kind="w", queue="q")] * 3)
    jobs = await worker.claim(0, 3)
    claims = [Claim(job.key, job.epoch) for job in jobs]
    async with user.transaction():
        await store.astore_step_in(user, worker.key, step(jobs[0], "debit"))
        async with asyncio.timeout(10):
            reply = await worker.exchange(
                steps=[step(jobs[0], "other")],
                started=claims[:2],
                notes=[Note(claim, progress=0.5) for claim in claims],
                finish=[done(jobs[2], result=None)],
            )
        assert [one.verdict for one in reply.steps] == [Verdict.APPLIED]
        assert reply.verdicts == [Verdict.APPLIED]
        assert [one.started for one in await store.jobs.owned(worker.key)] == [False, True]
    await worker.exchange()
    assert [one.started for one in await store.jobs.owned(worker.key)] == [True, True]
    assert await stored(store, answers[0].id) == ["debit", "other"]


async def test_the_finish_of_a_job_with_an_open_step_fails_soon(
    store: PostgresStore, worker: Worker, user: Any
) -> None:
    [answer] = await store.jobs.enqueue([NewJob(kind="w", queue="q")])
    [job] = await worker.claim()
    finish = Finish(job.key, job.epoch, Event.DONE, JobStatus.DONE, "q", "w", steps=FinishSteps())
    async with user.transaction():
        await store.astore_step_in(user, worker.key, step(job))
        async with asyncio.timeout(8):
            with pytest.raises(Unavailable, match="holds a lock"):
                await worker.exchange(finish=[finish])
    assert (await worker.exchange(finish=[finish])).verdicts == [Verdict.APPLIED]
    assert await stored(store, answer.id) == ["one"]


async def test_a_release_leaves_a_job_with_an_open_step_alone(
    store: PostgresStore, worker: Worker, user: Any
) -> None:
    answers = await store.jobs.enqueue([NewJob(kind="w", queue="q")] * 2)
    jobs = await worker.claim(2)
    async with user.transaction():
        await store.astore_step_in(user, worker.key, step(jobs[0]))
        async with asyncio.timeout(8):
            await worker.exchange(release=[Claim(job.key, job.epoch) for job in jobs])
        found = [await store.jobs.get(answer.id) for answer in answers]
        assert [one.status for one in found if one] == [JobStatus.RUNNING, JobStatus.PENDING]
    await worker.exchange(release=[Claim(job.key, job.epoch) for job in jobs])
    found = await store.jobs.get(answers[0].id)
    assert found is not None
    assert (found.status, found.has_steps) == (JobStatus.PENDING, True)


async def test_a_refused_step_leaves_a_transaction_that_cannot_commit(
    store: PostgresStore, worker: Worker, user: Any, schema: str
) -> None:
    await store.jobs.enqueue([NewJob(kind="w", queue="q")])
    [job] = await worker.claim()
    await user.execute(f"CREATE TABLE {schema}.accounts (left_over integer)")
    transaction = user.transaction()
    await transaction.start()
    await user.execute(f"INSERT INTO {schema}.accounts VALUES (1)")
    with pytest.raises(LeaseLost):
        await store.astore_step_in(user, worker.key + 1, step(job))
    await transaction.commit()
    assert await user.fetchval(f"SELECT count(*) FROM {schema}.accounts") == 0
    await user.execute(f"DROP TABLE {schema}.accounts")


async def test_a_claim_brings_steps_that_were_committed_after_its_statement_began(
    store: PostgresStore, worker: Worker, user: Any, schema: str, postgres: PrivateServer
) -> None:
    """claimed_steps_v1 reads with a snapshot of its own: a claim may take a row version that is
    newer than the snapshot of its statement."""
    await store.jobs.enqueue([NewJob(kind="w", queue="q")])
    [job] = await worker.claim()
    query = f"""
        WITH first AS MATERIALIZED (SELECT pg_advisory_xact_lock(42))
        SELECT {schema}.claimed_steps_v1($1, 0)::text FROM first
    """
    holder = await asyncpg.connect(postgres.url())
    async with holder.transaction():
        await holder.execute("SELECT pg_advisory_xact_lock(42)")
        reading = asyncio.create_task(user.fetchval(query, job.key))
        await waiting_for_a_lock(holder)
        await worker.exchange(steps=[step(job)])
    assert '"one"' in await reading
    await holder.close()


async def waiting_for_a_lock(connection: Any) -> None:
    """Wait until some other session waits for a lock that this one holds."""
    async with asyncio.timeout(30):
        while not await connection.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE pg_backend_pid() = ANY "
            "(pg_blocking_pids(pid))"
        ):
            await asyncio.sleep(0.02)
