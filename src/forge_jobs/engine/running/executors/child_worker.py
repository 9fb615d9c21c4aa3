"""One warm child process of a worker that runs handlers of the application, one job at a time."""

import asyncio
import logging
import sys
from collections import deque
from collections.abc import Callable
from typing import Final

from msgspec import DecodeError

from forge_jobs.core.instant import after
from forge_jobs.core.outcome import Crashed, Failed, Stopped
from forge_jobs.engine.running.run import MAX_LINES, Run, RunOutcome
from forge_jobs.kit import log
from forge_jobs.kit.children.line_child import LineChild
from forge_jobs.kit.children.parent_link import BadLine
from forge_jobs.kit.children.process import ChildGone
from forge_jobs.kit.children.warm_child import ChildUnavailable, WarmChild
from forge_jobs.kit.traceback_text import output_text

from .child_steps import answer_steps
from .child_wire import (
    AskSteps,
    ChildReady,
    RunFinished,
    RunLogged,
    RunReport,
    RunStarted,
    SetUp,
    StartRun,
    StopRun,
    Target,
    ToWorker,
    decode_to_worker,
    encode,
    outcome_of,
)

_LOG = logging.getLogger("forge_jobs.child")
_LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
_JOB_LOG = logging.getLogger("forge_jobs.job")
PROGRAM: Final = "forge_jobs.engine.running.executors.child_main"
KILL_GRACE_S: Final = 2.0
_LAST_LINES: Final = 100


class ChildWorker(WarmChild):
    """A warm child that runs ``child_main``."""

    # A thread that outlived its job may still send messages.
    allows_unsolicited_lines = True

    def __init__(self) -> None:
        super().__init__(self._print)
        self._run: Run | None = None
        self._printed = 0
        self._last_lines: deque[str] = deque(maxlen=_LAST_LINES)

    async def start_program(self, on_exit: Callable[[], None]) -> None:
        """Start the child and wait until it is ready, or raise ChildUnavailable."""
        # Unbuffered, so that output from before a kill is not lost.
        command = [sys.executable, "-u", "-m", PROGRAM]
        await self.start(
            lambda on_output, on_exit: LineChild.start(
                command, on_output=on_output, on_exit=on_exit
            ),
            on_exit,
            is_ready=_is_ready,
            setup_line=encode(_set_up()),
        )

    async def work(self, run: Run) -> RunOutcome:
        """Run one job. ChildUnavailable when the child died before it started the job."""
        number = self.jobs + 1
        self._run, self._printed = run, 0
        self._last_lines.clear()
        conversation = _JobConversation(run, number, self.send_nowait)
        try:
            return await self.request(encode(start_message(run, number)), conversation.receive)
        except ChildGone as gone:
            if run.stop_reason is not None:
                return RunOutcome(Stopped(run.stop_reason))
            if not conversation.is_started:
                raise ChildUnavailable(
                    f"a child process died before it started the job: {gone}"
                ) from None
            crashed = Crashed(f"child process died: {gone}")
            crashed.traceback = output_text("\n".join(self._last_lines))
            return RunOutcome(crashed)
        except (BadLine, DecodeError) as error:
            await self.kill()
            return RunOutcome(
                Failed(f"the child process broke its protocol and was killed: {error}")
            )
        except asyncio.CancelledError:
            await self.kill()
            raise
        finally:
            self._run = None

    async def halt(self, run: Run) -> None:
        """End the job by ending the child: a message, TERM to its group, then KILL."""
        if self._run is run:
            self.send_nowait(encode(StopRun(self.jobs, run.stop_reason or "stopped")))
            await self.terminate(KILL_GRACE_S)

    def _print(self, line: str) -> None:
        run = self._run
        self._printed += 1
        self._last_lines.append(line)
        if self._printed > MAX_LINES:
            if self._printed == MAX_LINES + 1:
                _LOG.warning("child %d prints more than %d lines: cut", self.pid, MAX_LINES)
            return
        extra = {} if run is None else {"kind": run.job.kind, "job_id": run.id}
        _LOG.info("child %d: %s", self.pid, line, extra=extra)


class _JobConversation:
    """Handles the messages of a child about one job."""

    def __init__(self, run: Run, number: int, send: Callable[[bytes], object]) -> None:
        self._send = send
        self.is_started = False
        self._run = run
        self._number = number
        self._logged = 0

    def _log(self, message: RunLogged) -> None:
        """Handle a record of the child as if it had been logged here."""
        self._logged += 1
        if self._logged <= MAX_LINES:
            logger = logging.getLogger(message.logger)
            fields = self._run.log_fields()
            log.log_with_traceback(logger, message.level, message.message, fields, message.trace)

    def receive(self, line: bytes) -> RunOutcome | None:
        message: ToWorker = decode_to_worker(line)
        if getattr(message, "number", self._number) != self._number:
            # About an earlier job of this child: ignored.
            return None
        match message:
            case RunStarted():
                self.is_started = True
            case RunReport():
                _apply_report(self._run, message)
            case RunLogged():
                self._log(message)
            case AskSteps():
                answer_steps(self._run, message, self._send)
            case RunFinished():
                for job in message.successors:
                    self._run.add_successor(job)
                return outcome_of(message)
            case ChildReady():
                pass
        return None


def _set_up() -> SetUp:
    level = logging.getLogger().getEffectiveLevel()
    return SetUp(tuple(sys.path), log_level=level, logs_warnings=log.is_configured())


def _is_ready(line: bytes) -> bool:
    try:
        return isinstance(decode_to_worker(line), ChildReady)
    except DecodeError:
        return False


def start_message(run: Run, number: int) -> StartRun:
    """The message that starts this run in a child."""
    job, environment, target = run.job, run.in_flight.environment, run.handler.child
    assert target is not None
    now, mono = environment.clock.now(), environment.clock.mono()
    has_no_deadline = run.deadline == float("inf")
    return StartRun(
        number=number,
        target=Target(target.module, target.file, target.kind),
        host_id=environment.host_id(),
        store_tag=environment.tag,
        id=run.id,
        kind=job.kind,
        queue=job.queue,
        payload=job.payload,
        attempts=job.attempts,
        max_attempts=job.max_attempts,
        enqueued_at=job.enqueued_at,
        deadline_at=None if has_no_deadline else after(now, run.deadline - mono),
        ran_s=mono - run.started_at,
        tags=job.tags,
        trace=job.trace,
        options=run.options,
        key=job.key,
        epoch=job.epoch,
        owner=run.in_flight.steps.owner(),
        store_now=run.in_flight.steps.store_time.now(),
    )


def _apply_report(run: Run, report: RunReport) -> None:
    run.report(progress=report.progress, note=report.note, line=report.line)
    if report.line is not None:
        extra = {
            "kind": run.job.kind,
            "queue": run.job.queue,
            "job_id": run.id,
            "attempts": run.job.attempts,
        }
        level = _LEVELS.get(report.line.level, logging.INFO)
        _JOB_LOG.log(level, "%s", report.line.message, extra=extra)
