"""Warm child processes that speak in lines: one of our own programs, or any program at all.

Our own programs (``LineChild.start``) get private pipes, named in their last argument, and find
their end of them in ``child_lines``; what they print is handed to ``on_output`` line by line. Any
other program (``LineChild.start_guarded``) speaks over its standard input and output, runs under
a guard, and only its standard error is printed.

Nothing here knows what the lines say.
"""

import asyncio
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from .guard import CommandSpec, GuardReport, spawn_guarded
from .parent_link import MAX_LINE_BYTES, PIPES_OPTION, SHUTDOWN_LINE, checked_line
from .process import ChildGone, ChildProcess
from .streams import LineStream, TextLineStream

OnOutput = Callable[[str], None]
OnExit = Callable[[], None]


class LineChild(ChildProcess):
    """A child that takes and gives lines. Make it with ``start`` or ``start_guarded``."""

    _lines: LineStream
    _line_limit: int
    _farewell: bytes

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        *,
        on_output: OnOutput,
        on_exit: OnExit | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        line_limit: int = MAX_LINE_BYTES,
    ) -> "LineChild":
        """Start one of our programs with the descriptors added as its last argument. OSError when
        it cannot be started."""
        process, ends = _spawn(command, env, cwd)
        child = cls(process, ends.lifeline, on_exit=on_exit)
        child._lines, child._line_limit = LineStream(line_limit), line_limit
        child._farewell = SHUTDOWN_LINE + b"\n"
        streams = [(ends.messages, child._lines), (ends.output, TextLineStream(on_output))]
        return await child.connect(streams, ends.commands)

    @classmethod
    async def start_guarded(
        cls,
        plan: CommandSpec,
        *,
        on_output: OnOutput,
        on_exit: OnExit | None = None,
        line_limit: int = MAX_LINE_BYTES,
    ) -> "LineChild":
        """Start any program under a guard. OSError when it cannot be started."""
        made = spawn_guarded(plan, stdin=True)
        report = GuardReport()
        child = cls(made.process, made.control, guard=report, on_exit=on_exit)
        child._lines, child._line_limit = LineStream(line_limit), line_limit
        child._farewell = b""
        return await child.connect(
            [
                (made.report, report),
                (made.stdout, child._lines),
                (made.stderr, TextLineStream(on_output)),
            ],
            made.stdin,
        )

    @property
    def has_unread(self) -> bool:
        """Whether it said something that nobody has taken yet."""
        return self._lines.has_unread

    async def send(self, line: bytes, *, limit: int | None = None) -> None:
        """Hand one line to the child; waits while its pipe is full. ChildGone when it is dead."""
        self.send_nowait(line, limit=limit)
        await self._room.wait()
        if self._room.lost:
            raise ChildGone(str(self.exit or "its pipe is closed"))

    def send_nowait(self, line: bytes, *, limit: int | None = None) -> None:
        """Like ``send`` without the waiting, for a short word that must not be held up."""
        writer = self._writer
        if writer is None or writer.is_closing() or self._ended.done():
            raise ChildGone(str(self.exit or "closed"))
        writer.write(checked_line(line, limit or self._line_limit))

    async def receive(self) -> bytes | None:
        """The next line of the child; None when there will be none. BadLine beyond the limit:
        the child is of no use after that."""
        return await self._lines.next()

    def close_input(self) -> None:
        """No more lines: an idle child ends by itself when it sees this."""
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(self._farewell)
            self._writer.close()

    async def shut_down(self, patience_s: float) -> None:
        """Let an idle child end by itself; insist if it does not."""
        self.close_input()
        try:
            async with asyncio.timeout(patience_s):
                await self.wait()
        except TimeoutError:
            await self.terminate(0)


class _ParentEnds(NamedTuple):
    """The parent's ends of the pipes."""

    commands: int
    messages: int
    lifeline: int
    output: int


def _spawn(
    command: Sequence[str], env: Mapping[str, str] | None, cwd: str | None
) -> "tuple[subprocess.Popen[bytes], _ParentEnds]":
    commands_r, commands_w = os.pipe()
    messages_r, messages_w = os.pipe()
    lifeline_r, lifeline_w = os.pipe()
    output_r, output_w = os.pipe()
    theirs = (commands_r, messages_w, lifeline_r)
    ours = _ParentEnds(commands_w, messages_r, lifeline_w, output_r)
    try:
        process = subprocess.Popen(
            [*command, PIPES_OPTION + ",".join(map(str, theirs))],
            stdin=subprocess.DEVNULL, stdout=output_w, stderr=output_w,
            close_fds=True, pass_fds=theirs, start_new_session=True, env=env, cwd=cwd,
        )  # fmt: skip
    except BaseException:
        for descriptor in ours:
            os.close(descriptor)
        raise
    finally:
        for descriptor in (*theirs, output_w):
            os.close(descriptor)
    return process, ours
