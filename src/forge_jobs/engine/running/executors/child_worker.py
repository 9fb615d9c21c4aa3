"""One warm child process of a worker that runs handlers of the application, one job at a time."""

import asyncio
import logging
import sys
from collections.abc import Callable
from typing import Final

from msgspec import DecodeError

from forge_jobs.core.instant import after
from forge_jobs.core.outcome import Crashed, Failed, Stopped
from forge_jobs.engine.running.run import MAX_LINES, Run, RunOutcome
from forge_jobs.kit.children.line_child import LineChild
from forge_jobs.kit.children.parent_link import BadLine
from forge_jobs.kit.children.process import ChildGone
from forge_jobs.kit.children.warm_child import ChildUnavailable, WarmChild

from .child_wire import (
    Halt,
    Over,
    Ready,
    Said,
    SetUp,
    Take,
    Taken,
    Target,
    ToWorker,
    decode_to_worker,
    encode,
    ending,
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


class ChildWorker(WarmChild):
    """A seat whose child is ``child_main``."""

    # A thread that outlived its job may go on speaking.
    allows_unsolicited_lines = True

    def __init__(self) -> None:
        super().__init__(self._print)
        self._run: Run | None = None
        self._printed = 0

    async def start_program(self, on_exit: Callable[[], None]) -> None:
        """Start the child and wait until it listens. NotUp when it does not come up."""
        # Unbuffered: what a handler printed before its child was killed is worth seeing.
        command = [sys.executable, "-u", "-m", PROGRAM]
        await self.start(
            lambda said, ended: LineChild.start(command, on_output=said, on_exit=ended),
            on_exit,
            is_ready=_is_ready,
            greeting=encode(SetUp(tuple(sys.path))),
        )

    async def work(self, run: Run) -> RunOutcome:
        """Run one job to its end. NotUp when the child had not even taken it."""
        number = self.jobs + 1
        self._run, self._printed = run, 0
        hearing = _JobConversation(run, number)
        try:
            return await self.request(encode(_take(run, number)), hearing.hear)
        except ChildGone as ended:
            if run.stop_reason is not None:
                return RunOutcome(Stopped(run.stop_reason))
            if not hearing.taken:
                raise ChildUnavailable(
                    f"a child process died before it took the job: {ended}"
                ) from None
            return RunOutcome(Crashed(f"child process died: {ended}"))
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
        """End the job by ending the child: a word, TERM to its group, KILL after a short grace."""
        if self._run is run:
            self.send_nowait(encode(Halt(self.jobs, run.stop_reason or "stopped")))
            await self.terminate(KILL_GRACE_S)

    def _print(self, line: str) -> None:
        run = self._run
        self._printed += 1
        if self._printed > MAX_LINES:
            if self._printed == MAX_LINES + 1:
                _LOG.warning("child %d prints more than %d lines: cut", self.pid, MAX_LINES)
            return
        extra = {} if run is None else {"kind": run.job.kind, "job_id": run.id}
        _LOG.info("child %d: %s", self.pid, line, extra=extra)


class _JobConversation:
    """Takes in what the child says about one job."""

    def __init__(self, run: Run, number: int) -> None:
        self.taken = False
        self._run = run
        self._number = number

    def hear(self, line: bytes) -> RunOutcome | None:
        message: ToWorker = decode_to_worker(line)
        if getattr(message, "number", self._number) != self._number:
            # Of a job before this one; nobody listens any more.
            return None
        match message:
            case Taken():
                self.taken = True
            case Said():
                _pass_on(self._run, message)
            case Over():
                for job in message.carried:
                    self._run.carry(job)
                return ending(message)
            case Ready():
                pass
        return None


def _is_ready(line: bytes) -> bool:
    try:
        return isinstance(decode_to_worker(line), Ready)
    except DecodeError:
        return False


def _take(run: Run, number: int) -> Take:
    job, around, target = run.job, run.host.around, run.handler.child
    assert target is not None
    now, mono = around.clock.now(), around.clock.mono()
    endless = run.deadline == float("inf")
    return Take(
        number=number,
        target=Target(target.module, target.file, target.kind),
        host_id=around.host_id,
        store_tag=around.tag,
        id=run.id,
        kind=job.kind,
        queue=job.queue,
        payload=job.payload,
        attempts=job.attempts,
        max_attempts=job.max_attempts,
        enqueued_at=job.enqueued_at,
        deadline_at=None if endless else after(now, run.deadline - mono),
        tags=job.tags,
        trace=job.trace,
    )


def _pass_on(run: Run, said: Said) -> None:
    run.say(progress=said.progress, note=said.note, line=said.line)
    if said.line is not None:
        extra = {
            "kind": run.job.kind,
            "queue": run.job.queue,
            "job_id": run.id,
            "attempts": run.job.attempts,
        }
        level = _LEVELS.get(said.line.level, logging.INFO)
        _JOB_LOG.log(level, "%s", said.line.message, extra=extra)
