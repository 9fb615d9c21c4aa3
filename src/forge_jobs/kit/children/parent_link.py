"""The child's end of a warm child process: lines to and from the parent, and dying with it.

The parent hands down three private descriptors in one argument, ``--pipes=R,W,L``: commands come on
R, messages go out on W, and L is the lifeline. Nothing is ever written to the lifeline; its end
means that the parent is gone, and then the whole process group ends:

* on Linux the kernel itself sends SIGKILL to the group (``F_SETOWN`` with the group, ``F_SETSIG``),
  which works even while this process holds the interpreter lock, and reaches grandchildren;
* everywhere a thread waits for the end of the lifeline and does the same.

The parent-death signal of Linux is not used: it comes when the parent's starting *thread* dies,
before the lifeline ends, and takes this process alone; its own children would live on.

Nothing here knows what the lines say.
"""

import contextlib
import fcntl
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Final

PIPES_OPTION: Final = "--pipes="
MAX_LINE_BYTES: Final = 64 << 20
_READ_BYTES: Final = 1 << 16
SHUTDOWN_LINE: Final = b""


class BadLine(ValueError):
    """A line that cannot be sent: too long, empty, or with a line break of its own."""


def checked_line(line: bytes, limit: int) -> bytes:
    """The line with its line break, or BadLine. The empty line is taken: it means farewell."""
    if not line:
        raise BadLine("an empty line cannot be sent")
    if len(line) >= limit:
        raise BadLine(f"a line of {len(line):,} bytes exceeds the limit of {limit:,}")
    if b"\n" in line:
        raise BadLine("a line must not hold a line break")
    return line + b"\n"


class ParentLink:
    """What a child process uses to talk to its parent."""

    def __init__(
        self, commands: int, messages: int, lifeline: int, *, line_limit: int = MAX_LINE_BYTES
    ) -> None:
        self._commands = commands
        self._messages = messages
        self._limit = line_limit
        self._sending = threading.Lock()
        for descriptor in (commands, messages, lifeline):
            os.set_inheritable(descriptor, False)
        _die_with_parent(lifeline)

    @classmethod
    def from_arguments(cls, arguments: Sequence[str]) -> "ParentLink":
        """Take over the descriptors that the parent named on the command line."""
        for argument in arguments:
            if argument.startswith(PIPES_OPTION):
                commands, messages, lifeline = map(int, argument[len(PIPES_OPTION) :].split(","))
                return cls(commands, messages, lifeline)
        raise SystemExit(f"{PIPES_OPTION}R,W,L is missing: this program is started by its parent")

    def send(self, line: bytes) -> None:
        """Write one line; safe from any thread, waits while the parent is slow.

        A parent that reads no more is gone or wants this child gone: the whole group ends. An
        exception instead would end this process alone and leave its own children behind.
        """
        left = memoryview(checked_line(line, self._limit))
        with self._sending:
            while left:
                try:
                    written = os.write(self._messages, left)
                except BrokenPipeError:
                    _kill_own_group()
                    raise
                left = left[written:]

    def lines(self) -> Iterator[bytes]:
        """Commands as they come; ends when the parent wants no more of this child.

        An end of the pipe without the parent's farewell is the parent's death, and the end of this
        process with its whole group.
        """
        rest = bytearray()
        while chunk := os.read(self._commands, _READ_BYTES):
            seen = len(rest)
            rest += chunk
            while (end := rest.find(b"\n", seen)) >= 0:
                line = bytes(rest[:end])
                del rest[: end + 1]
                seen = 0
                if line == SHUTDOWN_LINE:
                    return
                yield line
            if len(rest) > self._limit:
                raise BadLine(f"the parent sent more than {self._limit:,} bytes without an end")
        _kill_own_group()


def _die_with_parent(lifeline: int) -> None:
    _arm_kernel_signal(lifeline)
    guard = threading.Thread(
        target=_kill_group_at_eof, args=(lifeline,), name="forge-lifeline", daemon=True
    )
    guard.start()


def _arm_kernel_signal(lifeline: int) -> None:
    if sys.platform != "linux":
        return
    # A sandboxed kernel may know neither; the thread does it then.
    with contextlib.suppress(OSError):
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        flags = fcntl.fcntl(lifeline, fcntl.F_GETFL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, flags | fcntl.FASYNC)


def _kill_group_at_eof(lifeline: int) -> None:
    # Also right when the parent died before this line: the read ends at once.
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
