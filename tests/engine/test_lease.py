"""The trust window, fencing, and registering again after having been declared dead."""

import asyncio
import dataclasses
import time
from typing import Any

import msgspec
import pytest

from forge_jobs.core.errors import Unavailable
from forge_jobs.core.status import JobStatus
from forge_jobs.engine.running.context import Context
from forge_jobs.engine.services import reap_stale_jobs
from forge_jobs.kit.clock import SYSTEM_CLOCK
from forge_jobs.store.jobs import Exchange, Exchanged
from forge_jobs.store.processes import NewProcess
from forge_jobs.store.store import Store
from tests.engine.faulty import FaultyStore
from tests.engine.rig import FAST, Rig, until


class ShiftedClock:
    """The system's clock, moved forward by a test, as after a suspend."""

    def __init__(self) -> None:
        self.shift_s = 0.0

    def now(self) -> int:
        return SYSTEM_CLOCK.now()

    def mono(self) -> float:
        return SYSTEM_CLOCK.mono() + self.shift_s

    async def sleep(self, seconds: float) -> None:
        await SYSTEM_CLOCK.sleep(seconds)

    def pause(self, seconds: float) -> None:
        SYSTEM_CLOCK.pause(seconds)


async def _declare_dead(rig: Rig, host_id: str) -> int:
    """Another process declares that one dead, rightly or not."""
    return await rig.store.processes.register(
        NewProcess(
            host_id="witness", label="witness", queues=(), pid=1, hostname="here", lease_s=600
        ),
        replaces=host_id,
    )


async def test_H1_M1_the_late_finish_of_a_dead_process_is_refused_and_its_handler_interrupted(
    rig: Rig,
) -> None:
    told: list[str] = []
    runs: list[int] = []

    async def body(ctx: Context, given: Any) -> str:
        runs.append(ctx.job.attempts)
        if len(runs) > 1:
            return "second"
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            told.append("stop")
        return "first"

    rig.on("work", body)
    settings = dataclasses.replace(FAST, lease_s=5.0)
    async with rig.working(settings=settings) as handle:
        job_id = await rig.add("work")
        await until(lambda: bool(runs))
        first_life = handle.host_id
        await _declare_dead(rig, first_life)
        await reap_stale_jobs(rig.store)
        record = await rig.reaches(job_id, JobStatus.DONE)
        assert told == ["stop"]
        assert record.result == b'"second"'
        assert (record.attempts, record.crashes) == (2, 1)
        assert handle.host_id != first_life
        living = [process.host_id for process in await rig.store.processes.all()]
        assert handle.host_id in living
        assert first_life not in living


async def test_a_dead_process_registers_again_and_continues(rig: Rig) -> None:
    async def body(ctx: Context, given: Any) -> str:
        return ctx.host_id

    rig.on("work", body)
    settings = dataclasses.replace(FAST, lease_s=2.0)
    async with rig.working(settings=settings) as handle:
        before = handle.host_id
        assert (await rig.runs("work")).result == f'"{before}"'.encode()
        await _declare_dead(rig, before)
        await until(lambda: handle.host_id != before)
        record = await rig.runs("work")
        assert record.result == f'"{handle.host_id}"'.encode()


async def test_an_expired_lease_is_renewed_unless_the_process_was_declared_dead(
    store: Store,
) -> None:
    """After an outage longer than the lease an exchange may arrive before the heartbeat."""
    faulty = FaultyStore(store)
    rig = Rig(faulty)  # type: ignore[arg-type]
    late: list[int] = []

    def run_out(request: Exchange, answer: Exchanged) -> Exchanged:
        if not request.finish or answer.claims or late:
            return answer
        late.append(request.number)
        return msgspec.structs.replace(answer, alive=False)

    async def body(ctx: Context, given: Any) -> None:
        return None

    rig.on("work", body)
    faulty.jobs.change = run_out
    async with rig.working() as handle:
        life = handle.host_id
        while not late:
            await rig.reaches(await rig.add("work"), JobStatus.DONE)
        await rig.reaches(await rig.add("work"), JobStatus.DONE)
        assert handle.host_id == life
        assert [seen.host_id for seen in await rig.store.processes.all()] == [life]


async def test_no_job_starts_once_trust_has_ended(rig: Rig) -> None:
    clock = ShiftedClock()
    started: list[int] = []

    async def body(ctx: Context, given: Any) -> None:
        started.append(1)

    rig.on("work", body)
    faulty = FaultyStore(rig.store)
    beats = faulty._inner.processes.heartbeat
    down = False

    class Processes:
        def __getattr__(self, name: str) -> Any:
            return getattr(faulty._inner.processes, name)

        async def heartbeat(self, *args: Any) -> Any:
            if down:
                raise Unavailable("down")
            return await beats(*args)

    faulty.processes = Processes()  # type: ignore[attr-defined]
    cut = Rig(faulty)  # type: ignore[arg-type]
    cut.registry = rig.registry
    async with cut.working(clock=clock) as handle:
        await rig.runs("work")
        down = True
        clock.shift_s = 11.0
        await rig.add("work")
        await asyncio.sleep(0.6)
        assert len(started) == 1
        assert handle.running == 0
        down = False
        await until(lambda: len(started) == 2, "trust comes back with the next good beat")


@pytest.mark.parametrize("limited", [True, False])
async def test_when_trust_ends_only_exclusive_work_is_stopped(rig: Rig, limited: bool) -> None:
    told, release = asyncio.Event(), asyncio.Event()
    started = asyncio.Event()

    async def body(ctx: Context, given: Any) -> str:
        started.set()
        try:
            await release.wait()
        except asyncio.CancelledError:
            told.set()
            raise
        return "finished"

    rig.on("work", body)
    faulty = FaultyStore(rig.store)
    inner = faulty._inner.processes
    down = False

    class Processes:
        def __getattr__(self, name: str) -> Any:
            return getattr(inner, name)

        async def heartbeat(self, *args: Any) -> Any:
            if down:
                raise Unavailable("down")
            return await inner.heartbeat(*args)

    faulty.processes = Processes()  # type: ignore[attr-defined]
    cut = Rig(faulty)  # type: ignore[arg-type]
    cut.registry = rig.registry
    settings = dataclasses.replace(FAST, lease_s=2.0)
    async with cut.working(settings=settings):
        job_id = await rig.add("work", limit_key="only-one" if limited else None)
        await started.wait()
        down = True
        if limited:
            await asyncio.wait_for(told.wait(), 60)
            down = False
            release.set()
            record = await rig.reaches(job_id, JobStatus.DONE)
            assert record.crashes == 0
        else:
            await asyncio.sleep(3)
            assert not told.is_set()
            down = False
            release.set()
            record = await rig.reaches(job_id, JobStatus.DONE)
            assert (record.result, record.attempts) == (b'"finished"', 1)


async def test_a_handler_that_blocks_the_loop_is_not_reaped(rig: Rig) -> None:
    runs: list[int] = []

    async def body(ctx: Context, given: Any) -> None:
        runs.append(1)
        time.sleep(3)

    rig.on("work", body)
    settings = dataclasses.replace(FAST, lease_s=1.0)
    async with rig.working(settings=settings):
        job_id = await rig.add("work")
        record = await rig.reaches(job_id, JobStatus.DONE)
    assert runs == [1]
    assert (record.attempts, record.crashes) == (1, 0)


async def test_heartbeats_follow_the_settings(rig: Rig) -> None:
    settings = dataclasses.replace(FAST, lease_s=600.0, heartbeat_s=0.05)
    seen: set[int] = set()

    async def beaten() -> bool:
        seen.update(process.beat_at for process in await rig.store.processes.all())
        return len(seen) >= 4

    async with rig.working(settings=settings):
        await until(beaten)


async def test_A12_a_worker_that_waits_out_a_throttle_stays_alive_and_follows_changes(
    rig: Rig,
) -> None:
    from forge_jobs.core.outcome import Throttled

    calls = 0

    async def body(ctx: Context, given: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise Throttled(retry_after=3_600)

    rig.on("work", body)
    settings = dataclasses.replace(FAST, lease_s=1.0)
    async with rig.working(settings=settings) as handle:
        job_id = await rig.add("work")
        await rig.reaches(job_id, JobStatus.SCHEDULED)
        await asyncio.sleep(2)
        living = {process.host_id: process for process in await rig.store.processes.all()}
        assert living[handle.host_id].queues == ("q",)
        await rig.store.queues.open_gate("q")
        second = await rig.add("work")
        assert (await rig.reaches(second)).status is JobStatus.DONE


async def test_the_handler_of_a_lost_claim_is_interrupted(rig: Rig) -> None:
    """The comparison once per lease notices it even when the process itself still counts as
    alive."""
    told = asyncio.Event()
    started = asyncio.Event()

    async def body(ctx: Context, given: Any) -> None:
        started.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            told.set()
            raise

    rig.on("work", body)
    faulty = FaultyStore(rig.store)
    inner, gone = faulty._inner.jobs, False

    async def owned(owner: int) -> Any:
        return [] if gone else await inner.owned(owner)

    faulty.jobs.owned = owned  # type: ignore[attr-defined]
    cut = Rig(faulty)  # type: ignore[arg-type]
    cut.registry = rig.registry
    async with cut.working(settings=dataclasses.replace(FAST, lease_s=1.0)):
        await rig.add("work")
        await started.wait()
        gone = True
        await asyncio.wait_for(told.wait(), 60)


async def test_many_deaths_finish_no_job_twice(rig: Rig) -> None:
    finished: list[str] = []

    async def body(ctx: Context, given: Any) -> None:
        await asyncio.sleep(0.02)
        finished.append(ctx.job.id)

    rig.on("work", body)
    ids = await rig.add_many("work", 60, max_attempts=50)
    settings = dataclasses.replace(FAST, lease_s=2.0, isolate_after_crashes=100)
    async with rig.working({"q": 4}, settings=settings) as handle:
        for _ in range(3):
            await asyncio.sleep(0.1)
            before = handle.host_id
            await _declare_dead(rig, before)
            await reap_stale_jobs(rig.store)
            await until(lambda name=before: handle.host_id != name)
        for job_id in ids:
            record = await rig.reaches(job_id)
            assert record.status is JobStatus.DONE
        assert await rig.counts() == {"done": 60}
