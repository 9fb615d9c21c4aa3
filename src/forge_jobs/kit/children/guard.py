"""Starts any program under a guard process, which kills the program with all its descendants.

The guard is a small process of its own (``guard_main``) and outlives the worker: when the worker
ends, even by SIGKILL, the guard's control pipe is closed and the guard kills the program. The
program needs no support for this. It gets the three standard streams and no other descriptor.

On Linux no descendant escapes, not even by a double fork into a session of its own. On other
systems a process that leaves the process group escapes.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from . import guard_main
from .streams import ReadPipe

_LOADER_VARIABLES: Final = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
_NO_ERRNO: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSpec:
    """The command that a guard runs. ``path`` is the file, ``argv`` begins with the program's name.

    ``env`` is the complete environment. ``scratch`` is a folder that the guard removes at the end.
    ``limits`` maps ``RLIMIT_…`` numbers of the ``resource`` module to values.
    """

    path: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    scratch: str | None = None
    umask: int = 0o077
    limits: Mapping[int, int] = field(default_factory=dict[int, int])

    def encoded(self) -> bytes:
        """The fields as ``guard_main.GuardedCommand`` reads them. Raises ValueError for a NUL
        character, which no argument or variable can hold."""
        fields = [
            self.cwd,
            self.scratch or "",
            str(self.umask),
            str(len(self.limits)),
            str(len(self.argv)),
            *(f"{number}:{value}" for number, value in self.limits.items()),
            self.path,
            *self.argv,
            *(f"{name}={value}" for name, value in self.env.items()),
        ]
        if any("\0" in text for text in fields):
            raise ValueError("an argument, variable or folder holds a NUL character")
        return b"\0".join(os.fsencode(text) for text in fields)


class StartedGuard(NamedTuple):
    """A started guard process and the parent's ends of its pipes."""

    process: "subprocess.Popen[bytes]"
    control: int
    report: int
    stdin: int
    stdout: int
    stderr: int


def spawn_guarded(spec: CommandSpec, *, stdin: bool) -> StartedGuard:
    """Start the guard, which starts the command. Raises OSError if the guard cannot be started.

    Without ``stdin`` the command reads from /dev/null and the parent's end is -1.
    """
    # Imported here because the worker parent loads this module and never starts a command.
    import tempfile

    data = spec.encoded()
    control_r, control_w = os.pipe()
    report_r, report_w = os.pipe()
    stdin_r, stdin_w = os.pipe() if stdin else (os.open(os.devnull, os.O_RDONLY), -1)
    stdout_r, stdout_w = os.pipe()
    stderr_r, stderr_w = os.pipe()
    try:
        with tempfile.TemporaryFile() as file:
            file.write(data)
            file.flush()
            file.seek(0)
            guard_ends = (control_r, report_w, file.fileno())
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", guard_main.__file__, *map(str, guard_ends)],
                stdin=stdin_r, stdout=stdout_w, stderr=stderr_w, cwd=os.sep,
                close_fds=True, pass_fds=guard_ends, start_new_session=True,
                env={name: os.environ[name] for name in _LOADER_VARIABLES if name in os.environ},
            )  # fmt: skip
    except BaseException:
        for descriptor in (control_w, report_r, stdin_w, stdout_r, stderr_r):
            if descriptor >= 0:
                os.close(descriptor)
        raise
    finally:
        for descriptor in (control_r, report_w, stdin_r, stdout_w, stderr_w):
            os.close(descriptor)
    return StartedGuard(process, control_w, report_r, stdin_w, stdout_r, stderr_r)


class GuardReport(ReadPipe):
    """Reads the guard's report pipe: whether the command was started, and its exit status."""

    def __init__(self) -> None:
        super().__init__()
        self.status: int | None = None
        self.pid: int | None = None
        self._started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._rest = b""

    async def wait_started(self) -> None:
        """Wait until the command runs. Raises OSError if it cannot be started."""
        await asyncio.shield(self._started)

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._read(line.decode())

    def on_eof(self) -> None:
        if not self._started.done():
            self._fail(OSError(_NO_ERRNO, "its guard died before it was started"))

    def _read(self, line: str) -> None:
        match line.split():
            case ["started", pid]:
                self.pid = int(pid)
                if not self._started.done():
                    self._started.set_result(None)
            case ["failed", code, stage]:
                self._fail(OSError(int(code), f"{os.strerror(int(code))} ({stage})"))
            case ["exited", status]:
                self.status = int(status)
            case _:
                pass

    def _fail(self, error: OSError) -> None:
        if not self._started.done():
            self._started.set_exception(error)
            # Marks the exception as retrieved: after a cancelled start no caller reads it.
            self._started.exception()
