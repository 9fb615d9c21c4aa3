"""The steps of a ``def`` handler, which runs in a thread of its worker process."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from forge_jobs.core.errors import BadStep, LeaseLost
from forge_jobs.core.events import Wait
from forge_jobs.core.instant import Instant
from forge_jobs.core.steps import StepRecord, StepWrite
from forge_jobs.kit.thread_result import ThreadResult

from .run_steps import RunSteps

T = TypeVar("T")
_LOOK_S: Final = 1.0
_SLICE_S: Final = 0.25


class ThreadSteps:
    """The ``StepPort`` of a handler in a thread: it blocks while the job loop does the work."""

    allows_sync = True
    allows_async = False
    takes_no_time = False

    def __init__(self, steps: RunSteps) -> None:
        self._steps = steps
        self._thread = threading.get_ident()
        self.claim = steps.claim
        self.job_id = steps.job_id
        self.enqueued_at = steps.enqueued_at
        self.now = steps.now
        self.count = steps.count
        self.check_room = steps.check_room
        self.park = steps.park
        self.retry_later = steps.retry_later
        self.warn = steps.warn

    def check_caller(self) -> None:
        """As the port says."""
        self._steps.check_running()
        if threading.get_ident() != self._thread:
            raise other_thread()

    async def find(self, name: str) -> StepRecord | None:
        """As the port says."""
        is_known, record = self._steps.history.known(name)
        return record if is_known else self._on_loop(self._steps.find, name)

    async def store(self, step: StepWrite) -> StepRecord | None:
        """As the port says."""
        return self._on_loop(self._steps.store, step)

    async def check_wait(self, wait: Wait) -> StepRecord | None:
        """As the port says."""
        return self._on_loop(self._steps.check_wait, wait)

    async def sleep_is_over(self, instant: Instant) -> bool:
        """As the port says."""
        return self._on_loop(self._steps.sleep_is_over, instant)

    async def store_in(self, transaction: object, step: StepWrite, shown: str) -> None:
        """As the port says."""
        around = self._steps.around
        try:
            around.store.store_step_in(transaction, around.owner(), step)
        except LeaseLost:
            around.job_loop.post(around.lose, self._steps.run)
            raise
        self._steps.stored_in(step, shown)

    async def check_committed(self) -> None:
        """As the port says."""
        if self._steps.uncommitted:
            self._on_loop(self._steps.check_committed)

    async def pause(self, seconds: float) -> None:
        """As the port says; a handler that was told to end is told here."""
        clock = self._steps.around.clock
        end = clock.mono() + seconds
        while (left := end - clock.mono()) > 0 and self._steps.run.stop is None:
            clock.pause(min(left, _SLICE_S))

    def _on_loop(self, work: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> T:
        """Run a coroutine function on the job loop and block until it has ended."""
        reply, job_loop = ThreadResult[T](), self._steps.around.job_loop
        job_loop.post(_start, work, args, reply)
        while not reply.wait(_LOOK_S):
            if job_loop.loop.is_closed():
                raise LeaseLost("this worker has stopped")
        return reply.result()


def other_thread() -> BadStep:
    """The error of a call in another thread than the handler's."""
    return BadStep(
        "the steps of a run belong to one thread: call ctx.step_sync, ctx.sleep_sync and "
        "ctx.wait_for_sync in the handler's own"
    )


_running: set["asyncio.Task[Any]"] = set()


def _start(
    work: Callable[..., Coroutine[Any, Any, Any]], args: tuple[Any, ...], reply: ThreadResult[Any]
) -> None:
    task = asyncio.get_running_loop().create_task(_answer(work, args, reply))
    _running.add(task)
    task.add_done_callback(_running.discard)


async def _answer(
    work: Callable[..., Coroutine[Any, Any, Any]], args: tuple[Any, ...], reply: ThreadResult[Any]
) -> None:
    try:
        value = await work(*args)
    except asyncio.CancelledError:
        reply.set_exception(LeaseLost("this worker has stopped"))
        raise
    except BaseException as error:
        reply.set_exception(error)
    else:
        reply.set_result(value)
