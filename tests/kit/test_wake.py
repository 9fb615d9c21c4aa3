"""The wake-up flag: no notification between a query and a wait is lost."""

import asyncio
import threading

from forge_jobs.kit.wake import WakeFlag

DEADLINE_S = 60


async def test_a_notification_before_the_wait_is_kept() -> None:
    flag = WakeFlag()
    flag.notify()
    assert await flag.wait(DEADLINE_S)


async def test_many_notifications_wake_once() -> None:
    flag = WakeFlag()
    for _ in range(5):
        flag.notify()
    assert await flag.wait(DEADLINE_S)
    assert not await flag.wait(0.01)


async def test_a_notification_from_another_thread_wakes() -> None:
    flag = WakeFlag()
    waiting = asyncio.create_task(flag.wait(DEADLINE_S))
    await asyncio.sleep(0)
    thread = threading.Thread(target=flag.notify)
    thread.start()
    assert await waiting
    thread.join()


async def test_notifications_between_waits_are_never_lost() -> None:
    flag = WakeFlag()
    for _ in range(200):
        thread = threading.Thread(target=flag.notify)
        thread.start()
        assert await flag.wait(DEADLINE_S)
        thread.join()


async def test_clear_drops_notifications() -> None:
    flag = WakeFlag()
    flag.notify()
    await asyncio.sleep(0)
    flag.clear()
    assert not await flag.wait(0.01)
    flag.notify()
    assert await flag.wait(DEADLINE_S)


def test_notifying_a_closed_loop_is_harmless() -> None:
    async def make() -> WakeFlag:
        return WakeFlag()

    flag = asyncio.run(make())
    flag.notify()
    flag.notify()
