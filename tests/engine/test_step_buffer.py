"""How many steps one exchange takes, where the store works in another process."""

import asyncio

import pytest

from forge_jobs.core.decide import Finish
from forge_jobs.core.events import Wait
from forge_jobs.core.job import Claim
from forge_jobs.core.status import Event, JobStatus
from forge_jobs.core.steps import StepKind, StepWrite
from forge_jobs.engine.claiming.finish_buffer import Batch
from forge_jobs.engine.claiming.step_buffer import StepBatch, StepBuffer
from forge_jobs.engine.claiming.wake_signal import WakeSignal
from forge_jobs.store.jobs import StepAnswer, WaitCheck

LIMIT = 500


def _step(key: int) -> StepWrite:
    return StepWrite(key, 1, "a", StepKind.STEP, 0, 1)


def _forget(answer: StepAnswer | Exception) -> None:
    """Nobody waits for it."""


async def _buffer(jobs: range, *, overlap: bool = True) -> StepBuffer:
    buffer = StepBuffer(WakeSignal(asyncio.get_running_loop()), overlap=overlap)
    for key in jobs:
        buffer.add(_step(key), _forget)
    return buffer


def _keys(batch: StepBatch) -> list[int]:
    return [one.key for one in batch.steps]


async def test_handlers_fall_into_two_groups_of_one_size() -> None:
    """One step is on its way when 99 others come. From then on each handler sends its next step
    when it has its answer: no exchange may have all of them again."""
    buffer = await _buffer(range(1))
    sizes = list[int]()
    taken = buffer.take(LIMIT)
    for key in range(1, 100):
        buffer.add(_step(key), _forget)
    for _ in range(12):
        answered, taken = taken, buffer.take(LIMIT)
        sizes.append(len(taken.steps))
        for one in answered.steps:
            buffer.add(one.sent, _forget)
    assert all(40 <= size <= 60 for size in sizes[2:]), sizes
    assert sum(sizes[2:4]) == 100


async def test_each_step_is_sent_once_in_order() -> None:
    buffer = await _buffer(range(100))
    sent = list[int]()
    while not buffer.is_empty:
        sent += _keys(buffer.take(LIMIT))
    assert sent == list(range(100))


@pytest.mark.parametrize(("steps", "overlap"), [(15, True), (100, False)])
async def test_few_steps_and_those_of_a_store_in_this_process_go_together(
    steps: int, overlap: bool
) -> None:
    buffer = await _buffer(range(steps), overlap=overlap)
    assert _keys(buffer.take(LIMIT)) == list(range(steps))


async def test_a_step_goes_with_the_finish_of_its_job_at_the_latest() -> None:
    """After the finish it would be stale: its function would run again."""
    late = 99
    finish = Finish(late, 1, Event.FAIL, JobStatus.FAILED, "orders", "fulfil")
    for batch in (Batch([finish], [], [], []), Batch([], [Claim(late, 1)], [], [])):
        buffer = await _buffer(range(100))
        assert late in _keys(buffer.take(LIMIT, batch))
    other = Batch([], [Claim(1_000, 1)], [], [])
    assert late not in _keys((await _buffer(range(100))).take(LIMIT, other))


async def test_a_wait_goes_with_the_release_of_its_job() -> None:
    buffer = await _buffer(range(50))
    check = WaitCheck(Claim(77, 1), Wait("wait:paid", 0, ()))
    buffer.add(check, _forget)
    taken = buffer.take(LIMIT, Batch([], [Claim(77, 1)], [], []))
    assert taken.checks == [check]
