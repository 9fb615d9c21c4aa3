"""``soft_timeout``: a handler is told that it should wrap up before its timeout stops it."""

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest

from forge_jobs.core import payload
from forge_jobs.core.outcome import Snooze
from forge_jobs.core.retry import Retry
from forge_jobs.core.status import JobStatus
from forge_jobs.engine.running.context import Context, RunEnvironment
from forge_jobs.engine.running.registry import Handler, RunIn
from forge_jobs.engine.running.run import Run
from forge_jobs.testing.clock import MovableClock
from tests.engine.rig import DEADLINE_S, Rig, a_claim, until

# Far apart, so that a slow machine cannot turn one into the other.
SOON = {"soft_timeout_s": 0.05}
LATER = {"soft_timeout_s": 3_600.0}
HARD_S = 2 * DEADLINE_S


def handler_with(options: dict[str, Any] | None) -> Handler:
    return Handler(kind="work", run_in=RunIn.LOOP, call=lambda data, make: None, options=options)


def started(
    clock: MovableClock, own: dict[str, Any] | None, default: dict[str, Any] | None = None
) -> Context:
    """The context of a run that starts now, with options of the job and of the handler."""
    environment = RunEnvironment(lambda: "HOST", 7, clock, None, lambda kind, value: None)  # type: ignore[arg-type,return-value]
    in_flight: Any = SimpleNamespace(environment=environment)
    local_queue: Any = None
    run = Run(a_claim(options=own), handler_with(default), in_flight, local_queue, clock.mono())
    return run.make_context()


def test_it_is_reached_that_long_after_the_start_of_each_run() -> None:
    clock = MovableClock()
    first = started(clock, {"soft_timeout_s": 30.0})
    clock.advance(29)
    assert not first.soft_timeout_reached
    clock.advance(1)
    assert first.soft_timeout_reached
    assert not first.cancelled
    again = started(clock, {"soft_timeout_s": 30.0})
    assert not again.soft_timeout_reached
    clock.advance(30)
    assert again.soft_timeout_reached


def test_a_wall_clock_that_is_set_does_not_shift_it() -> None:
    clock = MovableClock()
    ctx = started(clock, {"soft_timeout_s": 30.0})
    clock.jump(3_600)
    assert not ctx.soft_timeout_reached
    clock.jump(-7_200)
    clock.advance(30)
    assert ctx.soft_timeout_reached


@pytest.mark.parametrize(
    ("own", "default", "at_s"),
    [
        (None, {"soft_timeout_s": 10.0}, 10),
        ({"soft_timeout_s": 20.0}, {"soft_timeout_s": 10.0}, 20),
        ({"other": 1}, {"soft_timeout_s": 10.0}, 10),
        ({"soft_timeout_s": None}, {"soft_timeout_s": 10.0}, None),
        (None, None, None),
    ],
)
def test_the_value_of_the_job_comes_before_that_of_its_handler(
    own: dict[str, Any] | None, default: dict[str, Any] | None, at_s: int | None
) -> None:
    clock = MovableClock()
    ctx = started(clock, own, default)
    clock.advance(9 if at_s is None else at_s - 1)
    assert not ctx.soft_timeout_reached
    clock.advance(1 if at_s is not None else 1_000_000)
    assert ctx.soft_timeout_reached is (at_s is not None)


@pytest.mark.parametrize("where", ["loop", "thread"])
async def test_a_handler_reads_it_before_its_timeout(rig: Rig, where: str) -> None:
    async def on_loop(ctx: Context, given: Any) -> str:
        while not ctx.soft_timeout_reached:
            await asyncio.sleep(0.005)
        return "stopped" if ctx.cancelled else "wrapped up"

    def in_thread(ctx: Context, given: Any) -> str:
        while not ctx.soft_timeout_reached:
            time.sleep(0.005)
        return "stopped" if ctx.cancelled else "wrapped up"

    rig.on("work", on_loop if where == "loop" else in_thread, timeout_s=HARD_S)
    async with rig.working():
        record = await rig.runs("work", options=SOON)
    assert (record.status, record.options) == (JobStatus.DONE, SOON)
    assert payload.decode(record.result or b"") == "wrapped up"


async def test_jobs_without_one_are_never_told(rig: Rig) -> None:
    seen: list[bool] = []

    async def body(ctx: Context, given: Any) -> None:
        seen.append(ctx.soft_timeout_reached)
        async with ctx.until_soft_timeout():
            await asyncio.sleep(0.1)
        seen.append(ctx.soft_timeout_reached)

    rig.on("work", body)
    async with rig.working():
        plain = await rig.runs("work")
        later = await rig.runs("work", options=LATER)
    assert (plain.status, later.status) == (JobStatus.DONE, JobStatus.DONE)
    assert seen == [False] * 4


async def test_a_block_is_interrupted_and_the_handler_goes_on(rig: Rig) -> None:
    async def body(ctx: Context, given: Any) -> str:
        try:
            async with ctx.until_soft_timeout():
                await asyncio.sleep(HARD_S)
        except TimeoutError as error:
            await asyncio.sleep(0.01)  # The task is not cancelled any more.
            return f"{error}; {ctx.soft_timeout_reached}; {ctx.cancelled}"
        return "never"

    rig.on("work", body, timeout_s=HARD_S)
    # One slot: both jobs run in the same slot task, one after the other.
    async with rig.working({"q": 1}):
        for _ in range(2):
            record = await rig.runs("work", options=SOON)
            result = payload.decode(record.result or b"")
            assert result == "the soft timeout was reached; True; False"


async def test_a_block_entered_late_is_interrupted_at_its_first_await(rig: Rig) -> None:
    async def body(ctx: Context, given: Any) -> str:
        while not ctx.soft_timeout_reached:
            await asyncio.sleep(0.005)
        try:
            async with ctx.until_soft_timeout():
                await asyncio.sleep(HARD_S)
        except TimeoutError:
            return "at once"
        return "never"

    rig.on("work", body)
    async with rig.working():
        record = await rig.runs("work", options=SOON)
    assert payload.decode(record.result or b"") == "at once"


async def test_errors_and_stops_inside_a_block_stay_what_they_are(rig: Rig) -> None:
    async def own_error(ctx: Context, given: Any) -> None:
        async with ctx.until_soft_timeout():
            raise TimeoutError("the server did not answer")

    async def too_long(ctx: Context, given: Any) -> None:
        async with ctx.until_soft_timeout():
            await asyncio.sleep(HARD_S)

    rig.on("own_error", own_error)
    rig.on("too_long", too_long, timeout_s=0.05)
    async with rig.working():
        failed = await rig.runs("own_error", options=LATER, max_attempts=1)
        stopped = await rig.runs("too_long", options=LATER, max_attempts=1)
    assert failed.last_error == "TimeoutError: the server did not answer"
    assert stopped.last_error == "timed out after 0.05 s"


async def test_the_timeout_still_stops_who_does_not_listen(rig: Rig) -> None:
    told: list[bool] = []

    async def deaf(ctx: Context, given: Any) -> None:
        try:
            await asyncio.sleep(HARD_S)
        finally:
            told.append(ctx.soft_timeout_reached)

    rig.on("work", deaf, timeout_s=1.0)
    async with rig.working():
        record = await rig.runs("work", options=SOON, max_attempts=1)
    assert (record.status, record.last_error) == (JobStatus.DEAD, "timed out after 1 s")
    assert told == [True]


async def test_an_error_after_it_is_retried_and_the_retry_has_it_too(rig: Rig) -> None:
    told: list[int] = []

    async def body(ctx: Context, given: Any) -> None:
        async with ctx.until_soft_timeout():
            told.append(ctx.job.attempts)
            await asyncio.sleep(HARD_S)

    rig.on("work", body, timeout_s=HARD_S, retry=Retry(delays=[0.01]))
    async with rig.working():
        job_id = await rig.add("work", options=SOON, max_attempts=2)
        record = await rig.reaches(job_id)
    assert (record.status, record.options) == (JobStatus.DEAD, SOON)
    assert [error.message for error in record.errors] == [
        "TimeoutError: the soft timeout was reached"
    ] * 2
    assert told == [1, 2]


async def test_a_handler_snoozes_when_told_and_goes_on_later(rig: Rig) -> None:
    runs: list[int] = []

    async def body(ctx: Context, given: Any) -> None:
        runs.append(ctx.job.attempts)
        while len(runs) < 3:
            if ctx.soft_timeout_reached:
                raise Snooze(0.01)
            await asyncio.sleep(0.005)

    rig.on("work", body)
    async with rig.working():
        job_id = await rig.add("work", options=SOON, max_attempts=1)
        record = await rig.reaches(job_id)
    assert record.status is JobStatus.DONE
    assert runs == [1, 1, 1]


async def test_a_job_that_another_program_enqueued_has_that_of_its_handler(rig: Rig) -> None:
    told: list[str] = []

    async def body(ctx: Context, given: Any) -> None:
        async with ctx.until_soft_timeout():
            await asyncio.sleep(given["s"])
        told.append("not told")

    rig.on("work", body, timeout_s=HARD_S, options=SOON)
    async with rig.working():
        by_handler = await rig.runs("work", {"s": HARD_S}, max_attempts=1)
        turned_off = await rig.runs("work", {"s": 0.2}, options={"soft_timeout_s": None})
        await until(lambda: bool(told))
    assert (by_handler.options, by_handler.status) == (None, JobStatus.DEAD)
    assert by_handler.last_error == "TimeoutError: the soft timeout was reached"
    assert turned_off.status is JobStatus.DONE
