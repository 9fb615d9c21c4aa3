"""Steps in users' own transactions."""

import asyncio
import sqlite3
from pathlib import Path

import pytest

from forge_jobs import BadStep, Context, Forge, JobStatus, testing
from forge_jobs.engine.steps import run_steps
from tests.app.steps.runs import status


async def test_a_step_in_the_users_transaction_is_exactly_once(tmp_path: Path) -> None:
    forge = Forge(f"sqlite:///{tmp_path}/jobs.db")
    database = sqlite3.connect(tmp_path / "jobs.db", check_same_thread=False, timeout=30)
    tries = 0

    def debit(cents: int) -> int:
        database.execute("INSERT INTO debits VALUES (?)", (cents,))
        return cents

    @forge.task(max_attempts=4)
    async def work(ctx: Context) -> int:
        nonlocal tries
        tries += 1
        with database:
            value = await ctx.step.using(tx=database)("debit", debit, 12)
            if tries == 1:
                raise RuntimeError("before the commit")
        if tries == 2:
            raise RuntimeError("after the commit")
        await ctx.step("after", abs, 1)
        return value

    async with forge:
        await forge.aready()
        database.execute("CREATE TABLE debits (cents)")
        database.commit()
        job = await work.aenqueue()
        with testing.frozen(forge) as time:
            for _ in range(3):
                await forge.drain()
                time.advance("2h")
        assert await job.aresult(timeout=0) == 12
        assert database.execute("SELECT * FROM debits").fetchall() == [(12,)]
    database.close()


async def test_a_step_beside_an_open_transaction_names_the_remedy(tmp_path: Path) -> None:
    forge = Forge("memory://")

    @forge.task(max_attempts=1)
    async def work(ends_open: bool, ctx: Context) -> None:
        transaction = testing.Transaction()
        await ctx.step.using(tx=transaction)("debit", abs, 12)
        if not ends_open:
            with pytest.raises(BadStep, match="commit it before the next step"):
                await ctx.step("next", abs, 1)
            transaction.commit()
            await ctx.step("next", abs, 1)

    async with forge:
        open_job, job = await work.aenqueue(True), await work.aenqueue(False)
        await forge.drain()
        assert await status(job) is JobStatus.DONE, job.error
        assert list(testing.steps_of(job)) == ["debit", "next"]
        assert await status(open_job) is JobStatus.DEAD
        assert "the transaction of step 'debit'" in str(open_job.error)


@pytest.mark.parametrize("what", ["step", "sleep", "wait", "wait with a deadline"])
async def test_nothing_goes_on_beside_an_open_transaction(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """At once, where there is one writer: a later commit could not come meanwhile."""
    monkeypatch.setattr(run_steps, "_COMMIT_S", 3_600.0)
    forge = Forge("memory://")

    @forge.task(max_attempts=1)
    async def work(ctx: Context) -> None:
        transaction = testing.Transaction()
        await ctx.step.using(tx=transaction)("debit", abs, 12)
        calls = {
            "step": lambda: ctx.step("next", abs, 1),
            "sleep": lambda: ctx.sleep("1h"),
            "wait": lambda: ctx.wait_for("go"),
            "wait with a deadline": lambda: ctx.wait_for("go", timeout="1h"),
        }
        with pytest.raises(BadStep, match=r"the transaction of step 'debit'.*commit it before"):
            await calls[what]()
        transaction.commit()

    async with forge:
        job = await work.aenqueue()
        await forge.asend("go")
        async with asyncio.timeout(60):
            await forge.drain()
        assert await status(job) is JobStatus.DONE, job.error
        assert testing.steps_of(job) == {"debit": 12}
