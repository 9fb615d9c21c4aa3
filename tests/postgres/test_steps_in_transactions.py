"""Steps in users' transactions on a server, through a worker: an open one blocks no other job."""

import asyncio
from collections.abc import Iterator
from typing import Any

import asyncpg
import pytest

from forge_jobs import BadStep, Context, Forge, testing


@pytest.fixture
def url(schemas: Any) -> Iterator[str]:
    schema = schemas.take()
    yield schemas.url(schema)
    schemas.give_back(schema)


async def test_an_open_transaction_of_a_step_blocks_no_other_job(url: str) -> None:
    forge = Forge(url)
    others: list[int] = []
    is_open = asyncio.Event()

    async def debit(connection: asyncpg.Connection) -> int:
        return await connection.fetchval("SELECT 12")

    @forge.task(max_attempts=1)
    async def paying(ctx: Context) -> int:
        connection = await asyncpg.connect(forge.dsn)
        try:
            transaction = connection.transaction()
            await transaction.start()
            value = await ctx.step.using(tx=connection)("debit", debit, connection)
            is_open.set()
            ctx.progress(0.5)
            with pytest.raises(BadStep, match="commit it before the next step"):
                await ctx.step("next", abs, 1)
            assert len(others) >= 20
            await transaction.commit()
        finally:
            await connection.close()
        return value + await ctx.step("next", abs, -1)

    @forge.task
    async def other(n: int, ctx: Context) -> None:
        await ctx.step("other", abs, n)
        others.append(n)

    async with forge:
        async with forge.worker(queues=["default"]):
            job = await paying.aenqueue()
            await asyncio.wait_for(is_open.wait(), 60)
            for n in range(20):
                await (await other.aenqueue(n)).aresult(timeout=60)
            assert await job.aresult(timeout=60) == 13
        assert testing.steps_of(job) == {"debit": 12, "next": 1}


async def test_a_shutdown_waits_for_no_commit_and_leaves_no_task(url: str) -> None:
    forge = Forge(url)
    is_open = asyncio.Event()
    opened: list[asyncpg.Connection] = []

    async def debit(connection: asyncpg.Connection) -> int:
        return await connection.fetchval("SELECT 12")

    @forge.task(max_attempts=1)
    async def paying(ctx: Context) -> int:
        connection = await asyncpg.connect(forge.dsn)
        opened.append(connection)
        await connection.transaction().start()
        value = await ctx.step.using(tx=connection)("debit", debit, connection)
        is_open.set()
        return value

    def waiting() -> set[str]:
        return {task.get_name() for task in asyncio.all_tasks()} & {"forge-await-commit"}

    async with forge:
        async with forge.worker(queues=["default"]):
            job = await paying.aenqueue()
            await asyncio.wait_for(is_open.wait(), 60)
            while not waiting():
                await asyncio.sleep(0.01)
        assert not waiting()
        await opened[0].close()
        job = await job.arefresh()
        assert job.status in ("pending", "running"), "the claim was released or is to be reaped"
