"""``LineChild``: a child process with a line protocol over pipes.

Our own programs (``LineChild.start``) get private pipes, named in their last argument, and open
them with ``parent_link``. Their standard output and error go to ``on_output`` line by line. Any
other program (``LineChild.start_guarded``) uses its standard input and output for the protocol and
runs under a guard; only its standard error goes to ``on_output``.

This module does not interpret the lines.
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
    """A child that sends and receives lines. Create it with ``start`` or ``start_guarded``."""

    _lines: LineStream
    _line_limit: int
    _shutdown_line: bytes

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
        """Start one of our programs, with the descriptors as its last argument. Raises OSError if
        it cannot be started."""
        process, ends = _spawn(command, env, cwd)
        child = cls(process, ends.lifeline, on_exit=on_exit)
        child._lines, child._line_limit = LineStream(line_limit), line_limit
        child._shutdown_line = SHUTDOWN_LINE + b"\n"
        streams = [(ends.messages, child._lines), (ends.output, TextLineStream(on_output))]
        return await child.connect(streams, ends.commands)

    @classmethod
    async def start_guarded(
        cls,
        spec: CommandSpec,
        *,
        on_output: OnOutput,
        on_exit: OnExit | None = None,
        line_limit: int = MAX_LINE_BYTES,
    ) -> "LineChild":
        """Start any program under a guard. Raises OSError if it cannot be started."""
        started = spawn_guarded(spec, stdin=True)
        report = GuardReport()
        child = cls(started.process, started.control, guard=report, on_exit=on_exit)
        child._lines, child._line_limit = LineStream(line_limit), line_limit
        child._shutdown_line = b""
        return await child.connect(
            [
                (started.report, report),
                (started.stdout, child._lines),
                (started.stderr, TextLineStream(on_output)),
            ],
            started.stdin,
        )

    @property
    def has_unread(self) -> bool:
        """Whether the child has sent data that ``receive`` has not returned yet."""
        return self._lines.has_unread

    async def send(self, line: bytes, *, limit: int | None = None) -> None:
        """Send one line; waits while the pipe is full. Raises ChildGone if the child is dead."""
        self.send_nowait(line, limit=limit)
        await self._input.wait_writable()
        if self._input.lost:
            raise ChildGone(str(self.exit or "its pipe is closed"))

    def send_nowait(self, line: bytes, *, limit: int | None = None) -> None:
        """``send`` without back-pressure, for a short line that must not wait."""
        writer = self._writer
        if writer is None or writer.is_closing() or self._ended.done():
            raise ChildGone(str(self.exit or "closed"))
        writer.write(checked_line(line, limit or self._line_limit))

    async def receive(self) -> bytes | None:
        """The next line of the child; None at end of file. Raises BadLine for a line over the
        limit; the child cannot be used after that."""
        return await self._lines.next()

    def close_input(self) -> None:
        """Send the shutdown line and close the pipe, at which an idle child exits."""
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(self._shutdown_line)
            self._writer.close()

    async def shut_down(self, timeout_s: float) -> None:
        """Close the input of an idle child and wait until it exits; kill it after ``timeout_s``."""
        self.close_input()
        try:
            async with asyncio.timeout(timeout_s):
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
    child_ends = (commands_r, messages_w, lifeline_r)
    parent_ends = _ParentEnds(commands_w, messages_r, lifeline_w, output_r)
    try:
        process = subprocess.Popen(
            [*command, PIPES_OPTION + ",".join(map(str, child_ends))],
            stdin=subprocess.DEVNULL, stdout=output_w, stderr=output_w,
            close_fds=True, pass_fds=child_ends, start_new_session=True, env=env, cwd=cwd,
        )  # fmt: skip
    except BaseException:
        for descriptor in parent_ends:
            os.close(descriptor)
        raise
    finally:
        for descriptor in (*child_ends, output_w):
            os.close(descriptor)
    return process, parent_ends
