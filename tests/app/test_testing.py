"""What users get for their own tests: inline mode, time on request, assertions."""

import asyncio
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from forge_jobs import (
    BadOption,
    BadTime,
    Context,
    Dead,
    Forge,
    JobStatus,
    Refused,
    Retry,
    Snooze,
    testing,
)

NOON = datetime(2031, 5, 6, 12, 0, tzinfo=UTC)


# ------------------------------------------------------------------------------------- inline


def test_inline_jobs_have_run_when_enqueue_returns(forge: Forge) -> None:
    seen: list[str] = []

    @forge.task
    def note(text: str) -> None:
        seen.append(text)

    @forge.task(queue="mail")
    async def send(to: str, ctx: Context) -> str:
        ctx.on_done(note, f"sent {to}")
        note.enqueue("from inside")
        return to.upper()

    with testing.inline(forge):
        job = send.enqueue("ada")
        assert job.status is JobStatus.DONE
        assert job.result(timeout=0) == "ADA"
        assert sorted(seen) == ["from inside", "sent ada"]
        assert [job.status for job in note.enqueue_many([("a",), ("b",)])] == ["done", "done"]
        assert forge.enqueue("note", {"text": "by kind"}).status == "done"
    assert note.enqueue("later").status is JobStatus.PENDING
    assert "later" not in seen


async def test_inline_from_coroutines(forge: Forge) -> None:
    @forge.task
    async def double(n: int) -> int:
        await asyncio.sleep(0)
        return 2 * n

    @forge.task
    async def outer(n: int) -> int:
        inner = await double.aenqueue(n)
        return len(inner.id)

    with testing.inline(forge):
        job = await double.aenqueue(4)
        assert (job.status, await job.aresult(timeout=0)) == ("done", 8)
        sync = double.enqueue(5)
        assert (sync.status, sync.result(timeout=0)) == ("done", 10)
        many = await asyncio.gather(*(double.aenqueue(n) for n in range(10)))
        assert [await job.aresult(timeout=0) for job in many] == [2 * n for n in range(10)]
        assert (await (await outer.aenqueue(1)).aresult(timeout=0)) == 26
    testing.assert_enqueued(forge, double, status="done", times=13)


def test_inline_handlers_in_threads_may_enqueue(forge: Forge) -> None:
    @forge.task
    def inner(n: int) -> int:
        return n

    @forge.task
    def outer(n: int) -> int:
        return inner.enqueue(n).result(timeout=30) + 1

    with testing.inline(forge):
        assert outer.enqueue(4).result(timeout=0) == 5


def test_inline_failures_show_where_they_were_enqueued(forge: Forge) -> None:
    @forge.task
    def dies() -> None:
        raise Dead("no such address")

    @forge.task
    async def breaks() -> None:
        raise OSError("disk on fire")

    with testing.inline(forge):
        with pytest.raises(Dead, match="no such address"):
            dies.enqueue()
        with pytest.raises(OSError, match="disk on fire"):
            breaks.enqueue()
    with testing.inline(forge, raises=False):
        assert dies.enqueue().status is JobStatus.DEAD
        job = breaks.enqueue()
        assert (job.status, job.attempts) == (JobStatus.FAILED, 1)


def test_u9_a_sync_call_reports_no_event_loop_as_the_cause(forge: Forge) -> None:
    @forge.task
    def in_thread() -> None:
        raise OSError("disk on fire")

    @forge.task
    async def on_loop() -> None:
        raise OSError("disk on fire")

    for task in (in_thread, on_loop):
        with testing.inline(forge), pytest.raises(OSError, match="disk on fire") as raised:
            task.enqueue()
        assert (raised.value.__cause__, raised.value.__context__) == (None, None)
        with testing.inline(forge, raises=False):
            assert task.enqueue().error == "OSError: disk on fire"


def test_u9_jobs_in_a_transaction_are_refused_with_the_remedy(forge: Forge, tmp_path: Path) -> None:
    @forge.task
    def job(n: int = 0) -> None: ...

    async def all_refused(connection: object) -> None:
        bound = job.using(tx=connection)
        for call in (lambda: bound.enqueue(1), lambda: bound.enqueue_many([(1,)])):
            with pytest.raises(Refused, match=r"commit, then call forge\.drain"):
                call()
        with pytest.raises(Refused, match="tx="):
            await bound.aenqueue(1)
        with pytest.raises(Refused, match="tx="):
            await bound.aenqueue_many([(1,)])

    with testing.inline(forge):
        asyncio.run(all_refused(sqlite3.connect(tmp_path / "own.db")))


@pytest.mark.parametrize("any_url", ["sqlite"], indirect=True)
def test_u9_a_handler_may_still_use_its_own_transaction(forge: Forge, any_url: str) -> None:
    ran: list[int] = []

    @forge.task
    def inner(n: int) -> None:
        ran.append(n)

    @forge.task
    def outer() -> None:
        with sqlite3.connect(any_url.removeprefix("sqlite:///")) as connection:
            inner.using(tx=connection).enqueue(7)

    with testing.inline(forge):
        outer.enqueue()
    assert ran == [7]


def test_inline_leaves_later_jobs_for_later(forge: Forge) -> None:
    @forge.task
    def job() -> None: ...

    @forge.task
    def naps(ctx: Context) -> None:
        raise Snooze("10m")

    with testing.inline(forge):
        assert job.using(delay="10m").enqueue().status is JobStatus.SCHEDULED
        assert naps.enqueue().status is JobStatus.SCHEDULED


def test_inline_is_not_nested_and_ends_with_an_error(forge: Forge) -> None:
    def broken() -> None:
        with testing.inline(forge):
            raise KeyError("mine")

    with pytest.raises(KeyError):
        broken()
    with testing.inline(forge):
        nested = testing.inline(forge)
        with pytest.raises(Refused, match="inline mode is on already"):
            nested.__enter__()


# --------------------------------------------------------------------------------------- time


async def test_frozen_time_stands_still_until_it_is_moved(forge: Forge) -> None:
    @forge.task
    def job() -> int:
        return 1

    with testing.frozen(forge, at=NOON) as time:
        handle = await job.using(delay="1h").aenqueue()
        await handle.arefresh()
        assert handle.enqueued_at == NOON
        assert handle.run_at == NOON + timedelta(hours=1)
        assert (await forge.drain()).ran == 0
        time.advance("59m")
        assert (await forge.drain()).ran == 0
        assert time.advance("1m") == NOON + timedelta(hours=1)
        assert (await forge.drain()).ran == 1
        await handle.arefresh()
        assert handle.finished_at == NOON + timedelta(hours=1)
        assert time.move_to(NOON + timedelta(days=1)) == time.now()
    later = await (await job.aenqueue()).arefresh()
    assert later.enqueued_at < NOON


async def test_retries_come_due_when_time_is_moved(forge: Forge) -> None:
    @forge.task(retry=Retry(base="1m", max="1h", jitter=0), max_attempts=3)
    async def flaky(ctx: Context) -> int:
        if ctx.job.attempts < 3:
            raise OSError("again")
        return ctx.job.attempts

    with testing.frozen(forge) as time:
        job = await flaky.aenqueue()
        await forge.drain()
        assert (await job.arefresh()).status is JobStatus.FAILED
        for wait in ("1m", "2m"):
            assert (await forge.drain()).ran == 0
            time.advance(wait)
            assert (await forge.drain()).ran == 1
        assert await job.aresult(timeout=0) == 3


async def test_moving_time_runs_and_jumps(forge: Forge) -> None:
    @forge.task
    def job() -> None: ...

    with testing.moving(forge, at=NOON) as time:
        handle = await (await job.using(delay="1d").aenqueue()).arefresh()
        assert NOON <= handle.enqueued_at < NOON + timedelta(minutes=5)
        await asyncio.sleep(0.01)
        assert time.now() > NOON
        assert (await forge.drain()).ran == 0
        time.advance("1d")
        assert (await forge.drain()).ran == 1


async def test_a_jump_wakes_whoever_sleeps(forge: Forge) -> None:
    for clock in (testing.frozen, testing.moving):
        with clock(forge) as time:
            sleeping = asyncio.create_task(forge.clock.sleep(3_600))
            blocked = asyncio.create_task(asyncio.to_thread(forge.clock.pause, 3_600))
            await asyncio.sleep(0.05)
            time.advance("59m")
            await asyncio.sleep(0.05)
            assert not sleeping.done()
            assert not blocked.done()
            time.advance("2m")
            await asyncio.wait_for(asyncio.gather(sleeping, blocked), 30)
            await asyncio.wait_for(forge.clock.sleep(0.01), 30)
            forge.clock.pause(0.01)


async def test_a_worker_follows_moved_time(forge: Forge) -> None:
    @forge.task
    def job() -> int:
        return 1

    with testing.moving(forge) as time:
        async with forge.worker(queues=["default"]):
            handle = await job.using(delay="1d").aenqueue()
            await asyncio.sleep(0.05)
            time.advance("1d")
            assert await handle.aresult(timeout=60) == 1


def test_bad_times(forge: Forge) -> None:
    with pytest.raises(BadTime, match="at="), testing.frozen(forge, at=datetime(2031, 1, 1)):
        pass
    with testing.frozen(forge, at=NOON) as time:
        with pytest.raises(BadOption, match="time does not run backwards"):
            time.move_to(NOON - timedelta(seconds=1))
        with pytest.raises(Exception, match="advance=-1"):
            time.advance(-1)


# --------------------------------------------------------------------------------- assertions


def test_assertions_about_what_was_enqueued(forge: Forge) -> None:
    @forge.task(queue="mail")
    def send(to: str, lines: list[int]) -> None: ...

    send.enqueue("a@b.c", [1, 2])
    send.using(priority=3, tags=["vip"], queue="fast").enqueue("b@b.c", [])
    forge.enqueue("elsewhere", [1])

    (job,) = testing.assert_enqueued(forge, send, {"to": "a@b.c"})
    assert (job.payload, job.queue) == ({"to": "a@b.c", "lines": [1, 2]}, "mail")
    testing.assert_enqueued(forge, "send", times=2)
    testing.assert_enqueued(forge, send, times=None)
    testing.assert_enqueued(forge, send, {"lines": (1, 2)}, queue="mail", status="pending")
    testing.assert_enqueued(forge, send, tag="vip", where=lambda record: record.priority == 3)
    testing.assert_enqueued(forge, "elsewhere")
    testing.refute_enqueued(forge, send, {"to": "nobody"})
    testing.refute_enqueued(forge, "elsewhere", {"to": "a@b.c"})
    testing.refute_enqueued(forge, "unheard")
    assert [job.kind for job in testing.enqueued(forge)] == ["send", "send", "elsewhere"]


def test_failed_assertions_say_what_was_there(forge: Forge) -> None:
    @forge.task(queue="mail")
    def send(to: str) -> None: ...

    with pytest.raises(AssertionError, match="Enqueued of that kind: none"):
        testing.assert_enqueued(forge, send)
    send.enqueue_many([(f"{n}@b.c",) for n in range(12)])
    with pytest.raises(AssertionError) as caught:
        testing.assert_enqueued(forge, send, {"to": "nobody"}, queue="mail")
    text = str(caught.value)
    assert "expected 1 of 'send', arguments={'to': 'nobody'}, queue='mail', found 0" in text
    assert '\n  pending in mail: {"to":"0@b.c"}' in text
    assert "and 2 more" in text
    with pytest.raises(AssertionError, match="expected 0 of 'send', found 12"):
        testing.refute_enqueued(forge, send)
    with pytest.raises(AssertionError, match="at least one"):
        testing.assert_enqueued(forge, "unheard", times=None)


async def test_assertions_work_inside_a_running_loop(forge: Forge) -> None:
    @forge.task
    async def job() -> None: ...

    await job.aenqueue_many([()] * 1_200)
    assert len(testing.assert_enqueued(forge, job, times=1_200)) == 1_200
