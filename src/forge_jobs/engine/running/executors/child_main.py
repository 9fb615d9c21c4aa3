"""The program of a child process: ``python -m forge_jobs.engine.running.executors.child_main``.

The main thread runs one job after the other; a second thread reads messages from the worker.
SIGTERM unwinds the handler, so that its ``finally`` blocks run, and ends the process.
"""

import asyncio
import faulthandler
import inspect
import logging
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from types import FrameType
from typing import Any, NoReturn, assert_never

from forge_jobs.config import DEFAULT_QUEUE
from forge_jobs.core import payload
from forge_jobs.core.declaration import undeclared, unrouted
from forge_jobs.core.errors import NotYet
from forge_jobs.core.instant import to_datetime
from forge_jobs.core.job import Enqueued, LogLine, NewJob
from forge_jobs.core.outcome import Dead, Failed
from forge_jobs.engine.running.context import MAX_LINE_CHARS, Context, JobInfo, RunEnvironment
from forge_jobs.engine.running.error_text import error_text
from forge_jobs.engine.running.outcome import outcome_of_error, outcome_of_value
from forge_jobs.engine.running.registry import Handler
from forge_jobs.engine.running.run import RunOutcome
from forge_jobs.engine.steps.handler_steps import HandlerSteps
from forge_jobs.kit import redact
from forge_jobs.kit.children.parent_link import BadLine, ParentLink
from forge_jobs.kit.clock import SYSTEM_CLOCK
from forge_jobs.kit.traceback_text import bounded, traceback_text

from .child_steps import ChildSteps
from .child_target import FoundHandler, find
from .child_wire import (
    ChildReady,
    RunLogged,
    RunReport,
    RunStarted,
    SetUp,
    StartRun,
    StepsReply,
    StopRun,
    decode_to_child,
    encode,
    finished_message,
)

_TERMINATED = 128 + signal.SIGTERM


class Terminated(BaseException):
    """Raised in the main thread by SIGTERM, wherever the handler is."""


class ChildJob:
    """One job in this child, and the link of its context to the worker."""

    def __init__(self, start: StartRun, parent: ParentLink) -> None:
        self.start = start
        self.successors: list[NewJob] = []
        self.stop_reason: str | None = None
        self.has_ended = False
        self.options = start.options
        self.started_at = SYSTEM_CLOCK.mono() - start.ran_s
        self.replies: queue.SimpleQueue[StepsReply] = queue.SimpleQueue()
        self._parent = parent
        self._found: FoundHandler | None = None
        self._steps: HandlerSteps | None = None

    def report(self, *, progress: float | None, note: str | None, line: LogLine | None) -> None:
        """Send progress or a log line to the worker, which writes it with its next exchange."""
        self._parent.send(encode(RunReport(self.start.number, progress, note, line)))

    def add_successor(self, job: NewJob) -> None:
        """Send it with the last message of this job."""
        self.successors.append(job)

    def handler_steps(self) -> HandlerSteps:
        """The steps of this run; the worker stores them."""
        if self._steps is None:
            app = None if self._found is None else self._found.application
            store = None if app is None else app.ready
            port = ChildSteps(
                self.start, self._parent.send, self.replies.get, store, lambda: self.has_ended
            )
            self._steps = HandlerSteps(port)
        return self._steps

    def payload_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        """The arguments of a restart."""
        assert self._found is not None
        return self._found.handler.payload_of(args, kwargs)

    def context(self, found: FoundHandler) -> Context:
        """The handler's context on this side of the pipe."""
        self._found = found
        start = self.start
        info = JobInfo(
            id=start.id,
            kind=start.kind,
            queue=start.queue,
            attempts=start.attempts,
            max_attempts=start.max_attempts,
            enqueued_at=to_datetime(start.enqueued_at),
            tags=start.tags,
            trace=start.trace,
        )
        app = found.application
        environment = RunEnvironment(
            host_id=lambda: start.host_id,
            tag=start.store_tag,
            clock=SYSTEM_CLOCK,
            enqueuer=_NoEnqueuer() if app is None else app.enqueuer,
            request=_request_to_default if app is None else app.request,
            limiter=None if app is None else app.limiter,
        )
        deadline: datetime | None = None
        if start.deadline_at is not None:
            deadline = to_datetime(start.deadline_at)
        return Context(info, self, environment, deadline=deadline)


class _NoEnqueuer:
    """For applications without a Forge object that can store jobs from a child process."""

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        raise _no_enqueue()

    async def aenqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        raise _no_enqueue()

    def prepare(self, job: NewJob) -> NewJob:
        return job


def _request_to_default(kind: str, value: Any) -> NewJob:
    job = NewJob(kind=kind, queue=DEFAULT_QUEUE, payload=payload.encode(value))
    return unrouted(undeclared(job))


def _no_enqueue() -> NotYet:
    return NotYet("ctx.enqueue needs the Forge object in a child process: use ctx.on_done instead")


class _WorkerHandler(logging.Handler):
    """Sends records to the worker, which knows how they are to be shown."""

    def __init__(self, send: Callable[[logging.LogRecord, str | None], None]) -> None:
        super().__init__()
        self._send = send
        self._formatter = logging.Formatter()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            trace = record.exc_text
            if record.exc_info:
                trace = bounded(redact.prose(self._formatter.formatException(record.exc_info)))
            self._send(record, trace)
        except Exception:
            self.handleError(record)


class ChildProgram:
    """Runs jobs for the worker until the worker closes the pipe."""

    def __init__(self, parent: ParentLink) -> None:
        self._parent = parent
        self._jobs: queue.SimpleQueue[ChildJob | None] = queue.SimpleQueue()
        self._current: ChildJob | None = None
        self._runner: asyncio.Runner | None = None

    def serve(self) -> None:
        """Run jobs until the command pipe ends."""
        listener = threading.Thread(target=self._listen, name="forge-commands", daemon=True)
        listener.start()
        while (job := self._jobs.get()) is not None:
            self._current = job
            self._parent.send(encode(RunStarted(job.start.number)))
            run_outcome = self._run(job)
            job.has_ended = True
            self._report(job, run_outcome)
            self._current = None

    def _report(self, job: ChildJob, run_outcome: RunOutcome) -> None:
        number = job.start.number
        try:
            self._parent.send(encode(finished_message(number, run_outcome, tuple(job.successors))))
        except BadLine as error:
            self._parent.send(
                encode(finished_message(number, RunOutcome(Dead(f"result: {error}")), ()))
            )

    def _listen(self) -> None:
        try:
            for line in self._parent.lines():
                command = decode_to_child(line)
                match command:
                    case SetUp(path=path):
                        sys.path[:] = path
                        self._log_to_worker(command)
                        self._parent.send(encode(ChildReady()))
                    case StartRun():
                        self._jobs.put(ChildJob(command, self._parent))
                    case StopRun(number=number, reason=reason):
                        job = self._current
                        if job is not None and job.start.number == number:
                            job.stop_reason = reason
                    case StepsReply(number=number):
                        job = self._current
                        if job is not None and job.start.number == number:
                            job.replies.put(command)
                    case _:
                        assert_never(command)
        finally:
            self._jobs.put(None)

    def _log_to_worker(self, set_up: SetUp) -> None:
        root = logging.getLogger()
        root.addHandler(_WorkerHandler(self._send_record))
        root.setLevel(set_up.log_level)
        logging.captureWarnings(set_up.logs_warnings)

    def _send_record(self, record: logging.LogRecord, trace: str | None) -> None:
        job = self._current
        if job is not None:
            message = RunLogged(
                job.start.number, record.name, record.levelno,
                record.getMessage()[:MAX_LINE_CHARS], trace,
            )  # fmt: skip
            self._parent.send(encode(message))

    def _run(self, job: ChildJob) -> RunOutcome:
        try:
            found = find(job.start.target)
        except Exception as error:
            failed = Failed(f"the child process cannot load the handler: {error_text(error)}")
            failed.traceback = traceback_text(error)
            return RunOutcome(failed)
        return self._outcome(found.handler, found, job)

    def _outcome(self, handler: Handler, found: FoundHandler, job: ChildJob) -> RunOutcome:
        try:
            value = handler.call(job.start.payload, lambda: job.context(found))
            if inspect.isawaitable(value):
                value = self._awaited(value)
            return outcome_of_value(handler, value)
        except Terminated:
            raise
        except BaseException as error:
            return outcome_of_error(handler, error)

    def _awaited(self, value: Any) -> Any:
        # One loop for all jobs of this child, as in the worker, so that clients stay connected.
        if self._runner is None:
            self._runner = asyncio.Runner()
        try:
            return self._runner.run(_awaiting(value))
        except Terminated:
            # Closing the runner unwinds the coroutines too.
            self._runner.close()
            raise


async def _awaiting(value: Any) -> Any:
    return await value


def main() -> NoReturn:
    """Serve the worker named on the command line until it closes the pipe."""
    parent = ParentLink.from_arguments(sys.argv[1:])
    del sys.argv[1:]
    # The worker also logs the lines of ctx.log; from here they would appear a second time.
    logging.getLogger("forge_jobs.job").propagate = False
    logging.getLogger("forge_jobs.job").addHandler(logging.NullHandler())
    # A segmentation fault prints its Python frames; the worker stores them with the job's error.
    faulthandler.enable()
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
