"""R12 d: what a worker of 1,000 queues costs while it has nothing to do."""

import asyncio
import time
from pathlib import Path

import pytest

from forge_jobs import Forge
from forge_jobs.backends.sqlite.store import SqliteStore
from forge_jobs.core.job import NewJob
from forge_jobs.core.limits import Declared
from forge_jobs.store.jobs import Exchange, Want
from tests.sqlite.child import new_process

QUEUES = [f"q{number}" for number in range(1_000)]


class Counted:
    """Counts the statements on the write connection."""

    def __init__(self, store: SqliteStore) -> None:
        self.statements = 0
        connection = store._writer.connection
        assert connection is not None
        connection.set_trace_callback(self._count)

    def _count(self, statement: str) -> None:
        self.statements += 1


@pytest.mark.parametrize("limited", [False, True])
async def test_r12d_an_exchange_that_finds_nothing_needs_few_statements(
    store: SqliteStore, limited: bool
) -> None:
    key = await store.processes.register(new_process("a"))
    if limited:
        await store.limits.publish([Declared(name="task:k", concurrency=1)])
    wants = [Want(queue, 10, 10) for queue in QUEUES]
    await store.jobs.exchange(Exchange(owner=key, number=1, want=wants))
    counted = Counted(store)
    await store.jobs.exchange(Exchange(owner=key, number=2, want=wants))
    assert counted.statements < 30


async def test_r12d_jobs_in_a_few_of_many_queues_are_claimed(store: SqliteStore) -> None:
    key = await store.processes.register(new_process("a"))
    await store.jobs.enqueue(
        [
            NewJob(kind="k", queue="q7"),
            NewJob(kind="k", queue="q998"),
            NewJob(kind="k", queue="q400", delay_s=0.01),
            NewJob(kind="k", queue="q500", limit_key="one"),
            NewJob(kind="k", queue="q501", lane="one"),
            NewJob(kind="k", queue="q500", delay_s=60.0),
        ]
    )
    await asyncio.sleep(0.02)
    wants = [Want(queue, 1, 0) for queue in QUEUES]
    reply = await store.jobs.exchange(Exchange(owner=key, number=1, want=wants))
    assert sorted(job.queue for job in reply.claims) == ["q400", "q500", "q501", "q7", "q998"]
    reply = await store.jobs.exchange(Exchange(owner=key, number=2, want=wants))
    assert reply.claims == []
    assert reply.next_due is not None


async def test_r12d_an_idle_worker_of_many_queues_exchanges_and_polls_seldom(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While another program commits all the time, which each poll has to look at."""
    async with Forge(f"sqlite:///{path}") as forge:
        store = forge.store
        assert isinstance(store, SqliteStore)

        @forge.task(kind="k", queue="q123")
        async def nothing() -> None: ...

        async with forge.worker(queues=dict.fromkeys(QUEUES, 10)):
            await asyncio.sleep(2)
            counted, exchanges = Counted(store), 0
            exchange = store.jobs.exchange

            async def counting(request: Exchange) -> object:
                nonlocal exchanges
                exchanges += 1
                return await exchange(request)

            monkeypatch.setattr(store.jobs, "exchange", counting)
            begun = time.monotonic()
            for _ in range(30):
                await store.jobs.enqueue([NewJob(kind="k", queue="other")])
                await asyncio.sleep(0.1)
            # One exchange a second, and services; a busy machine takes more than three seconds.
            seconds = time.monotonic() - begun
            assert exchanges <= 4 + 2 * seconds
            assert counted.statements < 200 * seconds
            # A job of one queue: it was 900 exchanges until all queues had been asked.
            exchanges = counted.statements = 0
            await store.jobs.enqueue([NewJob(kind="k", queue="q123")])
            await asyncio.sleep(1)
            assert exchanges <= 10
            assert counted.statements < 300
