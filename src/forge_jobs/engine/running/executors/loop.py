"""``async def`` handlers: long-lived slots on the job loop, each one task.

A slot serves one job after another without a new task, timer or context per job. It is replaced by
a fresh one whenever a job leaves something behind in it: a context variable, or a cancellation.
"""

import asyncio
import contextlib
import contextvars
from typing import TYPE_CHECKING, Any

from forge_jobs.engine.running.outcome import outcome_of_error, outcome_of_value
from forge_jobs.engine.running.run import Run

if TYPE_CHECKING:
    from forge_jobs.engine.claiming.local_queue import LocalQueue
    from forge_jobs.engine.running.in_flight import InFlightJobs


class Slot:
    """One long-lived task."""

    __slots__ = ("run", "source", "task", "waiter")

    def __init__(self, source: "LocalQueue") -> None:
        self.source = source
        self.run: Run | None = None
        self.task: asyncio.Task[Any] | None = None
        self.waiter: asyncio.Future[None] | None = None


class LoopExecutor:
    """All slots of the process. Slots are made when they are needed and then kept."""

    def __init__(self, in_flight: "InFlightJobs", loop: asyncio.AbstractEventLoop) -> None:
        self._in_flight = in_flight
        self._loop = loop
        self._baseline = contextvars.copy_context()
        self._parked: list[Slot] = []
        self._tasks: dict[Slot, asyncio.Task[Any]] = {}

    def wake(self, source: "LocalQueue") -> None:
        """Let a slot serve this lane; it holds one of the lane's units."""
        parked = self._parked
        if not parked:
            self._spawn(source)
            return
        slot = parked.pop()
        slot.source = source
        waiter = slot.waiter
        if waiter is not None:
            waiter.set_result(None)

    def interrupt(self, run: Run) -> None:
        """Cancel the coroutine of this run."""
        slot = run.slot
        if isinstance(slot, Slot) and slot.run is run and slot.task is not None:
            slot.task.cancel(run.stop_reason)

    async def close(self) -> None:
        """End all slots; a coroutine that refuses to end is left to the loop."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=0.2)

    def _spawn(self, source: "LocalQueue") -> None:
        slot = Slot(source)
        # A copy, so that what handlers set stays out of the worker's own context.
        context = self._baseline.copy()
        task = self._loop.create_task(self._serve(slot), name="forge-slot", context=context)
        if not task.done():
            slot.task = self._tasks[slot] = task

    async def _serve(self, slot: Slot) -> None:
        in_flight, mono = self._in_flight, self._in_flight.mono
        copy_context, baseline = contextvars.copy_context, self._baseline
        # An eager loop runs the first job before whoever made this task has it in hand.
        task = asyncio.current_task()
        assert task is not None
        slot.task = self._tasks[slot] = task
        try:
            while True:
                source = slot.source
                run = source.pull(mono())
                while run is not None:
                    slot.run = run
                    run.slot = slot
                    handler = run.handler
                    spoilt = False
                    try:
                        value = await handler.call(run.job.payload, run.make_context)
                    except BaseException as error:
                        slot.run = None
                        now = mono()
                        spoilt = not isinstance(error, Exception)
                        in_flight.concluded(run, outcome_of_error(handler, error), now)
                    else:
                        slot.run = None
                        now = mono()
                        if value is None and run.is_plain():
                            in_flight.done(run, now)
                        else:
                            in_flight.concluded(run, outcome_of_value(handler, value), now)
                    if spoilt or run.stop is not None or copy_context() != baseline:
                        self._retire(run, now)
                        return
                    if in_flight.strict:
                        source.free_unit(run, now)
                        break
                    run = source.pull(now)
                await self._park(slot)
        finally:
            self._tasks.pop(slot, None)

    async def _park(self, slot: Slot) -> None:
        slot.waiter = waiter = self._loop.create_future()
        self._parked.append(slot)
        try:
            await waiter
        finally:
            slot.waiter = None
            if not waiter.done() or waiter.cancelled():
                self._parked.remove(slot)

    def _retire(self, run: Run, now: float) -> None:
        # The slot's task ends; the next job gets a fresh one. Not from here: a coroutine that is
        # being closed by a dying loop must not start anything.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon(run.local_queue.free_unit, run, now)
