"""One warm child process of a worker, with room for one job at a time."""

import asyncio
import logging
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from msgspec import DecodeError

from forge_jobs.core.instant import after
from forge_jobs.core.outcome import Crashed, Failed, Stopped
from forge_jobs.engine.run import LINES_MOST, Ending, Run
from forge_jobs.kit.child_lines import BadLine
from forge_jobs.kit.child_process import ChildGone, ChildProcess

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
PROGRAM: Final = "forge_jobs.engine.executors.child_main"
KILL_GRACE_S: Final = 2.0


class DiedBefore(Exception):
    """The child was gone before it took the job: no fault of the job."""


class ChildSeat:
    """A child that was started, listens, and has run ``jobs`` jobs."""

    def __init__(self) -> None:
        self.jobs = 0
        self._doomed = False
        self._child: ChildProcess | None = None
        self._run: Run | None = None
        self._printed = 0

    async def start(self, on_exit: Callable[[], None]) -> None:
        """Start the child and wait until it listens. DiedBefore when it does not come up."""
        # Unbuffered: what a handler printed before its child was killed is worth seeing.
        command = [sys.executable, "-u", "-m", PROGRAM]
        try:
            child = await ChildProcess.start(command, on_output=self._print, on_exit=on_exit)
        except OSError as error:
            raise DiedBefore(f"a child process cannot be started: {error}") from error
        self._child = child
        try:
            await child.send(encode(SetUp(tuple(sys.path))))
            first = await self._receive(child)
        except ChildGone:
            first = None
        if not isinstance(first, Ready):
            ended = await child.end(0)
            raise DiedBefore(f"a child process did not come up: {ended}")

    @property
    def alive(self) -> bool:
        """Whether the child can take a job."""
        return self._child is not None and self._child.exit is None and not self._doomed

    @property
    def pid(self) -> int:
        """The child's process id, 0 before it has one."""
        return 0 if self._child is None else self._child.pid

    async def work(self, run: Run) -> Ending:
        """Run one job to its end. DiedBefore when the child had not even taken it."""
        child = self._child
        assert child is not None
        self.jobs += 1
        self._run, self._printed = run, 0
        try:
            await child.send(encode(_take(run, self.jobs)))
            return await self._listen(child, run)
        except ChildGone:
            raise DiedBefore(f"a child process died while it was idle: {child.exit}") from None
        except (BadLine, DecodeError) as error:
            await child.end(0)
            return Ending(Failed(f"the child process broke its protocol and was killed: {error}"))
        finally:
            self._run = None

    async def halt(self, run: Run) -> None:
        """End the job by ending the child: a word, TERM to its group, KILL after a short grace."""
        child = self._child
        if child is None or self._run is not run:
            return
        # From here on it must not be given another job, even if this one ends before the kill.
        self._doomed = True
        with suppress(ChildGone):
            child.post(encode(Halt(self.jobs, run.stop_reason or "stopped")))
            await child.end(KILL_GRACE_S)

    async def dismiss(self) -> None:
        """Let an idle child end by itself; insist if it does not."""
        child = self._child
        if child is None:
            return
        child.dismiss()
        try:
            async with asyncio.timeout(KILL_GRACE_S):
                await child.wait()
        except TimeoutError:
            await child.end(0)

    async def kill(self) -> None:
        """End the child at once with everything it started."""
        if self._child is not None:
            await self._child.end(0)

    async def _listen(self, child: ChildProcess, run: Run) -> Ending:
        taken = False
        while (message := await self._receive(child)) is not None:
            if getattr(message, "number", self.jobs) != self.jobs:
                # A thread that outlived its job still speaks; nobody listens.
                continue
            match message:
                case Taken():
                    taken = True
                case Said():
                    _pass_on(run, message)
                case Over():
                    for job in message.carried:
                        run.carry(job)
                    return ending(message)
                case Ready():
                    pass
        ended = await child.wait()
        if run.stop_reason is not None:
            return Ending(Stopped(run.stop_reason))
        if not taken:
            raise DiedBefore(f"a child process died before it took the job: {ended}")
        return Ending(Crashed(f"child process died: {ended}"))

    async def _receive(self, child: ChildProcess) -> ToWorker | None:
        line = await child.receive()
        return None if line is None else decode_to_worker(line)

    def _print(self, line: str) -> None:
        run = self._run
        self._printed += 1
        if self._printed > LINES_MOST:
            if self._printed == LINES_MOST + 1:
                _LOG.warning("child %d prints more than %d lines: cut", self.pid, LINES_MOST)
            return
        extra = {} if run is None else {"kind": run.job.kind, "job_id": run.id}
        _LOG.info("child %d: %s", self.pid, line, extra=extra)


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
