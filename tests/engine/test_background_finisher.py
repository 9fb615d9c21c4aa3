"""Finishes written in a second call while another one claims, where the store is a server."""

import asyncio
import dataclasses
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from forge_jobs.core.errors import Invalid, Unavailable, Unknown
from forge_jobs.core.selection import Filter
from forge_jobs.engine.claiming.background_finisher import BackgroundFinisher
from forge_jobs.engine.running.context import Context
from forge_jobs.store.jobs import Exchange, Exchanged
from forge_jobs.store.store import Store
from tests.engine.faulty import FaultyStore
from tests.engine.rig import FAST, Rig, until

JOBS = 300
SETTINGS = dataclasses.replace(FAST, max_unwritten=40, unwritten_s=60.0, min_background_finishes=5)


@pytest.fixture
def faulty(store: Store) -> FaultyStore:
    """Every store pretends to be a server: the engine must be correct with each of them."""
    faulty = FaultyStore(store)
    # A server takes some time, so that calls overlap.
    faulty.jobs.pause_s = 0.002
    faulty.capabilities = msgspec.structs.replace(store.capabilities, server_side=True)
    return faulty


@pytest.fixture
def runs() -> list[int]:
    return []


@pytest.fixture
def rig(faulty: FaultyStore, runs: list[int]) -> Rig:
    rig = Rig(faulty)  # type: ignore[arg-type]

    async def body(ctx: Context, given: Any) -> None:
        runs.append(given["n"])

    rig.on("work", body)
    return rig


async def _work_off(rig: Rig, **changes: Any) -> None:
    for n in range(JOBS):
        await rig.add("work", {"n": n})
    settings = dataclasses.replace(SETTINGS, **changes)
    async with rig.working({"q": 20}, settings=settings):

        async def over() -> bool:
            return await rig.counts() == {"done": JOBS}

        await until(over, f"{JOBS} jobs done")
    page = await rig.store.jobs.page(Filter(), limit=JOBS)
    assert {job.attempts for job in page.jobs} == {1}


def _is_background(request: Exchange) -> bool:
    return len(request.finish) >= SETTINGS.min_background_finishes and not request.want


async def test_finishes_are_written_while_jobs_are_claimed(
    rig: Rig, faulty: FaultyStore, runs: list[int]
) -> None:
    await _work_off(rig)
    assert sorted(runs) == list(range(JOBS))
    pairs = [calls for calls in faulty.jobs.together if len(calls) > 1]
    assert pairs, "no two calls overlapped"
    for one, other in pairs:
        claiming = one if one.want else other
        writing = other if claiming is one else one
        assert _is_background(writing)
        assert claiming.want
        assert not claiming.finish


async def test_a_strict_worker_makes_one_call_at_a_time(rig: Rig, faulty: FaultyStore) -> None:
    await _work_off(rig, strict=True)
    assert max(map(len, faulty.jobs.together)) == 1


async def test_a_lost_reply_to_the_background_finisher_repeats_no_run(
    rig: Rig, faulty: FaultyStore, runs: list[int]
) -> None:
    lost = 0

    def lose(request: Exchange, answer: Exchanged) -> BaseException | None:
        nonlocal lost
        if _is_background(request) and lost < 3:
            lost += 1
            return Unknown("the line broke")
        return None

    faulty.jobs.after = lose
    await _work_off(rig)
    assert lost == 3
    assert sorted(runs) == list(range(JOBS))


async def test_failing_calls_are_made_one_by_one(
    rig: Rig, faulty: FaultyStore, runs: list[int]
) -> None:
    failed: list[int] = []

    def refuse(request: Exchange) -> BaseException | None:
        if request.finish and len(failed) < 3:
            failed.append(len(faulty.jobs.requests))
            return Unavailable("down")
        return None

    faulty.jobs.before = refuse
    await _work_off(rig)
    assert len(failed) == 3
    # The first may have overlapped with a claim; those after it were alone.
    assert [len(faulty.jobs.together[number - 1]) for number in failed[1:]] == [1, 1]
    assert sorted(runs) == list(range(JOBS))


async def test_a_finish_refused_in_the_background_is_found_and_blocks_no_other(
    rig: Rig, faulty: FaultyStore, runs: list[int]
) -> None:
    bad: list[int] = []

    def refuse(request: Exchange) -> BaseException | None:
        if _is_background(request) and not bad:
            bad.append(request.finish[0].key)
        if any(finish.key in bad and finish.error is None for finish in request.finish):
            return Invalid("this one cannot be stored")
        return None

    faulty.jobs.before = refuse
    for n in range(JOBS):
        await rig.add("work", {"n": n})
    async with rig.working({"q": 20}, settings=SETTINGS):

        async def over() -> bool:
            counts = await rig.counts()
            return counts.get("done") == JOBS - 1 and "running" not in counts

        await until(over, "all the others done")
    assert len(bad) == 1
    assert sorted(set(runs)) == list(range(JOBS))


async def test_no_call_is_in_flight_after_cancel() -> None:
    """The store may be closed after that: no connection may be in use."""
    sent, let_go = asyncio.Event(), asyncio.Event()

    async def write(_batch: Any) -> None:
        sent.set()
        try:
            await asyncio.sleep(3_600)
        finally:
            await asyncio.sleep(0)  # as closing a connection needs a turn of the loop
            let_go.set()

    finish_buffer: Any = SimpleNamespace(notify=lambda: None)
    batch: Any = SimpleNamespace(is_all_done=lambda min_finishes: True)
    finisher = BackgroundFinisher(finish_buffer, write, lambda: True, lambda: 0.0, min_finishes=1)
    assert finisher.start(batch, wanted=1)
    await sent.wait()
    await finisher.cancel()
    assert let_go.is_set()
    assert not finisher.is_busy
