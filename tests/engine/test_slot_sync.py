"""Slots and pause are followed live; the cluster's total is shared out."""

import asyncio
import dataclasses
from typing import Any

import pytest

from forge_jobs.core.shares import Part, share_out
from forge_jobs.core.status import JobStatus
from forge_jobs.engine.running.context import Context
from forge_jobs.engine.runtime import QueueHandle
from forge_jobs.store.queues import QueueChange
from tests.engine.rig import FAST, Rig, until


def _parts(*held: int) -> list[Part]:
    """Processes b, c, d… that want and hold that much."""
    return [
        Part(n, name, wants=True, slots=count, held=count)
        for n, (name, count) in enumerate(zip("bcdefgh", held, strict=False), 1)
    ]


@pytest.mark.parametrize(
    ("total", "others", "expected"),
    [
        (10, [], 10),
        (10, _parts(5), 5),
        (10, _parts(10), 0),
        (10, _parts(7), 3),
        (10, _parts(3, 3), 4),
        (1, _parts(0), 1),
        (1, _parts(1), 0),
        (10, [Part(1, "b", wants=False, held=2)], 8),
        (0, [], 0),
        (100_000, [], 256),
    ],
)
def test_M6_a_share_is_fair_and_only_taken_from_what_others_gave_up(
    total: int, others: list[Part], expected: int
) -> None:
    fresh = Part(9, "a", wants=True)
    changed = {part.process: part for part in share_out(total, [*others, fresh], max_slots=256)}
    assert changed.get(9, fresh).slots == expected


def test_A25_a_queue_may_have_more_slots_than_one_process_holds() -> None:
    fresh = Part(9, "a", wants=True)
    [grown] = share_out(1_024, [fresh, *_parts(256, 256, 256)], max_slots=256)
    assert (grown.host_id, grown.slots) == ("a", 256)


class Gauge:
    """Counts how many handlers run."""

    def __init__(self) -> None:
        self.running = 0
        self.release = asyncio.Event()

    async def body(self, ctx: Context, given: Any) -> None:
        self.running += 1
        try:
            await self.release.wait()
        finally:
            self.running -= 1


async def test_slots_follow_the_queue_up_and_down(rig: Rig) -> None:
    gauge = Gauge()
    rig.on("work", gauge.body)
    ids = await rig.add_many("work", 12)
    async with rig.working({"q": 2}) as handle:
        await until(lambda: gauge.running == 2)
        await rig.store.queues.change("q", QueueChange(slots=6))
        await until(lambda: gauge.running == 6)
        await rig.store.queues.change("q", QueueChange(slots=1))
        await until(lambda: _local_queue(handle).slots == 1)
        assert gauge.running == 6
        gauge.release.set()
        for job_id in ids:
            record = await rig.reaches(job_id)
            assert (record.status, record.attempts) == (JobStatus.DONE, 1)


async def test_A2_pause_and_scale_down_let_running_jobs_finish(rig: Rig) -> None:
    gauge = Gauge()
    told: list[bool] = []

    async def body(ctx: Context, given: Any) -> None:
        await gauge.body(ctx, given)
        told.append(ctx.cancelled)

    rig.on("work", body)
    ids = await rig.add_many("work", 6)
    async with rig.working({"q": 3}) as handle:
        await until(lambda: gauge.running == 3)
        await rig.store.queues.change("q", QueueChange(paused=True))
        await until(lambda: _local_queue(handle).slots == 0)
        gauge.release.set()
        await until(lambda: len(told) == 3)

        async def written() -> bool:
            return (await rig.counts()).get("done") == 3

        await until(written)
        await asyncio.sleep(0.4)
        assert await rig.counts() == {"done": 3, "pending": 3}
        await rig.store.queues.change("q", QueueChange(paused=False))
        for job_id in ids:
            record = await rig.reaches(job_id)
            assert (record.status, record.attempts, record.errors) == (JobStatus.DONE, 1, ())
    assert told == [False] * 6


async def test_A13_slots_freed_by_scale_down_are_not_used_while_their_job_still_runs(
    rig: Rig,
) -> None:
    gauge = Gauge()
    rig.on("work", gauge.body)
    await rig.add_many("work", 20)
    async with rig.working({"q": 4}) as handle:
        await until(lambda: gauge.running == 4)
        for slots in (2, 4, 1, 4):
            await rig.store.queues.change("q", QueueChange(slots=slots))
            await until(lambda wanted=slots: _local_queue(handle).slots == wanted)
            await asyncio.sleep(0.05)
            assert gauge.running == 4
        gauge.release.set()

        async def done() -> bool:
            return await rig.counts() == {"done": 20}

        await until(done)


async def test_two_workers_share_and_never_exceed_the_total(rig: Rig) -> None:
    gauge = Gauge()
    rig.on("work", gauge.body)
    await rig.add_many("work", 30)
    settings = dataclasses.replace(FAST, lease_s=3.0)
    async with rig.working({"q": 6}, settings=settings) as first:
        await until(lambda: gauge.running == 6)
        async with rig.working({"q": 6}, settings=settings) as second:
            await until(lambda: _local_queue(first).slots == 3)
            assert _local_queue(second).slots == 0
            assert gauge.running == 6
            gauge.release.set()
            await until(lambda: _local_queue(second).slots == 3)
            assert _local_queue(first).slots == 3
        await until(lambda: _local_queue(first).slots == 6)


async def test_a_quiet_worker_claims_nothing_more(rig: Rig) -> None:
    gauge = Gauge()
    rig.on("work", gauge.body)
    first = await rig.add("work")
    async with rig.working({"q": 2}) as handle:
        await until(lambda: gauge.running == 1)
        await rig.store.processes.quiet(handle.host_id, quiet=True)
        await until(lambda: _local_queue(handle).slots == 0)
        second = await rig.add("work")
        gauge.release.set()
        await rig.reaches(first, JobStatus.DONE)
        await asyncio.sleep(0.4)
        assert (await rig.record(second)).status is JobStatus.PENDING
        await rig.store.processes.quiet(handle.host_id, quiet=False)
        await rig.reaches(second, JobStatus.DONE)


async def test_a_forgotten_queue_stays_as_it_is(rig: Rig) -> None:
    async def body(ctx: Context, given: Any) -> None:
        return None

    rig.on("work", body)
    async with rig.working({"q": 2}) as handle:
        await rig.store.queues.forget("q")
        await asyncio.sleep(0.3)
        assert _local_queue(handle).slots == 2
        assert (await rig.runs("work")).status is JobStatus.DONE


async def test_the_process_reports_its_slots_and_what_runs(rig: Rig) -> None:
    gauge = Gauge()
    rig.on("work", gauge.body)
    await rig.add_many("work", 2)
    settings = dataclasses.replace(FAST, lease_s=2.0)
    async with rig.working({"q": 5}, settings=settings) as handle:

        async def told() -> bool:
            (record,) = await rig.store.processes.all()
            return record.running == 2 and dict(record.slots) == {"q": 5}

        await until(told)
        (record,) = await rig.store.processes.all()
        assert record.host_id == handle.host_id
        assert record.memory_bytes > 1_000_000
        gauge.release.set()


def _local_queue(handle: QueueHandle) -> Any:
    return handle._process.parts.local_queues.by_name["q"]
