"""The program of a child process: ``python -m forge_jobs.engine.running.executors.child_main``.

The main thread runs one job after the other; a thread listens to the worker. SIGTERM unwinds the
handler, so that its ``finally`` blocks run, and ends the process.
"""

import asyncio
import inspect
import logging
import os
import queue
import signal
import sys
import threading
from collections.abc import Sequence
from datetime import datetime
from types import FrameType
from typing import Any, NoReturn, assert_never

from forge_jobs.config import DEFAULT_QUEUE
from forge_jobs.core import payload
from forge_jobs.core.errors import NotYet
from forge_jobs.core.instant import to_datetime
from forge_jobs.core.job import Enqueued, LogLine, NewJob
from forge_jobs.core.outcome import Dead, Failed
from forge_jobs.engine.running.context import Context, JobInfo, RunEnvironment
from forge_jobs.engine.running.error_text import error_text
from forge_jobs.engine.running.outcome import outcome_of_error, outcome_of_value
from forge_jobs.engine.running.registry import Handler
from forge_jobs.engine.running.run import RunOutcome
from forge_jobs.kit.children.parent_link import BadLine, ParentLink
from forge_jobs.kit.clock import SYSTEM_CLOCK

from .child_target import Found, find
from .child_wire import Halt, Ready, Said, SetUp, Take, Taken, decode_to_child, encode, over

_TERMINATED = 128 + signal.SIGTERM


class Terminated(BaseException):
    """SIGTERM arrived; raised in the main thread, wherever the handler is."""


class ChildJob:
    """One job in this child; the link of its context."""

    def __init__(self, take: Take, parent: ParentLink) -> None:
        self.take = take
        self.carried: list[NewJob] = []
        self.stop_reason: str | None = None
        self._parent = parent

    def say(self, *, progress: float | None, note: str | None, line: LogLine | None) -> None:
        """Send it to the worker, which writes it with its next exchange."""
        self._parent.send(encode(Said(self.take.number, progress, note, line)))

    def carry(self, job: NewJob) -> None:
        """Keep it for the last message."""
        self.carried.append(job)

    def context(self, found: Found) -> Context:
        """The handler's context on this side of the pipe."""
        take = self.take
        info = JobInfo(
            id=take.id,
            kind=take.kind,
            queue=take.queue,
            attempts=take.attempts,
            max_attempts=take.max_attempts,
            enqueued_at=to_datetime(take.enqueued_at),
            tags=take.tags,
            trace=take.trace,
        )
        app = found.application
        around = RunEnvironment(
            host_id=take.host_id,
            tag=take.store_tag,
            clock=SYSTEM_CLOCK,
            enqueuer=_NoEnqueuer() if app is None else app.enqueuer,
            request=_request_to_default if app is None else app.request,
            limiter=None if app is None else app.limiter,
        )
        deadline: datetime | None = None
        if take.deadline_at is not None:
            deadline = to_datetime(take.deadline_at)
        return Context(info, self, around, deadline=deadline)


class _NoEnqueuer:
    """Where the application offers no way to store jobs from here."""

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        raise _no_enqueue()

    async def aenqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        raise _no_enqueue()

    def prepare(self, job: NewJob) -> NewJob:
        return job


def _request_to_default(kind: str, value: Any) -> NewJob:
    return NewJob(kind=kind, queue=DEFAULT_QUEUE, payload=payload.encode(value))


def _no_enqueue() -> NotYet:
    return NotYet("ctx.enqueue needs the Forge object in a child process: use ctx.on_done instead")


class ChildProgram:
    """Takes jobs from the worker and runs them, until the worker wants no more."""

    def __init__(self, parent: ParentLink) -> None:
        self._parent = parent
        self._jobs: queue.SimpleQueue[ChildJob | None] = queue.SimpleQueue()
        self._current: ChildJob | None = None
        self._runner: asyncio.Runner | None = None

    def serve(self) -> None:
        """Until the command pipe ends."""
        listener = threading.Thread(target=self._listen, name="forge-commands", daemon=True)
        listener.start()
        while (job := self._jobs.get()) is not None:
            self._current = job
            self._parent.send(encode(Taken(job.take.number)))
            self._report(job, self._run(job))
            self._current = None

    def _report(self, job: ChildJob, ending: RunOutcome) -> None:
        number = job.take.number
        try:
            self._parent.send(encode(over(number, ending, tuple(job.carried))))
        except BadLine as error:
            self._parent.send(encode(over(number, RunOutcome(Dead(f"result: {error}")), ())))

    def _listen(self) -> None:
        try:
            for line in self._parent.lines():
                command = decode_to_child(line)
                match command:
                    case SetUp(path=path):
                        sys.path[:] = path
                        self._parent.send(encode(Ready()))
                    case Take():
                        self._jobs.put(ChildJob(command, self._parent))
                    case Halt(number=number, reason=reason):
                        job = self._current
                        if job is not None and job.take.number == number:
                            job.stop_reason = reason
                    case _:
                        assert_never(command)
        finally:
            self._jobs.put(None)

    def _run(self, job: ChildJob) -> RunOutcome:
        try:
            found = find(job.take.target)
        except Exception as error:
            return RunOutcome(
                Failed(f"the child process cannot load the handler: {error_text(error)}")
            )
        return self._judged(found.handler, found, job)

    def _judged(self, handler: Handler, found: Found, job: ChildJob) -> RunOutcome:
        try:
            value = handler.call(job.take.payload, lambda: job.context(found))
            if inspect.isawaitable(value):
                value = self._awaited(value)
            return outcome_of_value(handler, value)
        except Terminated:
            raise
        except BaseException as error:
            return outcome_of_error(handler, error)

    def _awaited(self, value: Any) -> Any:
        # One loop for all jobs of this child, as in the worker: clients may stay connected.
        if self._runner is None:
            self._runner = asyncio.Runner()
        try:
            return self._runner.run(_awaiting(value))
        except Terminated:
            # Lets the coroutines unwind as well.
            self._runner.close()
            raise


async def _awaiting(value: Any) -> Any:
    return await value


def main() -> NoReturn:
    """Talk to the worker named on the command line until it is done with this child."""
    parent = ParentLink.from_arguments(sys.argv[1:])
    del sys.argv[1:]
    # The worker writes what ctx.log says to its own log; here it would appear a second time.
    logging.getLogger("forge_jobs.job").propagate = False
    logging.getLogger("forge_jobs.job").addHandler(logging.NullHandler())
    signal.signal(signal.SIGTERM, _terminate)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    status = 0
    try:
        ChildProgram(parent).serve()
    except Terminated:
        status = _TERMINATED
    except BrokenPipeError:
        status = 1
    # Threads that handlers left behind must not keep a dismissed child alive.
    os._exit(status)


def _terminate(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Terminated


if __name__ == "__main__":
    main()
