"""The steps of a handler in a child process: the child asks, its worker stores."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from forge_jobs.core.errors import BadStep, ForgeError, LeaseLost
from forge_jobs.core.events import Wait
from forge_jobs.core.instant import SECOND, Instant
from forge_jobs.core.job import Claim
from forge_jobs.core.steps import MAX_STEPS, StepRecord, StepWrite
from forge_jobs.engine.running.error_text import error_text
from forge_jobs.engine.running.run import Run
from forge_jobs.engine.steps.run_steps import RunSteps, run_has_ended
from forge_jobs.engine.steps.step_outcome import run_steps_of
from forge_jobs.engine.steps.thread_steps import other_thread
from forge_jobs.kit.clock import SYSTEM_CLOCK
from forge_jobs.store.store import Store

from .child_wire import AskSteps, StartRun, StepsPark, StepsReply, encode


class ChildSteps:
    """The ``StepPort`` in the child, whose main thread runs the handler. It blocks; a coroutine
    that runs alone in a child may use it too. ``tx=`` uses the application's store in this
    process. ``has_ended``: whether the handler has returned."""

    allows_sync = True
    allows_async = True
    takes_no_time = False

    def __init__(
        self,
        start: StartRun,
        send: Callable[[bytes], object],
        receive: Callable[[], StepsReply],
        store: Callable[[], Store] | None,
        has_ended: Callable[[], bool],
    ) -> None:
        self._start = start
        self._has_ended = has_ended
        self._send = send
        self._receive = receive
        self._store = store
        self._began_at = SYSTEM_CLOCK.mono()
        self._count = 0
        self._questions = 0
        self._has_uncommitted = False
        self.claim = Claim(start.key, start.epoch)
        self.job_id = start.id
        self.enqueued_at = start.enqueued_at

    def check_caller(self) -> None:
        """As the port says."""
        if self._has_ended():
            raise run_has_ended(self.job_id)
        if threading.current_thread() is not threading.main_thread():
            raise other_thread()

    def now(self) -> Instant:
        """As the port says."""
        return self._start.store_now + int((SYSTEM_CLOCK.mono() - self._began_at) * SECOND)

    def count(self) -> int:
        """As the port says."""
        return self._ask().count

    def check_room(self, name: str, size: int) -> None:
        """As the port says; the worker checks again when it stores the step."""
        if self._count >= MAX_STEPS:
            self._ask(room=(name, size))

    async def find(self, name: str) -> StepRecord | None:
        """As the port says."""
        return self._ask(find=name).record

    async def store(self, step: StepWrite) -> StepRecord | None:
        """As the port says."""
        return self._ask(store=step).record

    async def check_wait(self, wait: Wait) -> StepRecord | None:
        """As the port says."""
        return self._ask(wait=wait).record

    async def sleep_is_over(self, instant: Instant) -> bool:
        """As the port says."""
        return self._ask(over=instant).is_so

    def park(
        self, wait: Wait | None, wake_at: Instant | None, steps: tuple[StepWrite, ...], where: str
    ) -> None:
        """As the port says."""
        self._ask(park=StepsPark(where, wait, wake_at, steps))

    async def store_in(self, transaction: object, step: StepWrite, shown: str) -> None:
        """As the port says."""
        if self._store is None:
            raise BadStep(f"step {shown!r}: tx= needs the Forge object in the child process")
        self._store().store_step_in(transaction, self._start.owner, step)
        self._has_uncommitted = True
        self._ask(stored_in=(step, shown))

    async def check_committed(self) -> None:
        """As the port says."""
        if self._has_uncommitted:
            self._ask(committed=True)
            self._has_uncommitted = False

    async def pause(self, seconds: float) -> None:
        """As the port says."""
        SYSTEM_CLOCK.pause(seconds)

    def retry_later(self, error: BaseException, delay_s: float) -> None:
        """As the port says."""
        self._ask(retry=(error_text(error), delay_s))

    def warn(self, text: str) -> None:
        """As the port says."""
        self._ask(warning=text)

    def _ask(self, **what: Any) -> StepsReply:
        self._questions += 1
        question = self._questions
        self._send(encode(AskSteps(self._start.number, question, **what)))
        reply = self._receive()
        while reply.question != question:
            # A signal handler raised while that answer was waited for.
            reply = self._receive()
        if reply.error is not None:
            raise (LeaseLost if reply.is_lost else BadStep)(reply.error)
        self._count = reply.count
        return reply


_answering: set["asyncio.Task[None]"] = set()


def answer_steps(run: Run, ask: AskSteps, send: Callable[[bytes], object]) -> None:
    """In the worker: do what the child asks, and answer it."""
    task = asyncio.get_running_loop().create_task(_answer(run, ask, send))
    _answering.add(task)
    task.add_done_callback(_answering.discard)


async def _answer(run: Run, ask: AskSteps, send: Callable[[bytes], object]) -> None:
    try:
        reply = await _reply(run_steps_of(run), ask)
    except ForgeError as error:
        is_lost = isinstance(error, LeaseLost)
        reply = StepsReply(ask.number, ask.question, error=str(error), is_lost=is_lost)
    except Exception as error:
        reply = StepsReply(ask.number, ask.question, error=error_text(error))
    send(encode(reply))


async def _reply(steps: RunSteps, ask: AskSteps) -> StepsReply:
    record, is_so = None, False
    if ask.find is not None:
        record = await steps.find(ask.find)
    elif ask.store is not None:
        steps.check_room(ask.store.name, len(ask.store.value or b""))
        record = await steps.store(ask.store)
    elif ask.wait is not None:
        record = await steps.check_wait(ask.wait)
    elif ask.over is not None:
        is_so = await steps.sleep_is_over(ask.over)
    elif ask.park is not None:
        park = ask.park
        steps.park(park.wait, park.wake_at, park.steps, park.where)
    elif ask.stored_in is not None:
        steps.stored_in(*ask.stored_in)
    elif ask.room is not None:
        steps.check_room(*ask.room)
    elif ask.retry is not None:
        steps.retry_delay = ask.retry
    elif ask.warning is not None:
        steps.warn(ask.warning)
    elif ask.committed:
        await steps.check_committed()
    return StepsReply(ask.number, ask.question, record, is_so, steps.count())
