"""Clock and entropy: the system's, and those that a test controls."""

import asyncio
import threading
import time

import pytest

from forge_jobs.core import ids
from forge_jobs.kit.clock import SYSTEM_CLOCK
from forge_jobs.kit.entropy import SYSTEM_ENTROPY, SeededEntropy, new_ulid
from forge_jobs.testing.clock import MovableClock

DEADLINE_S = 60


def test_system_clock_returns_the_machines_time() -> None:
    assert abs(SYSTEM_CLOCK.now() / 1_000_000 - time.time()) < 10
    assert SYSTEM_CLOCK.mono() <= SYSTEM_CLOCK.mono()


def test_seeded_entropy_repeats_its_numbers() -> None:
    def draw(seed: int) -> list[float]:
        entropy = SeededEntropy(seed)
        return [entropy.roll(), entropy.bits(16), entropy.roll()]

    assert draw(1) == draw(1) != draw(2)
    assert 0 <= SYSTEM_ENTROPY.roll() < 1


def test_a_ulid_holds_its_time() -> None:
    made = new_ulid(1_700_000_000_123_456, SeededEntropy(1))
    number = ids.decode(made)
    assert number is not None
    assert number >> 80 == 1_700_000_000_123
    assert made != new_ulid(1_700_000_000_123_456, SeededEntropy(2))


def test_a_movable_clock_does_not_advance_by_itself() -> None:
    clock = MovableClock(5_000_000)
    mono = clock.mono()
    clock.advance(1.5)
    assert (clock.now(), clock.mono()) == (6_500_000, mono + 1.5)
    clock.jump(-60)
    assert (clock.now(), clock.mono()) == (-53_500_000, mono + 1.5)
    with pytest.raises(ValueError, match="jump"):
        clock.advance(-1)


async def test_moving_the_clock_ends_a_sleep() -> None:
    clock = MovableClock()
    sleeper = asyncio.create_task(clock.sleep(3_600))
    short = asyncio.create_task(clock.sleep(10))
    await asyncio.sleep(0.01)
    clock.advance(10)
    async with asyncio.timeout(DEADLINE_S):
        await short
    assert not sleeper.done()
    clock.advance(3_590)
    async with asyncio.timeout(DEADLINE_S):
        await sleeper


async def test_moving_the_clock_ends_a_pause_of_another_thread() -> None:
    clock = MovableClock()
    thread = threading.Thread(target=clock.pause, args=(3_600,))
    thread.start()
    while thread.is_alive():
        clock.advance(3_600)
        await asyncio.sleep(0.01)
    thread.join()


async def test_a_short_wait_ends_without_moving_the_clock() -> None:
    clock = MovableClock()
    before = clock.now()
    async with asyncio.timeout(DEADLINE_S):
        await clock.sleep(0.01)
    clock.pause(0.01)
    assert clock.now() == before
