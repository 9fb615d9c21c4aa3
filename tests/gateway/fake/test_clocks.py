"""Clocks that shorten waits."""

import asyncio
import threading

import pytest

from telegram_gateway.fake import FastClock, LeapClock


async def test_a_leap_wakes_shorter_sleeps() -> None:
    clock = LeapClock()
    short, long = (asyncio.create_task(clock.sleep(seconds)) for seconds in (3_600, 7_200))
    thread = threading.Thread(target=clock.pause, args=(3_600,))
    thread.start()
    await asyncio.sleep(0)
    now, mono = clock.now(), clock.mono()
    clock.leap(3_601)
    await asyncio.wait_for(short, 30)
    await asyncio.to_thread(thread.join, 30)
    assert not thread.is_alive()
    assert clock.now() - now >= 3_601 * 1_000_000
    assert clock.mono() - mono >= 3_601
    assert not long.done()
    clock.leap(3_601)
    await asyncio.wait_for(long, 30)
    with pytest.raises(ValueError, match="negative"):
        clock.leap(-1)


async def test_a_fast_clock_sleeps_less_and_keeps_the_wall_clock() -> None:
    clock = FastClock(100_000)
    real = LeapClock()
    before = clock.mono()
    async with asyncio.timeout(60):
        await clock.sleep(3_600)
    clock.pause(3_600)
    assert clock.mono() - before >= 7_200 * 0.99
    assert abs(clock.now() - real.now()) < 60 * 1_000_000
    with pytest.raises(ValueError, match="speed"):
        FastClock(0)
