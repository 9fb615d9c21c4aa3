"""When the store is told that a prefetched run has started."""

import asyncio
from typing import Any

from forge_jobs.engine.claiming.finish_buffer import FinishBuffer
from forge_jobs.engine.claiming.wake_signal import WakeSignal
from forge_jobs.engine.running.run import NEVER, RunState

DELAY_S = 0.05


class FakeRun:
    """The part of a run that marks need."""

    def __init__(self, started_at: float) -> None:
        self.started_at = started_at
        self.state = RunState.RUNNING


def _buffer(*runs: Any) -> FinishBuffer:
    wake = WakeSignal(asyncio.get_running_loop())
    made = FinishBuffer(wake, max_unwritten=100, max_age_s=1.0, mark_delay_s=DELAY_S)
    for run in runs:
        made.mark_started(run, run.started_at)
    return made


async def test_a_run_that_ends_soon_is_never_marked() -> None:
    run = FakeRun(10.0)
    buffer = _buffer(run)
    assert buffer.take(now=10.0 + DELAY_S / 4).marks == []
    run.state = RunState.FINISHED
    assert buffer.take(now=10.0 + DELAY_S).marks == []
    assert buffer.due_at() == NEVER


async def test_a_run_that_goes_on_is_marked_in_time() -> None:
    """An exchange is due for it, at the latest after the delay, and marks the others that run for a
    while too."""
    first, second, third = FakeRun(10.0), FakeRun(10.01), FakeRun(10.04)
    buffer = _buffer(first, second, third)
    assert buffer.take(now=10.02).marks == []
    assert buffer.due_at() == 10.0 + DELAY_S
    assert buffer.take(now=10.0 + DELAY_S).marks == [first, second]
    assert buffer.due_at() == 10.04 + DELAY_S
    assert buffer.take(now=10.04 + DELAY_S).marks == [third]
    assert buffer.due_at() == NEVER


async def test_marks_that_were_not_written_are_sent_again() -> None:
    run = FakeRun(10.0)
    buffer = _buffer(run)
    batch = buffer.take(now=11.0)
    assert batch.marks == [run]
    buffer.put_back(batch)
    assert buffer.take(now=11.0).marks == [run]
