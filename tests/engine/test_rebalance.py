"""Shares of slots move with the processes, and queues without a worker are named."""

import asyncio
import dataclasses
from typing import Any

import pytest

from forge_jobs import rebalance_once
from forge_jobs.backends.memory.store import MemoryStore
from forge_jobs.core.job import NewJob
from forge_jobs.engine.running.context import Context
from forge_jobs.engine.runtime import QueueHandle
from forge_jobs.engine.services.rebalance import Rebalance
from forge_jobs.engine.services.unserved import Unserved
from forge_jobs.store.processes import NewProcess
from forge_jobs.store.queues import QueueChange
from forge_jobs.testing.clock import MovableClock
from tests.engine.rig import FAST, Rig, until


async def _member(store: Any, host_id: str, queue: str = "q", lease_s: float = 15.0) -> int:
    return await store.processes.register(
        NewProcess(
            host_id=host_id, label=host_id, queues=(queue,), pid=1, hostname="h", lease_s=lease_s
        )
    )


def _slots(handle: QueueHandle) -> int:
    return handle._process.parts.local_queues.by_name["q"].slots


async def test_ten_slots_over_three_processes(rig: Rig) -> None:
    async with rig.working() as one, rig.working() as two, rig.working() as three:
        # Host ids of one millisecond have no order: any of the three may have the fourth slot.
        await until(lambda: sorted(map(_slots, (one, two, three))) == [3, 3, 4])


async def test_a_share_is_reassigned_at_once_when_a_process_stops(rig: Rig) -> None:
    async with rig.working() as stays:
        goes = await rig.runtime().start()
        await until(lambda: _slots(goes) == 5)
        await goes.shutdown_graceful(0)
        [record] = await rig.store.processes.all()
        assert record.shares["q"].slots == 10, "whoever goes passes its slots on"
        await until(lambda: _slots(stays) == 10)


async def test_a_process_that_waits_for_its_last_job_gives_up_its_other_slots(rig: Rig) -> None:
    release = asyncio.Event()

    async def body(ctx: Context, given: Any) -> None:
        await release.wait()

    rig.on("work", body)
    await rig.add("work")
    goes = await rig.runtime().start()
    await until(lambda: goes.running == 1)
    async with rig.working() as stays:
        leaving = asyncio.create_task(goes.shutdown_graceful(30))
        await until(lambda: _slots(stays) == 9)
        assert goes.running == 1
        release.set()
        await leaving
        await until(lambda: _slots(stays) == 10)


async def test_a_quiet_process_gives_its_share_to_the_others(rig: Rig) -> None:
    release = asyncio.Event()

    async def body(ctx: Context, given: Any) -> None:
        await release.wait()

    rig.on("work", body)
    await rig.add_many("work", 1)
    async with rig.working() as quiet:
        await until(lambda: quiet.running == 1)
        async with rig.working() as other:
            await rig.store.processes.quiet(quiet.host_id, quiet=True)
            await until(lambda: _slots(quiet) == 0)
            await until(lambda: _slots(other) == 9)
            release.set()
            await until(lambda: _slots(other) == 10)


async def test_the_dead_use_no_slots_until_they_have_a_share_again(rig: Rig) -> None:
    async with rig.working(settings=dataclasses.replace(FAST, lease_s=600.0)) as handle:
        local_queue = handle._process.parts.local_queues.by_name["q"]
        assert local_queue.slots == 10
        seen: list[int] = []
        real = handle._process._registration.register_again

        async def register_again() -> None:
            seen.append(local_queue.slots)
            await real()

        handle._process._registration.register_again = register_again  # type: ignore[method-assign]
        await _member(rig.store, "parent", "other")
        await rig.store.processes.register(
            NewProcess(host_id="new", label="new", queues=(), pid=1, hostname="h", lease_s=600.0),
            replaces=handle.host_id,
        )
        handle._process._registration.lease.beat_now()
        await until(lambda: bool(seen))
        assert seen == [0]
        await until(lambda: local_queue.slots == 10)


async def test_rebalance_once_is_the_same_on_every_node_at_once() -> None:
    clock = MovableClock()
    store = MemoryStore(clock)
    await store.queues.ensure("q", slots=10)
    for name in "abc":
        await _member(store, name)
    services = [Rebalance(store, max_slots=256) for _ in range(5)]
    await asyncio.gather(*(service.tick() for service in services))
    shares = {one.host_id: one.shares["q"].slots for one in await store.processes.all()}
    assert shares == {"a": 4, "b": 3, "c": 3}
    assert await rebalance_once(store) == 0, "L9: nothing is written again"


async def test_H3_a_queue_is_named_within_ten_seconds_of_its_last_workers_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = MovableClock()
    store = MemoryStore(clock)
    await store.queues.ensure("q", slots=10)
    await store.queues.ensure("r", slots=1)
    await store.queues.ensure("pulled", slots=0)
    await store.jobs.enqueue([NewJob(kind="work", queue="pulled")])
    leaves = await _member(store, "a", "q", lease_s=600.0)
    await _member(store, "b", "r", lease_s=15.0)
    service = Unserved(store, clock=clock)

    async def named() -> list[str]:
        caplog.clear()
        following = await service.tick()
        assert following.after_s is not None
        assert following.after_s * 1.1 + 5.5 < 10, "a new coordinator looks in time, too"
        return [record.queue for record in caplog.records]  # type: ignore[attr-defined]

    assert await named() == []
    await store.processes.deregister(leaves)
    assert await named() == ["q"]
    assert await named() == [], "said once"
    clock.advance(16)
    assert await named() == ["r"], "its lease has ended"
    clock.advance(60)
    assert await named() == ["q", "r"], "and again while it stays so"
    await store.queues.change("q", QueueChange(slots=0))
    clock.advance(60)
    assert await named() == ["r"]
