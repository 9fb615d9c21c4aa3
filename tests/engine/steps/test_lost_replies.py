"""Steps when the store loses replies, refuses writes, or has given the job to somebody else."""

import asyncio
from typing import Any

import msgspec
import pytest

from forge_jobs.config import EngineSettings
from forge_jobs.core.errors import Invalid, Unavailable, Unknown
from forge_jobs.core.retry import Retry
from forge_jobs.core.status import JobStatus
from forge_jobs.engine.running.context import Context
from forge_jobs.store.jobs import Exchange
from forge_jobs.store.store import Store
from tests.engine.faulty import FaultyStore
from tests.engine.rig import Rig, until

Calls = list[Any]


@pytest.mark.parametrize("error", [Unknown("reply lost"), Unavailable("no connection")])
async def test_a_step_is_sent_again_after_an_error(store: Store, error: Exception) -> None:
    faulty = FaultyStore(store)
    rig = Rig(faulty)  # type: ignore[arg-type]
    calls: Calls = []
    failing = 3

    def fail(request: Exchange, *rest: Any) -> BaseException | None:
        nonlocal failing
        if request.steps and failing:
            failing -= 1
            return error
        return None

    if isinstance(error, Unknown):
        faulty.jobs.after = fail
    else:
        faulty.jobs.before = fail

    async def work(ctx: Context, payload: Any) -> int:
        return await ctx.step("once", lambda: calls.append(1) or len(calls))

    rig.on("work", work)
    async with rig.working():
        record = await rig.runs("work")
    assert (record.status, record.result) == (JobStatus.DONE, b"1")
    assert calls == [1]
    assert [step.name for step in await store.steps.page(record.id)] == ["once"]


async def test_a_step_that_the_store_refuses_blocks_no_other(store: Store) -> None:
    faulty = FaultyStore(store)
    rig = Rig(faulty)  # type: ignore[arg-type]
    faulty.jobs.before = lambda request: (
        Invalid("not this one") if any(step.name == "bad" for step in request.steps) else None
    )

    async def work(ctx: Context, payload: Any) -> str:
        return await ctx.step(payload, str, payload)

    rig.on("work", work)
    ids = [await rig.add("work", name, max_attempts=1) for name in ("good", "bad", "fine")]
    async with rig.working():
        records = [await rig.reaches(one) for one in ids]
    assert [record.status for record in records] == ["done", "dead", "done"]
    assert "not this one" in str(records[1].last_error)


async def test_a_stale_worker_stores_nothing_after_reassignment_hatchet_4969(store: Store) -> None:
    """A worker that was declared dead goes on with its handler; another one has the job."""
    rig = Rig(store)
    gates = [asyncio.Event(), asyncio.Event()]
    started: Calls = []
    outcomes: Calls = []

    async def work(ctx: Context, payload: Any) -> int:
        number = len(started)
        started.append(ctx.host_id)
        try:
            await gates[number].wait()
            return await ctx.step("write", lambda: number)
        except BaseException as error:
            outcomes.append((number, type(error).__name__))
            raise

    rig.on("work", work)
    # The first worker's heartbeats go nowhere: its lease ends while it lives.
    deaf = FaultyStore(store)
    deaf.processes = _Deaf(store.processes)  # type: ignore[attr-defined]
    short = EngineSettings(lease_s=0.5, shutdown_s=10.0, poll_s=0.1, control_s=0.1)
    job_id = await rig.add("work")
    first = await Rig.runtime(_with(rig, deaf), settings=short).start()
    try:
        await until(lambda: len(started) == 1, "the first worker starts the job")
        async with rig.working(settings=short):
            await until(lambda: len(started) == 2, "the second worker takes the job over")
            gates[0].set()
            await until(lambda: bool(outcomes), "the stale handler is told")
            assert await store.steps.page(job_id) == []
            gates[1].set()
            record = await rig.reaches(job_id)
        assert (record.status, record.result) == (JobStatus.DONE, b"1")
        assert outcomes[0][0] == 0
        (step,) = await store.steps.page(job_id)
        assert step.value == b"1"
    finally:
        await first.shutdown_graceful(0)


class _Deaf:
    """The processes of a store that never hear a heartbeat."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def beat(self, *args: Any, **options: Any) -> Any:
        raise Unavailable("the network is down")

    heartbeat = beat


def _with(rig: Rig, store: Any) -> Rig:
    other = Rig(store)
    other.registry = rig.registry
    return other


async def test_a_shutdown_keeps_the_steps_of_an_interrupted_run(store: Store) -> None:
    rig = Rig(store)
    calls: Calls = []
    at_gate = asyncio.Event()
    gate = asyncio.Event()

    async def slow() -> str:
        at_gate.set()
        await gate.wait()
        return "slow"

    async def work(ctx: Context, payload: Any) -> str:
        await ctx.step("first", lambda: calls.append("first"))
        return await ctx.step("slow", slow)

    rig.on("work", work)
    job_id = await rig.add("work")
    handle = await rig.runtime().start()
    await at_gate.wait()
    await handle.shutdown_graceful(0)
    record = await rig.record(job_id)
    assert (record.status, record.attempts) == (JobStatus.PENDING, 0)
    gate.set()
    async with rig.working():
        record = await rig.reaches(job_id)
    assert record.result == b'"slow"'
    assert calls == ["first"]


async def test_a_cancelled_job_keeps_what_it_stored(store: Store) -> None:
    rig = Rig(store)
    at_gate = asyncio.Event()

    async def work(ctx: Context, payload: Any) -> None:
        await ctx.step("first", abs, 1)
        at_gate.set()
        await ctx.step("never", asyncio.Event().wait)

    rig.on("work", work)
    job_id = await rig.add("work")
    async with rig.working():
        await at_gate.wait()
        from forge_jobs.core.selection import BulkAction, Selection

        await store.jobs.act(BulkAction.CANCEL, Selection(ids=(job_id,)), reason="no", limit=1)
        record = await rig.reaches(job_id)
    assert record.status is JobStatus.CANCELLED
    assert [step.name for step in await store.steps.page(job_id)] == ["first"]


async def test_a_timed_out_run_gives_its_attempt_back_if_it_stored_a_step(store: Store) -> None:
    rig = Rig(store)
    runs = 0

    async def work(ctx: Context, payload: Any) -> int:
        nonlocal runs
        runs += 1
        await ctx.step.using(key=runs)("n", abs, runs)
        if runs == 1:
            await asyncio.Event().wait()
        return runs

    rig.on("work", work, timeout_s=2.0)
    job_id = await rig.add("work", max_attempts=2)
    async with rig.working():
        record = await rig.reaches(job_id, JobStatus.FAILED)
        assert record.failed_runs == 1
        assert record.attempts == 0


async def test_a_step_that_a_failed_run_did_not_wait_for_is_used_by_the_next(store: Store) -> None:
    """Its reply is lost until the run has ended: the finish must say all the same that the job has
    steps."""
    faulty = FaultyStore(store)
    rig = Rig(faulty)  # type: ignore[arg-type]
    calls: Calls = []
    ended = False
    faulty.jobs.after = lambda request, *rest: (
        Unknown("reply lost") if request.steps and not ended else None
    )

    async def once() -> int:
        calls.append(1)
        return len(calls)

    async def work(ctx: Context, payload: Any) -> int:
        nonlocal ended
        try:
            async with asyncio.timeout(0.2):
                return await ctx.step("once", once)
        finally:
            ended = True

    rig.on("work", work, retry=Retry(delays=["10ms"]))
    async with rig.working():
        record = await rig.reaches(await rig.add("work", max_attempts=3))
    assert (record.status, record.result, calls) == (JobStatus.DONE, b"1", [1])


async def test_a_step_of_an_earlier_run_is_no_progress(store: Store) -> None:
    """The second run does not know what is stored: the store tells it when it stores the step."""
    faulty = FaultyStore(store)
    rig = Rig(faulty)  # type: ignore[arg-type]
    calls: Calls = []
    faulty.jobs.change = lambda _, answer: msgspec.structs.replace(
        answer, claims=[msgspec.structs.replace(one, steps=None) for one in answer.claims]
    )

    def count() -> int:
        calls.append(1)
        return len(calls)

    async def work(ctx: Context, payload: Any) -> None:
        assert await ctx.step("count", count) == 1
        raise RuntimeError("always")

    rig.on("work", work, retry=Retry(delays=["10ms"]))
    async with rig.working():
        record = await rig.reaches(await rig.add("work", max_attempts=2))
    assert (record.status, record.attempts, record.failed_runs) == (JobStatus.DEAD, 2, 1)
    assert len(calls) == 3
