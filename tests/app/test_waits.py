"""Sleeps, waits and events of handlers."""

import asyncio
import sqlite3
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from forge_jobs import (
    BadOption,
    BadStep,
    Context,
    EngineSettings,
    Forge,
    JobStatus,
    ReceivedEvent,
    Refused,
    Retry,
    WaitTimeout,
    testing,
)

Calls = list[Any]


class Payment(msgspec.Struct):
    amount: int


async def status(job: Any) -> JobStatus:
    return (await job.arefresh()).status


# ---------------------------------------------------------------------------------------- sleeps


async def test_a_sleep_spends_no_attempt_and_is_not_slept_again(forge: Forge) -> None:
    runs = 0

    @forge.task(max_attempts=2)
    async def work(ctx: Context) -> int:
        nonlocal runs
        runs += 1
        await ctx.sleep("2h")
        await ctx.sleep(until=ctx.job.enqueued_at + timedelta(hours=3))
        if runs < 4:
            raise RuntimeError("after the sleep")
        return runs

    with testing.frozen(forge) as time:
        job = await work.aenqueue()
        start = time.now()
        await forge.drain()
        assert await status(job) is JobStatus.SCHEDULED
        assert job.run_at - start == timedelta(hours=2)
        assert job.attempts == 0
        time.advance("1h59m")
        assert (await forge.drain()).ran == 0
        time.advance("1m")
        await forge.drain()
        assert (await status(job), job.attempts) == (JobStatus.SCHEDULED, 0)
        assert job.run_at - start == timedelta(hours=3)
        time.advance("1h")
        await forge.drain()
        assert (await status(job), job.attempts) == (JobStatus.FAILED, 1)
        time.advance("1h")
        await forge.drain()
        assert await job.aresult(timeout=0) == 4


async def test_several_sleeps_may_be_open_and_the_earliest_wakes(forge: Forge) -> None:
    woken: Calls = []

    @forge.task
    async def work(ctx: Context) -> None:
        async def nap(name: str, span: str) -> None:
            await ctx.sleep(span, name=name)
            await ctx.step.using(key=name)("woken", woken.append, name)

        await asyncio.gather(nap("long", "2h"), nap("short", "1h"), nap("middle", "90m"))

    with testing.frozen(forge) as time:
        job = await work.aenqueue()
        await forge.drain()
        for expected in (["short"], ["short", "middle"], ["short", "middle", "long"]):
            time.advance("1h" if len(expected) == 1 else "30m")
            await forge.drain()
            assert woken == expected
    assert await status(job) is JobStatus.DONE, job.error


async def test_run_now_ends_the_earliest_sleep(forge: Forge) -> None:
    woken: Calls = []

    @forge.task(max_attempts=3)
    async def work(ctx: Context) -> None:
        async def nap(name: str, span: str) -> None:
            await ctx.sleep(span, name=name)
            await ctx.step.using(key=name)("woken", woken.append, name)

        await asyncio.gather(nap("a", "1h"), nap("b", "2h"))

    with testing.frozen(forge) as time:
        job = await work.aenqueue()
        await forge.drain()
        time.advance("10m")
        await job.arun_now()
        await forge.drain()
        assert woken == ["a"]
        assert await status(job) is JobStatus.SCHEDULED
        time.advance("10m")
        await job.arun_now()
        await forge.drain()
    # The first one, still in the future, was over before; it is the earliest again.
    assert woken == ["a"]
    assert await status(job) is JobStatus.SCHEDULED


async def test_run_now_ends_a_single_sleep_in_every_run(forge: Forge) -> None:
    runs = 0

    @forge.task(max_attempts=3, retry=Retry(base="1m", jitter=0))
    async def work(ctx: Context) -> int:
        nonlocal runs
        runs += 1
        await ctx.sleep("10h")
        return runs

    with testing.frozen(forge) as time:
        job = await work.aenqueue()
        await forge.drain()
        time.advance("1m")
        await job.arun_now()
        await forge.drain()
    assert await job.aresult(timeout=0) == 2


async def test_a_retry_does_not_end_a_sleep(forge: Forge) -> None:
    """The job goes on because of an event, fails, and is retried before its sleep is over."""
    seen: Calls = []

    @forge.task(max_attempts=5, retry=Retry(base="1m", jitter=0))
    async def work(ctx: Context) -> None:
        async def nap() -> None:
            await ctx.sleep("5h")
            seen.append("slept")

        async def wait() -> None:
            await ctx.wait_for("go")
            seen.append("event")
            if seen.count("event") == 1:
                raise RuntimeError("again")

        await asyncio.gather(nap(), wait())

    with testing.frozen(forge) as time:
        job = await work.aenqueue()
        await forge.drain()
        time.advance("1h")
        await forge.asend("go")
        await forge.drain()
        time.advance("2m")
        await forge.drain()
        assert "slept" not in seen
        assert await status(job) is JobStatus.SCHEDULED
        time.advance("4h")
        await forge.drain()
    assert await status(job) is JobStatus.DONE, job.error
    assert "slept" in seen


async def test_a_sleep_parks_only_when_no_step_is_open(forge: Forge) -> None:
    calls: Calls = []

    async def slow() -> str:
        for _ in range(20):
            await asyncio.sleep(0)
        calls.append("slow")
        return "slow"

    @forge.task
    async def work(ctx: Context) -> str:
        async def nap() -> None:
            await ctx.sleep("1h")

        return (await asyncio.gather(nap(), ctx.step("slow", slow)))[1]

    with testing.frozen(forge) as time:
        job = await work.aenqueue()
        await forge.drain()
        assert calls == ["slow"]
        time.advance("1h")
        await forge.drain()
    assert await job.aresult(timeout=0) == "slow"
    assert calls == ["slow"]


async def test_sleeping_jobs_do_not_delay_a_shutdown_dbos_ts_1200(any_url: str) -> None:
    forge = Forge(any_url, settings=EngineSettings(shutdown_s=10.0))

    @forge.task
    async def work(ctx: Context) -> None:
        await ctx.sleep("5m")

    async with forge:
        jobs = await work.aenqueue_many([()] * 200)
        async with forge.worker(queues=["default"], slots=50):
            for _ in range(600):
                if await forge.jobs(status="scheduled").acount() == len(jobs):
                    break
                await asyncio.sleep(0.05)
            before = asyncio.get_running_loop().time()
        # The grace period is 30 s; a worker without running jobs does not need it.
        assert asyncio.get_running_loop().time() - before < 20
        assert await forge.jobs(status="scheduled").acount() == len(jobs)


# ---------------------------------------------------------------------------------------- waits


async def test_a_wait_is_met_by_a_later_event(forge: Forge) -> None:
    @forge.task
    async def work(order: int, ctx: Context) -> int:
        paid = await ctx.wait_for("paid", key=order, timeout="3d", type=Payment)
        return paid.amount

    job, other = await work.aenqueue(1), await work.aenqueue(2)
    await forge.drain()
    assert (await status(job), job.attempts) == (JobStatus.SUSPENDED, 0)
    sent = await forge.asend("paid", {"amount": 12}, key=1)
    assert (sent.resumed, sent.duplicate) == (1, False)
    await forge.drain()
    assert await job.aresult(timeout=0) == 12
    assert await status(other) is JobStatus.SUSPENDED


async def test_an_event_before_the_wait_counts_inngest_1433(forge: Forge) -> None:
    @forge.task
    async def work(ctx: Context) -> list[Any]:
        return [await ctx.wait_for("message") for _ in range(3)]

    await forge.asend("message", "before the job")
    jobs = [await work.aenqueue() for _ in range(2)]
    for n in range(3):
        await forge.asend("message", n)
    await forge.drain()
    # In order, each once, by every job that waits.
    for job in jobs:
        assert await job.aresult(timeout=0) == [0, 1, 2]


@pytest.mark.parametrize(("since", "expected"), [(None, "old"), ("1h", "recent")])
async def test_since_widens_what_counts(forge: Forge, since: Any, expected: str) -> None:
    @forge.task
    async def work(ctx: Context) -> str:
        return await ctx.wait_for("news", since=since, type=str)

    with testing.frozen(forge) as time:
        await forge.asend("news", "old")
        time.advance("2h")
        await forge.asend("news", "recent")
        time.advance("10m")
        job = await work.aenqueue()
        await forge.drain()
    assert await job.aresult(timeout=0) == expected


async def test_one_of_several_events(forge: Forge) -> None:
    seen: Calls = []

    @forge.task
    async def work(ctx: Context) -> str:
        first = await ctx.wait_for(["shipped", "lost"], key=7)
        seen.append(first)
        return first.name

    job = await work.aenqueue()
    await forge.drain()
    await forge.asend("lost", {"where": "sea"}, key=7)
    await forge.asend("shipped", None, key=7)
    await forge.drain()
    assert await job.aresult(timeout=0) == "lost"
    (first,) = seen
    assert isinstance(first, ReceivedEvent)
    assert first.payload == {"where": "sea"}
    assert first.sent_at.tzinfo is not None


async def test_a_wait_times_out_once_and_for_all(forge: Forge) -> None:
    seen: Calls = []

    @forge.task(max_attempts=3)
    async def work(ctx: Context) -> str:
        try:
            await ctx.wait_for("paid", timeout="1h")
        except WaitTimeout as error:
            seen.append((str(error), isinstance(error, TimeoutError)))
        default = await ctx.wait_for("paid", timeout="1h", default="none")
        if len(seen) < 3:
            raise RuntimeError("again")
        return default

    with testing.frozen(forge) as time:
        job = await work.aenqueue()
        for _ in range(6):
            await forge.drain()
            time.advance("1h")
        # Too late: every later run sees what was decided.
        await forge.asend("paid", 1)
        await forge.drain()
    assert await job.aresult(timeout=0) == "none"
    assert set(seen) == {("wait_for('paid'): no event was sent before the deadline", True)}


async def test_a_timeout_of_zero_only_looks(forge: Forge) -> None:
    @forge.task
    async def work(ctx: Context) -> list[Any]:
        return [await ctx.wait_for("tick", timeout=0, default=None) for _ in range(3)]

    job = await work.aenqueue()
    await forge.asend("tick", 1)
    await forge.drain()
    assert await job.aresult(timeout=0) == [1, None, None]


async def test_run_now_parks_a_wait_again_with_its_old_deadline(forge: Forge) -> None:
    runs = 0

    @forge.task
    async def work(ctx: Context) -> str:
        nonlocal runs
        runs += 1
        return await ctx.wait_for("paid", timeout="2h", default="late", type=str)

    with testing.frozen(forge) as time:
        job = await work.aenqueue()
        await forge.drain()
        time.advance("1h")
        await job.arun_now()
        await forge.drain()
        assert (await status(job), runs) == (JobStatus.SUSPENDED, 2)
        time.advance("1h")
        await forge.drain()
    assert await job.aresult(timeout=0) == "late"


async def test_one_open_wait_and_the_error_names_the_list(forge: Forge) -> None:
    @forge.task(max_attempts=1)
    async def work(ctx: Context) -> None:
        first = ctx.wait_for("a")
        try:
            ctx.wait_for("b")
        finally:
            first.close()

    job = await work.aenqueue()
    await forge.drain()
    assert await status(job) is JobStatus.DEAD
    assert "ctx.wait_for(['b', ...])" in str(job.error)


async def test_a_payload_that_does_not_fit_names_the_field(forge: Forge) -> None:
    @forge.task(max_attempts=1)
    async def work(ctx: Context) -> None:
        await ctx.wait_for("paid", type=Payment)

    job = await work.aenqueue()
    await forge.asend("paid", {"amount": "twelve"})
    await forge.drain()
    assert await status(job) is JobStatus.DEAD
    assert "wait_for('paid')" in str(job.error)
    assert "amount" in str(job.error)


def test_waits_and_sleeps_of_def_handlers(forge: Forge) -> None:
    @forge.task
    def work(ctx: Context) -> int:
        ctx.sleep_sync("1h")
        first = ctx.wait_for_sync("n", type=int)
        second = ctx.wait_for_sync(["n", "m"], timeout="1h", default=None)
        return first + (0 if second is None else second.payload)

    with testing.frozen(forge) as time:
        job = work.enqueue()
        forge.drain().run()
        time.advance("1h")
        forge.drain().run()
        assert job.refresh().status is JobStatus.SUSPENDED
        forge.send("n", 40)
        forge.drain().run()
        forge.send("m", 2)
        forge.drain().run()
    assert job.result(timeout=0) == 42


# ------------------------------------------------------------------------------------- the signal


async def test_except_exception_around_a_wait_does_not_stop_the_signal(forge: Forge) -> None:
    ended: Calls = []

    @forge.task
    async def work(ctx: Context) -> str:
        try:
            return await ctx.wait_for("go", type=str)
        except Exception:
            return "swallowed"
        finally:
            ended.append("finally")

    job = await work.aenqueue()
    await forge.drain()
    assert await status(job) is JobStatus.SUSPENDED
    await forge.asend("go", "went")
    await forge.drain()
    assert await job.aresult(timeout=0) == "went"
    # finally runs at every park.
    assert ended == ["finally", "finally"]


@pytest.mark.parametrize("how", ["bare", "gather", "step"])
async def test_a_swallowed_signal_is_an_error_with_the_remedy(forge: Forge, how: str) -> None:
    @forge.task(max_attempts=1)
    async def work(ctx: Context) -> None:
        if how == "gather":
            await asyncio.gather(ctx.wait_for("go"), return_exceptions=True)
            return
        try:
            await ctx.wait_for("go")
        except BaseException:
            if how == "step":
                await ctx.step("next", abs, 1)

    job = await work.aenqueue()
    await forge.drain()
    assert await status(job) is JobStatus.DEAD
    assert "wait_for('go')" in str(job.error)
    assert "not BaseException" in str(job.error) or "instead of BaseException" in str(job.error)


async def test_the_signal_counts_in_a_group_of_its_own(forge: Forge) -> None:
    @forge.task
    async def work(ctx: Context) -> list[str]:
        async with asyncio.TaskGroup() as group:
            one = group.create_task(ctx.wait_for("go", type=str))
            group.create_task(ctx.sleep("1h"))
            two = group.create_task(ctx.step("two", str, "2"))
        return [one.result(), two.result()]

    with testing.frozen(forge) as time:
        job = await work.aenqueue()
        await forge.drain()
        assert await status(job) is JobStatus.SUSPENDED
        await forge.asend("go", "1")
        await forge.drain()
        assert await status(job) is JobStatus.SCHEDULED
        time.advance("1h")
        await forge.drain()
    assert await job.aresult(timeout=0) == ["1", "2"]


# ---------------------------------------------------------------------------------------- events


async def test_an_event_to_one_job(forge: Forge) -> None:
    @forge.task
    async def work(ctx: Context) -> Any:
        return await ctx.wait_for("approve")

    one, two = await work.aenqueue(), await work.aenqueue()
    await forge.drain()
    await one.asend("approve", {"by": "ada"})
    await forge.drain()
    assert await one.aresult(timeout=0) == {"by": "ada"}
    assert await status(two) is JobStatus.SUSPENDED
    await forge.asend("approve", "all")
    await forge.drain()
    assert await two.aresult(timeout=0) == "all"
    with pytest.raises(Refused, match="is done"):
        await one.asend("approve")


async def test_a_dedupe_key_sends_once(forge: Forge) -> None:
    @forge.task
    async def work(ctx: Context) -> list[Any]:
        first = await ctx.wait_for("paid")
        return [first, await ctx.wait_for("paid", timeout=0, default=None)]

    job = await work.aenqueue()
    sender = forge.using(dedupe_key="evt_1")
    assert not (await sender.asend("paid", 1)).duplicate
    assert (await sender.asend("paid", 2)).duplicate
    await forge.drain()
    assert await job.aresult(timeout=0) == [1, None]
    with pytest.raises(BadOption, match="priority"):
        forge.using(priority=1)  # type: ignore[call-arg]


async def test_restart_keeps_the_cursor_of_each_topic(forge: Forge) -> None:
    @forge.task
    async def work(seen: list[int], ctx: Context) -> list[int]:
        n = await ctx.wait_for("n", type=int)
        if len(seen) < 2:
            raise ctx.restart([*seen, n])
        return [*seen, n]

    job = await work.aenqueue([])
    for n in range(3):
        await forge.asend("n", n)
    await forge.drain()
    assert await job.aresult(timeout=0) == [0, 1, 2]


async def test_inline_mode_runs_what_an_event_resumes(forge: Forge) -> None:
    @forge.task
    async def work(ctx: Context) -> Any:
        return await ctx.wait_for("go")

    with testing.inline(forge):
        job = await work.aenqueue()
        assert job.status is JobStatus.SUSPENDED
        await forge.asend("go", 5)
        assert await job.aresult(timeout=0) == 5


async def test_a_worker_goes_on_after_an_event(forge: Forge) -> None:
    calls: Calls = []

    @forge.task
    async def work(n: int, ctx: Context) -> int:
        await ctx.step("before", calls.append, n)
        event = await ctx.wait_for("go", type=int)
        return n + event

    async with forge.worker(queues=["default"]):
        jobs = await work.aenqueue_many([(n,) for n in range(20)])
        for _ in range(600):
            if await forge.jobs(status="suspended").acount() == 20:
                break
            await asyncio.sleep(0.05)
        await forge.asend("go", 100)
        assert [await job.aresult(timeout=60) for job in jobs] == [n + 100 for n in range(20)]
    assert sorted(calls) == list(range(20))


# -------------------------------------------------------------------------------- transactions


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
