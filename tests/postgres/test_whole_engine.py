"""A complete worker on Postgres: lost replies lose no job, and four connections suffice."""

import asyncio
import threading
from typing import Any

import asyncpg
import pytest

from forge_jobs import Context, Forge, Unknown
from forge_jobs.backends.postgres.store import PostgresStore
from forge_jobs.core.status import JobStatus
from tests.engine.rig import Rig, until

from .proxy import faulty_proxy

JOBS = 200
LOSSES = 5


async def test_an_enqueue_without_a_reply_is_repeated_with_its_key(url: str) -> None:
    async with faulty_proxy(url) as (proxy, through):
        forge = Forge(through)
        await forge.aenqueue("work", {"n": 0}, dedupe_key="warm")
        proxy.swallow = True
        with pytest.raises(Unknown, match="may have had its effect"):
            await forge.aenqueue("work", {"n": 1}, dedupe_key="once")
        assert proxy.swallowed == 1
        again = await forge.aenqueue("work", {"n": 1}, dedupe_key="once")
        assert again.duplicate
        ran: list[int] = []

        @forge.task(kind="work")
        async def work(n: int) -> None:
            ran.append(n)

        await forge.drain()
        assert sorted(ran) == [0, 1]
        await forge.aclose()


@pytest.mark.slow
async def test_exchanges_without_replies_lose_no_job(url: str) -> None:
    """Claims whose reply was lost are released, finishes are written once."""
    async with faulty_proxy(url) as (proxy, through):
        store = PostgresStore(through)
        await store.open()
        rig = Rig(store)
        runs: dict[int, int] = {}

        async def work(ctx: Context, given: Any) -> None:
            runs[given] = runs.get(given, 0) + 1
            await asyncio.sleep(0.02)

        rig.on("work", work)
        for n in range(JOBS):
            await rig.add("work", n)
        async with rig.working({"q": 5}):
            for loss in range(1, LOSSES + 1):
                proxy.swallow = True
                await until(lambda loss=loss: proxy.swallowed == loss, "a reply is swallowed")
                await asyncio.sleep(0.2)

            async def over() -> bool:
                return await rig.counts() == {"done": JOBS}

            await until(over, "all jobs are done")
        assert sorted(runs) == list(range(JOBS))
        # A job whose reply was lost may run again; the others may not.
        assert sum(runs.values()) <= JOBS + LOSSES * 20
        minutes = await store.metrics.minutes(since=0, until=1 << 62)
        assert sum(minute.done for minute in minutes) == JOBS
        await store.close()


@pytest.mark.slow
async def test_four_connections_for_any_number_of_queues_and_slots(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect, opened = asyncpg.connect, list[Any]()

    async def noted(*args: Any, **options: Any) -> Any:
        opened.append(await connect(*args, **options))
        return opened[-1]

    # Counted by the client: the server may notice the end of a connection late.
    monkeypatch.setattr(asyncpg, "connect", noted)
    forge = Forge(url)

    @forge.task(kind="leaf")
    async def leaf() -> None:
        await asyncio.sleep(0.001)

    @forge.task(kind="in_a_thread")
    def in_a_thread(ctx: Context, queue: str) -> None:
        ctx.enqueue(leaf.using(queue=queue))
        leaf.using(queue=queue).enqueue()

    @forge.task(kind="in_a_loop")
    async def in_a_loop(ctx: Context, queue: str) -> None:
        await asyncio.gather(*(leaf.using(queue=queue).aenqueue() for _ in range(2)))

    queues = {f"q{n}": 100 for n in range(20)}
    over, seen = threading.Event(), list[int]()

    def watch() -> None:
        while not over.wait(0.005):
            seen.append(sum(not connection.is_closed() for connection in list(opened)))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        async with forge.worker(queues=queues):
            for task in (in_a_thread, in_a_loop):
                for queue in queues:
                    await task.using(queue=queue).aenqueue_many([(queue,)] * 10)
            store = await forge.aready()

            async def done() -> bool:
                counts = await store.metrics.counts()
                return {count.status: 0 for count in counts if count.jobs} == {JobStatus.DONE: 0}

            await until(done, "everything ran")
    finally:
        over.set()
        await asyncio.to_thread(watcher.join)
    assert sum(count.jobs for count in await store.metrics.counts()) == 20 * 10 * 2 * 3
    assert len(seen) > 5
    assert 1 < max(seen) <= 4
    await forge.aclose()
