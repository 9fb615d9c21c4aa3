"""``ParentLink``: the child's side of the line protocol, and the lifeline that kills the child with
its parent.

The parent passes three private descriptors in one argument, ``--pipes=R,W,L``: the child reads
commands from R, writes messages to W, and L is the lifeline. Nothing is ever written to the
lifeline. Its end of file means that the parent is dead, and then the whole process group is killed:

* on Linux by the kernel, which sends SIGKILL to the group (``F_SETOWN`` with the group,
  ``F_SETSIG``); this works even while this process holds the interpreter lock, and reaches
  grandchildren;
* on all systems by a thread that reads the lifeline.

The parent-death signal of Linux is not used. The kernel sends it when the *thread* that started the
child ends, which is before the lifeline closes, and to this process only: its children would
survive.

This module does not interpret the lines.
"""

import contextlib
import fcntl
import os
import select
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Final

from forge_jobs.kit.thread_result import ThreadResult

PIPES_OPTION: Final = "--pipes="
MAX_LINE_BYTES: Final = 64 << 20
_READ_BYTES: Final = 1 << 16
SHUTDOWN_LINE: Final = b""


class BadLine(ValueError):
    """A line that cannot be sent: too long, empty, or with a line break in it."""


def checked_line(line: bytes, limit: int) -> bytes:
    """The line with its line break, or BadLine. Refuses the empty line, the shutdown line."""
    if not line:
        raise BadLine("an empty line cannot be sent")
    if len(line) >= limit:
        raise BadLine(f"a line of {len(line):,} bytes exceeds the limit of {limit:,}")
    if b"\n" in line:
        raise BadLine("a line must not hold a line break")
    return line + b"\n"


class ParentLink:
    """A child process's connection to its parent."""

    def __init__(
        self, commands: int, messages: int, lifeline: int, *, line_limit: int = MAX_LINE_BYTES
    ) -> None:
        self._commands = commands
        self._messages = messages
        self._limit = line_limit
        self._send_lock = threading.Lock()
        for descriptor in (commands, messages, lifeline):
            os.set_inheritable(descriptor, False)
        _die_with_parent(lifeline)

    @classmethod
    def from_arguments(cls, arguments: Sequence[str]) -> "ParentLink":
        """Open the descriptors that the parent named on the command line."""
        for argument in arguments:
            if argument.startswith(PIPES_OPTION):
                commands, messages, lifeline = map(int, argument[len(PIPES_OPTION) :].split(","))
                return cls(commands, messages, lifeline)
        raise SystemExit(f"{PIPES_OPTION}R,W,L is missing: this program is started by its parent")

    def send(self, line: bytes) -> None:
        """Write one line. Thread-safe; blocks while the pipe is full.

        A broken pipe means that the parent is dead or stops this child, so the whole group is
        killed. An exception would end this process only and leave its children running.

        A signal handler that raises here leaves no half of a line: a pipe takes a short one at
        once, and a longer one is written by a thread, where no signal handler runs.
        """
        whole = checked_line(line, self._limit)
        is_main = threading.current_thread() is threading.main_thread()
        if not is_main or len(whole) <= select.PIPE_BUF:
            self._write(whole)
            return
        written = ThreadResult[None]()
        thread = threading.Thread(target=self._write_apart, args=(whole, written), daemon=True)
        thread.start()
        written.result()

    def _write_apart(self, whole: bytes, written: ThreadResult[None]) -> None:
        try:
            self._write(whole)
        except BaseException as error:
            written.set_exception(error)
        else:
            written.set_result(None)

    def _write(self, whole: bytes) -> None:
        unsent = memoryview(whole)
        with self._send_lock:
            while unsent:
                try:
                    written = os.write(self._messages, unsent)
                except BrokenPipeError:
                    _kill_own_group()
                    raise
                unsent = unsent[written:]

    def lines(self) -> Iterator[bytes]:
        """The parent's commands, up to its shutdown line.

        End of file without a shutdown line means that the parent died: the whole process group is
        killed.
        """
        buffer = bytearray()
        while chunk := os.read(self._commands, _READ_BYTES):
            searched = len(buffer)
            buffer += chunk
            while (end := buffer.find(b"\n", searched)) >= 0:
                line = bytes(buffer[:end])
                del buffer[: end + 1]
                searched = 0
                if line == SHUTDOWN_LINE:
                    return
                yield line
            if len(buffer) > self._limit:
                raise BadLine(f"the parent sent more than {self._limit:,} bytes without an end")
        _kill_own_group()


def _die_with_parent(lifeline: int) -> None:
    _arm_kernel_signal(lifeline)
    watcher = threading.Thread(
        target=_kill_group_at_eof, args=(lifeline,), name="forge-lifeline", daemon=True
    )
    watcher.start()


def _arm_kernel_signal(lifeline: int) -> None:
    if sys.platform != "linux":
        return
    # A sandboxed kernel may support neither of the two. The thread does it then.
    with contextlib.suppress(OSError):
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        flags = fcntl.fcntl(lifeline, fcntl.F_GETFL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, flags | fcntl.FASYNC)


def _kill_group_at_eof(lifeline: int) -> None:
    # Also correct if the parent died earlier: the read then returns at once.
    while True:
        try:
            if not os.read(lifeline, 1):
                break
        except OSError:
            break
    _kill_own_group()


def _kill_own_group() -> None:
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
