"""The service loop: errors, stops, leadership, last ticks."""

import asyncio
import logging
from collections.abc import Callable

import pytest

from forge_jobs.kit.entropy import SeededEntropy
from forge_jobs.kit.service import Next, RunsOn, ServiceLoop, StopFlag, run_service
from forge_jobs.kit.wake import WakeFlag
from forge_jobs.testing.clock import MovableClock

DEADLINE_S = 60


class Counter:
    """A service whose ticks return or raise the given steps, in order."""

    def __init__(
        self, steps: list[Next | Exception], stop: StopFlag, runs_on: RunsOn = RunsOn.EVERY_PROCESS
    ) -> None:
        self.name = "counter"
        self.runs_on = runs_on
        self.ticks = 0
        self._steps = steps
        self._stop = stop

    async def tick(self) -> Next:
        step = self._steps[min(self.ticks, len(self._steps) - 1)]
        self.ticks += 1
        if self.ticks >= len(self._steps):
            self._stop.set()
        if isinstance(step, Exception):
            raise step
        return step


def loop_for(
    stop: StopFlag, *, leads: Callable[[], bool] = lambda: True, **how: float
) -> ServiceLoop:
    async def is_leader() -> bool:
        return leads()

    return ServiceLoop(MovableClock(), SeededEntropy(1), stop, is_leader, **how)


async def test_again_ticks_at_once() -> None:
    stop = StopFlag()
    service = Counter([Next.again()] * 50, stop)
    async with asyncio.timeout(DEADLINE_S):
        await run_service(service, loop_for(stop))
    assert service.ticks == 50


async def test_a_stop_ends_a_long_sleep() -> None:
    stop = StopFlag()
    service = Counter([Next.after(3_600), Next.again()], stop)
    task = asyncio.create_task(run_service(service, loop_for(stop)))
    while not service.ticks:
        await asyncio.sleep(0.01)
    stop.set()
    async with asyncio.timeout(DEADLINE_S):
        await task
    assert service.ticks == 1


async def test_a_failing_tick_is_logged_and_retried(caplog: pytest.LogCaptureFixture) -> None:
    stop = StopFlag()
    service = Counter([ValueError("bad day"), Next.again(), Next.again()], stop)
    with caplog.at_level(logging.WARNING, "forge_jobs.service"):
        async with asyncio.timeout(DEADLINE_S):
            await run_service(service, loop_for(stop))
    assert service.ticks == 3
    [line] = caplog.records
    assert (line.__dict__["service"], line.__dict__["retry_in"]) == ("counter", 0.5)
    assert "bad day" in line.__dict__["error"]


async def test_a_hanging_tick_is_cancelled_at_its_limit() -> None:
    stop = StopFlag()

    class Hanging(Counter):
        async def tick(self) -> Next:
            self.ticks += 1
            if self.ticks > 1:
                stop.set()
                return Next.again()
            await asyncio.sleep(3_600)
            raise AssertionError("not reached")

    service = Hanging([], stop)
    async with asyncio.timeout(DEADLINE_S):
        await run_service(service, loop_for(stop, tick_limit_s=0.05))
    assert service.ticks == 2


async def test_only_the_leader_ticks_a_leader_service() -> None:
    stop = StopFlag()
    asked = 0

    def leads() -> bool:
        nonlocal asked
        asked += 1
        stop.set()
        return False

    service = Counter([Next.again()], stop, RunsOn.LEADER)
    async with asyncio.timeout(DEADLINE_S):
        await run_service(service, loop_for(stop, leads=leads))
    assert (service.ticks, asked) == (0, 1)
    again = StopFlag()
    leading = Counter([Next.again()] * 3, again, RunsOn.LEADER)
    async with asyncio.timeout(DEADLINE_S):
        await run_service(leading, loop_for(again))
    assert leading.ticks == 3


@pytest.mark.parametrize("last_tick", [False, True])
async def test_a_last_tick_on_request(last_tick: bool) -> None:
    stop = StopFlag()
    stop.set()
    service = Counter([ValueError("even a failing one is harmless")], stop)
    async with asyncio.timeout(DEADLINE_S):
        await run_service(service, loop_for(stop), last_tick=last_tick)
    assert service.ticks == int(last_tick)


async def test_at_instant_waits_no_longer_than_max_wait() -> None:
    stop = StopFlag()
    loop = loop_for(stop)
    past = Next.at_instant(loop.clock.now() - 1, max_wait_s=3_600)
    soon = Next.at_instant(loop.clock.now() + 3_600_000_000, max_wait_s=0.01)
    service = Counter([past, soon, past], stop)
    async with asyncio.timeout(DEADLINE_S):
        await run_service(service, loop)
    assert service.ticks == 3


async def test_cancellation_of_the_loop_propagates() -> None:
    stop = StopFlag()
    service = Counter([Next.after(3_600), Next.again()], stop)
    task = asyncio.create_task(run_service(service, loop_for(stop)))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(DEADLINE_S):
            await task


async def test_the_stop_flag() -> None:
    stop = StopFlag()
    assert not await stop.wait(0)
    assert not await stop.wait(0.01)
    stop.set()
    assert stop.is_set()
    assert await stop.wait(3_600)


async def test_a_notification_or_a_stop_ends_a_sleep_early() -> None:
    stop, wake = StopFlag(), WakeFlag()
    service = Counter([Next.after(3_600)] * 3, stop)
    async with asyncio.timeout(DEADLINE_S):
        task = asyncio.create_task(run_service(service, loop_for(stop), wake=wake))
        while service.ticks < 1:
            await asyncio.sleep(0.01)
        wake.notify()
        while service.ticks < 2:
            await asyncio.sleep(0.01)
        stop.set()
        await task
    assert service.ticks == 2


async def test_an_exact_wait_has_no_jitter() -> None:
    class Waits(StopFlag):
        def __init__(self) -> None:
            super().__init__()
            self.waited: list[float] = []

        async def wait(self, timeout_s: float) -> bool:
            self.waited.append(timeout_s)
            return await super().wait(0)

    stop = Waits()
    service = Counter([Next.exactly(5.0), Next.after(5.0), Next.again()], stop)
    async with asyncio.timeout(DEADLINE_S):
        await run_service(service, loop_for(stop))
    assert stop.waited[0] == 5.0
    assert 5.0 < stop.waited[1] <= 5.5
