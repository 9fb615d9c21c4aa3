"""Draining: everything that is due, here and now."""

import asyncio
from typing import Any

import pytest

from forge_jobs.backends.memory.store import MemoryStore
from forge_jobs.config import EngineSettings
from forge_jobs.core.errors import BadName, BadOption, Unavailable
from forge_jobs.core.outcome import Dead, Snooze
from forge_jobs.engine.drain import DrainReport, drain
from forge_jobs.engine.running.context import Context
from forge_jobs.store.queues import QueueChange
from forge_jobs.store.store import Store
from forge_jobs.testing.clock import MovableClock
from tests.engine.faulty import FaultyStore
from tests.engine.rig import Rig


async def _drain(rig: Rig, **options: Any) -> DrainReport:
    return await drain(rig.store, rig.registry, **options)


async def test_an_empty_store_is_drained_at_once(rig: Rig) -> None:
    assert await _drain(rig) == DrainReport()
    assert await _drain(rig, queues=["q"]) == DrainReport()


async def test_it_runs_what_is_due_and_what_that_enqueues(rig: Rig) -> None:
    seen: list[str] = []

    async def chain(ctx: Context, given: Any) -> None:
        seen.append(f"chain {given['left']}")
        if given["left"]:
            await ctx.aenqueue("chain", {"left": given["left"] - 1})

    rig.on("chain", chain)
    rig.on("thread", lambda ctx, given: seen.append("thread"))
    await rig.add("chain", {"left": 3}, queue="default")
    await rig.add("thread")
    await rig.add("thread", delay_s=3_600.0)
    report = await _drain(rig)
    assert report == DrainReport(ran=5, done=5)
    assert sorted(seen) == ["chain 0", "chain 1", "chain 2", "chain 3", "thread"]
    assert await rig.counts() == {"done": 5, "scheduled": 1}
    assert await rig.store.processes.all() == []


async def test_the_report_counts_every_kind_of_end(rig: Rig) -> None:
    async def body(ctx: Context, given: Any) -> Any:
        match given["ends"]:
            case "fails":
                raise ValueError("x")
            case "dies":
                raise Dead("x")
            case "snoozes":
                return Snooze("1h")
            case _:
                return None

    rig.on("work", body)
    for ends in ("fails", "fails", "dies", "snoozes", "well"):
        await rig.add("work", {"ends": ends})
    await rig.add("unknown")
    assert await _drain(rig) == DrainReport(ran=6, done=1, failed=2, dead=1, put_off=2)


async def test_a_limit_and_a_choice_of_queues(rig: Rig) -> None:
    rig.on("work", lambda ctx, given: None)
    await rig.add_many("work", 10)
    await rig.add_many("work", 5, queue="other")
    assert (await _drain(rig, queues=["q"], limit=4)).ran == 4
    assert await rig.counts() == {"done": 4, "pending": 11}
    assert (await _drain(rig, queues=["other"])).ran == 5
    assert (await _drain(rig)).ran == 6
    with pytest.raises(BadOption):
        await _drain(rig, limit=0)
    with pytest.raises(BadName):
        await _drain(rig, queues=["not a name"])


async def test_paused_queues_are_left_alone(rig: Rig) -> None:
    rig.on("work", lambda ctx, given: None)
    await rig.store.queues.ensure("q", slots=1)
    await rig.store.queues.change("q", QueueChange(paused=True))
    await rig.add_many("work", 3)
    assert (await _drain(rig)).ran == 0
    assert await rig.counts() == {"pending": 3}


async def test_time_stands_still_until_a_test_advances_it() -> None:
    clock = MovableClock()
    rig = Rig(MemoryStore(clock))
    tries: list[int] = []

    async def body(ctx: Context, given: Any) -> None:
        tries.append(ctx.job.attempts)
        raise ValueError("again")

    rig.on("work", body)
    await rig.add("work", max_attempts=3)
    for wait_s in (0, 17, 34, 70):
        clock.advance(wait_s)
        await drain(rig.store, rig.registry, clock=clock)
    assert tries == [1, 2, 3]
    assert await rig.counts() == {"dead": 1}


async def test_jobs_that_wait_for_each_other_do_not_block_the_drain(rig: Rig) -> None:
    met = asyncio.Barrier(5)

    async def body(ctx: Context, given: Any) -> None:
        await asyncio.wait_for(met.wait(), 60)

    rig.on("work", body)
    await rig.add_many("work", 5)
    assert (await _drain(rig)).done == 5


async def test_a_store_that_is_down_is_an_error_not_a_hang(store: Store) -> None:
    faulty = FaultyStore(store)
    faulty.jobs.before = lambda request: Unavailable("down")
    rig = Rig(faulty)  # type: ignore[arg-type]
    await rig.add("work")
    with pytest.raises(Unavailable, match="down"):
        await _drain(rig)
    assert await rig.store.processes.all() == []
    assert len(asyncio.all_tasks()) == 1


async def test_a_store_far_away_is_drained_too(store: Store) -> None:
    """Each call takes longer than the drain's own look at what is left."""
    faulty = FaultyStore(store)
    faulty.jobs.pause_s = 0.02
    rig = Rig(faulty)  # type: ignore[arg-type]
    rig.on("work", lambda ctx, given: None)
    assert (await asyncio.wait_for(_drain(rig, queues=["q"]), 60)).ran == 0
    await rig.add_many("work", 3)
    assert (await asyncio.wait_for(_drain(rig), 60)).done == 3


async def test_jobs_that_were_released_before_they_started_are_run(rig: Rig) -> None:
    async def body(ctx: Context, given: Any) -> None:
        await asyncio.sleep(0.03)

    rig.on("work", body)
    await rig.add_many("work", 60)
    report = await _drain(rig, settings=EngineSettings(prefetch_hold_s=0.001))
    assert report.done == 60
    assert await rig.counts() == {"done": 60}


async def test_a_busy_queue_beside_an_empty_one_is_drained(rig: Rig) -> None:
    async def body(ctx: Context, given: Any) -> None:
        await asyncio.sleep(0.02)

    rig.on("work", body)
    await rig.add_many("work", 45)
    assert (await _drain(rig, queues=["other", "q", "third"])).done == 45
