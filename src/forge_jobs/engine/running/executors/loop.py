"""Runs ``async def`` handlers in long-lived slot tasks on the job loop.

A slot task runs one job after another without a new task, timer or context per job. It is replaced
when a job leaves something behind in it: a context variable, or a cancellation.
"""

import asyncio
import contextlib
import contextvars
from typing import TYPE_CHECKING, Any

from forge_jobs.engine.running.outcome import outcome_of_error, outcome_of_value
from forge_jobs.engine.running.run import Run
from forge_jobs.kit.log import field_source

if TYPE_CHECKING:
    from forge_jobs.engine.claiming.local_queue import LocalQueue
    from forge_jobs.engine.running.in_flight import InFlightJobs


class SlotTask:
    """One long-lived task and the local queue it serves.

    ``context`` is a copy of the task's context before its first job. The task's context holds the
    slot as the source of log fields, so that records of all its jobs are known by ``run``.
    """

    __slots__ = ("context", "local_queue", "run", "task", "waiter")

    def __init__(self, local_queue: "LocalQueue") -> None:
        self.local_queue = local_queue
        self.run: Run | None = None
        self.task: asyncio.Task[Any] | None = None
        self.waiter: asyncio.Future[None] | None = None
        self.context = contextvars.Context()

    def log_fields(self) -> dict[str, object] | None:
        """The fields of records that are logged in this task or in tasks that it started."""
        run = self.run
        return None if run is None else run.log_fields()


class LoopExecutor:
    """All slot tasks of the process. They are made when they are needed and then reused."""

    def __init__(self, in_flight: "InFlightJobs", loop: asyncio.AbstractEventLoop) -> None:
        self._in_flight = in_flight
        self._loop = loop
        self._baseline = contextvars.copy_context()
        self._idle: list[SlotTask] = []
        self._tasks: dict[SlotTask, asyncio.Task[Any]] = {}

    def wake(self, local_queue: "LocalQueue") -> None:
        """Make a slot task pull from this local queue; the caller has counted its slot as busy."""
        idle = self._idle
        if not idle:
            self._spawn(local_queue)
            return
        slot = idle.pop()
        slot.local_queue = local_queue
        waiter = slot.waiter
        if waiter is not None:
            waiter.set_result(None)

    def interrupt(self, run: Run) -> None:
        """Cancel the coroutine of this run."""
        slot = run.slot_task
        if isinstance(slot, SlotTask) and slot.run is run and slot.task is not None:
            slot.task.cancel(run.stop_reason)

    async def close(self) -> None:
        """Cancel all slot tasks; a coroutine that refuses to end is left to the loop."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=0.2)

    def _spawn(self, local_queue: "LocalQueue") -> None:
        slot = SlotTask(local_queue)
        # A copy, so that context variables set by handlers stay out of the worker's own context.
        context = self._baseline.copy()
        context.run(field_source.set, slot)
        slot.context = context.copy()
        task = self._loop.create_task(self._serve(slot), name="forge-slot", context=context)
        if not task.done():
            slot.task = self._tasks[slot] = task

    async def _serve(self, slot: SlotTask) -> None:
        in_flight, mono = self._in_flight, self._in_flight.mono
        copy_context, baseline = contextvars.copy_context, slot.context
        # With eager tasks the first job runs before create_task returns the task.
        task = asyncio.current_task()
        assert task is not None
        slot.task = self._tasks[slot] = task
        try:
            while True:
                local_queue = slot.local_queue
                run = local_queue.pull(mono())
                while run is not None:
                    slot.run = run
                    run.slot_task = slot
                    handler = run.handler
                    is_spoilt = False
                    try:
                        value = await handler.call(run.job.payload, run.make_context)
                    except BaseException as error:
                        slot.run = None
                        now = mono()
                        is_spoilt = not isinstance(error, Exception)
                        in_flight.finish_started(run, outcome_of_error(handler, error), now)
                    else:
                        slot.run = None
                        now = mono()
                        if value is None and run.is_plain():
                            in_flight.done(run, now)
                        else:
                            in_flight.finish_started(run, outcome_of_value(handler, value), now)
                    if is_spoilt or run.stop is not None or copy_context() != baseline:
                        self._retire(run, now)
                        return
                    if in_flight.strict:
                        local_queue.free_slot(run, now)
                        break
                    run = local_queue.pull(now)
                await self._wait_for_wake(slot)
        finally:
            self._tasks.pop(slot, None)

    async def _wait_for_wake(self, slot: SlotTask) -> None:
        slot.waiter = waiter = self._loop.create_future()
        self._idle.append(slot)
        try:
            await waiter
        finally:
            slot.waiter = None
            if not waiter.done() or waiter.cancelled():
                self._idle.remove(slot)

    def _retire(self, run: Run, now: float) -> None:
        # This task ends and the next job gets a fresh one, but not from here: a coroutine that is
        # being closed by a closing loop must not start anything.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon(run.local_queue.free_slot, run, now)
