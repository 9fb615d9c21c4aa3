"""The virtual loop: time jumps, the seed decides the order, realms freeze."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from rigs.simulation.dice import Dice
from rigs.simulation.loop import Realm, Stuck, ThreadInSimulation, VirtualLoop


def run(main: Callable[[VirtualLoop], Coroutine[Any, Any, Any]], seed: int = 1) -> Any:
    loop = VirtualLoop(Dice(seed), max_steps=100_000)
    try:
        return loop.run_until_complete(main(loop))
    finally:
        loop.close()


def test_time_jumps_to_the_next_timer() -> None:
    async def main(loop: VirtualLoop) -> float:
        await asyncio.sleep(3_600)
        return loop.time()

    assert run(main) == pytest.approx(3_600, abs=0.01)


def test_timers_run_in_the_order_of_their_time() -> None:
    async def main(loop: VirtualLoop) -> list[int]:
        seen: list[int] = []
        for delay in (5, 1, 4, 2, 3):
            loop.call_later(delay, seen.append, delay)
        await asyncio.sleep(6)
        return seen

    for seed in range(20):
        assert run(main, seed) == [1, 2, 3, 4, 5]


def order(seed: int) -> list[int]:
    async def main(loop: VirtualLoop) -> list[int]:
        seen: list[int] = []

        async def step(number: int) -> None:
            seen.append(number)

        await asyncio.gather(*(step(number) for number in range(8)))
        return seen

    return run(main, seed)


def test_the_seed_decides_the_order_of_ready_callbacks() -> None:
    assert order(1) == order(1)
    assert len({tuple(order(seed)) for seed in range(20)}) > 10
    assert all(sorted(order(seed)) == list(range(8)) for seed in range(20))


def test_timeouts_and_cancels_work_in_virtual_time() -> None:
    async def main(loop: VirtualLoop) -> tuple[bool, bool, float]:
        timed_out = cancelled = False
        try:
            async with asyncio.timeout(10):
                await asyncio.sleep(20)
        except TimeoutError:
            timed_out = True
        task = asyncio.ensure_future(asyncio.sleep(1_000))
        loop.call_later(5, task.cancel)
        try:
            await task
        except asyncio.CancelledError:
            cancelled = True
        return timed_out, cancelled, loop.time()

    timed_out, cancelled, now = run(main)
    assert timed_out
    assert cancelled
    assert now == pytest.approx(15, abs=0.01)


def test_a_cancelled_timer_never_fires() -> None:
    async def main(loop: VirtualLoop) -> list[str]:
        seen: list[str] = []
        loop.call_later(1, seen.append, "cancelled").cancel()
        loop.call_later(2, seen.append, "kept")
        await asyncio.sleep(3)
        return seen

    assert run(main) == ["kept"]


def test_no_callback_left_is_an_error_not_a_hang() -> None:
    async def main(loop: VirtualLoop) -> None:
        await asyncio.Event().wait()

    with pytest.raises(Stuck, match="no callback is left"):
        run(main)


def test_a_tight_loop_is_an_error_not_a_hang() -> None:
    async def main(loop: VirtualLoop) -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(Stuck, match="a tight loop"):
        run(main)


def test_a_frozen_realm_goes_on_where_it_stopped() -> None:
    async def main(loop: VirtualLoop) -> list[float]:
        realm = Realm("node")
        seen: list[float] = []

        async def heartbeat() -> None:
            for _ in range(4):
                await asyncio.sleep(1)
                seen.append(round(loop.time(), 2))

        task = loop.create_task(heartbeat(), context=realm.context())
        await asyncio.sleep(1.5)
        realm.frozen = True
        await asyncio.sleep(10)
        loop.thaw(realm)
        await task
        return seen

    assert run(main) == [1.0, 11.5, 12.5, 13.5]


def test_children_belong_to_the_realm_of_their_parent() -> None:
    async def main(loop: VirtualLoop) -> list[str]:
        realm = Realm("node")
        seen: list[str] = []

        async def child() -> None:
            await asyncio.sleep(1)
            seen.append("child")

        async def parent() -> None:
            task = asyncio.ensure_future(child())
            loop.call_later(1, seen.append, "timer")
            await task

        loop.create_task(parent(), context=realm.context())
        await asyncio.sleep(0.5)
        realm.frozen = True
        await asyncio.sleep(5)
        before = list(seen)
        loop.thaw(realm)
        await asyncio.sleep(1)
        return [*before, "thawed", *sorted(seen)]

    assert run(main) == ["thawed", "child", "timer"]


def test_a_realm_that_never_thaws_runs_no_finaliser() -> None:
    import gc

    async def main(loop: VirtualLoop) -> list[str]:
        realm = Realm("node")
        seen: list[str] = []

        async def job() -> None:
            try:
                await asyncio.sleep(1)
            finally:
                seen.append("finaliser")

        loop.create_task(job(), context=realm.context())
        await asyncio.sleep(0.5)
        realm.frozen = True
        await asyncio.sleep(5)
        gc.collect()
        before = list(seen)
        for task in realm.tasks:
            task.cancel()
        loop.thaw(realm)
        await asyncio.sleep(0.1)
        return [*before, "buried", *seen]

    assert run(main) == ["buried", "finaliser"]


def test_threads_and_executors_are_refused() -> None:
    async def main(loop: VirtualLoop) -> list[BaseException]:
        caught: list[BaseException] = []

        def other_thread() -> None:
            try:
                loop.call_soon_threadsafe(print)
            except ThreadInSimulation as error:
                caught.append(error)

        thread = threading.Thread(target=other_thread)
        thread.start()
        thread.join()
        try:
            await asyncio.to_thread(print)
        except ThreadInSimulation as error:
            caught.append(error)
        return caught

    assert len(run(main)) == 2


def test_an_error_in_a_callback_is_kept_for_the_checkers() -> None:
    async def main(loop: VirtualLoop) -> list[str]:
        def fail() -> None:
            raise ZeroDivisionError("on purpose")

        loop.call_soon(fail)
        await asyncio.sleep(1)
        return loop.errors

    errors = run(main)
    assert len(errors) == 1
    assert "on purpose" in errors[0]
