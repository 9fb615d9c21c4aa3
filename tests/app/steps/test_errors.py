"""Errors of steps, their retries and time limits."""

import asyncio
import logging
from typing import Any

import pytest

from forge_jobs import Context, Forge, JobStatus, Retry, testing
from forge_jobs.engine.steps.run_steps import RunSteps
from tests.app.steps.runs import Calls, failure, run_all


class PaymentDeclined(Exception):
    pass


class Insufficient(PaymentDeclined):
    def __init__(self, message: str, cents: int) -> None:
        super().__init__(message, cents)
        self.cents = cents


async def test_declared_errors_are_stored_and_raised_again(forge: Forge) -> None:
    calls: Calls = []
    seen: Calls = []

    def charge() -> None:
        calls.append("charge")
        raise Insufficient("too little", 7)

    @forge.task(max_attempts=2)
    async def work(ctx: Context) -> None:
        try:
            await ctx.step.using(errors=(PaymentDeclined,))("charge", charge)
        except Insufficient as error:
            seen.append((type(error), error.args, error.cents))
        if len(seen) == 1:
            raise RuntimeError("again")

    job = await run_all(forge, await work.aenqueue())
    assert job.status is JobStatus.DONE, job.error
    assert calls == ["charge"]
    assert seen == [(Insufficient, ("too little", 7), 7)] * 2


async def test_an_undeclared_error_ends_the_run_and_going_on_is_a_warning(
    forge: Forge, caplog: pytest.LogCaptureFixture
) -> None:
    calls: Calls = []

    async def flaky() -> int:
        calls.append(1)
        raise ConnectionError("down")

    @forge.task
    async def work(ctx: Context) -> None:
        with pytest.raises(ConnectionError):
            await ctx.step("flaky", flaky)

    with caplog.at_level(logging.WARNING, "forge_jobs.job"):
        job = await run_all(forge, await work.aenqueue())
    assert job.status is JobStatus.DONE
    (line,) = [line for line in caplog.messages if "the handler went on" in line]
    assert "errors=(ConnectionError,)" in line
    assert testing.steps_of(job) == {}


async def test_short_retries_of_a_step_wait_in_place(forge: Forge) -> None:
    calls: Calls = []

    async def flaky() -> int:
        calls.append(1)
        if len(calls) < 3:
            raise ConnectionError("down")
        return len(calls)

    @forge.task(max_attempts=1)
    async def work(ctx: Context) -> int:
        careful = ctx.step.using(retry=Retry(delays=["1ms", "2ms"], never=(KeyError,)))
        return await careful("flaky", flaky)

    job = await run_all(forge, await work.aenqueue())
    assert await job.aresult(timeout=0) == 3


async def test_a_retry_longer_than_ten_seconds_ends_the_run_with_that_delay(forge: Forge) -> None:
    calls: Calls = []

    async def flaky() -> int:
        calls.append(1)
        if len(calls) < 3:
            raise ConnectionError("down")
        return len(calls)

    @forge.task(max_attempts=2, retry=Retry(base="1s"))
    async def work(ctx: Context) -> int:
        return await ctx.step.using(retry=Retry(delays=["1ms", "40m"]))("flaky", flaky)

    job = await work.aenqueue()
    with testing.frozen(forge) as time:
        await forge.drain()
        await job.arefresh()
        assert job.status is JobStatus.FAILED
        assert (job.run_at - time.now()).total_seconds() == pytest.approx(2_400, abs=1)
        time.advance("40m")
        await forge.drain()
    assert await job.aresult(timeout=0) == 3


async def test_a_step_has_its_own_timeout(forge: Forge) -> None:
    async def slow() -> None:
        await asyncio.Event().wait()

    @forge.task(max_attempts=1)
    async def work(ctx: Context) -> None:
        await ctx.step.using(timeout="20ms")("slow", slow)

    assert "step 'slow' did not end within 0.02 s" in await failure(forge, work)


@pytest.mark.parametrize(("delay", "runs"), [("10s", 1), ("11s", 2)])
async def test_delays_up_to_ten_seconds_are_waited_for_in_place(
    monkeypatch: pytest.MonkeyPatch, delay: str, runs: int
) -> None:
    waited: Calls = []

    async def pause(self: Any, seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(RunSteps, "pause", pause)
    forge = Forge("memory://")
    tries: Calls = []
    begun: Calls = []

    def flaky() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionError("down")
        return "up"

    @forge.task(max_attempts=2)
    async def work(ctx: Context) -> str:
        begun.append(1)
        return await ctx.step.using(retry=Retry(delays=[delay], jitter=0))("flaky", flaky)

    async with forge:
        job = await run_all(forge, await work.aenqueue())
        assert await job.aresult(timeout=0) == "up"
    assert len(begun) == runs
    assert waited == ([10.0] if runs == 1 else [])


async def test_a_step_is_tried_ten_times_in_place(forge: Forge) -> None:
    tries: Calls = []

    def down() -> None:
        tries.append(1)
        raise ConnectionError("down")

    @forge.task(max_attempts=1)
    async def work(ctx: Context) -> None:
        always = Retry(base="1ms", max="2ms", jitter=0)
        await ctx.step.using(retry=always)("down", down)

    assert "down" in await failure(forge, work)
    assert len(tries) == 10
