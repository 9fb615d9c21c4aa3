"""Any program under a guard: started without a shell, ended with everything it started.

The guard is a small process of its own (``guard_main``). It dies last: whoever ends the
worker, however hard, closes the guard's control pipe, and the guard kills what it guards. Programs
need to know nothing of it; they see three standard streams and no other descriptor.

On Linux nothing escapes, also not by forking twice into a session of its own. Elsewhere what leaves
the process group escapes.
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
    """What to run. ``path`` is the file, ``argv`` begins with the name the program sees.

    ``env`` is the whole environment. ``scratch`` is a folder that the guard removes at the end.
    ``limits`` maps numbers of the ``resource`` module to values.
    """

    path: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    scratch: str | None = None
    umask: int = 0o077
    limits: Mapping[int, int] = field(default_factory=dict[int, int])

    def encoded(self) -> bytes:
        """As ``guard_main.Plan`` reads it. ValueError for a NUL, which no program can get."""
        fields = [
            self.cwd,
            self.scratch or "",
            str(self.umask),
            str(len(self.limits)),
            str(len(self.argv)),
            *(f"{number}:{most}" for number, most in self.limits.items()),
            self.path,
            *self.argv,
            *(f"{name}={value}" for name, value in self.env.items()),
        ]
        if any("\0" in one for one in fields):
            raise ValueError("an argument, variable or folder holds a NUL character")
        return b"\0".join(os.fsencode(one) for one in fields)


class StartedGuard(NamedTuple):
    """A guard that was just started, and the parent's ends of its pipes."""

    process: "subprocess.Popen[bytes]"
    control: int
    report: int
    stdin: int
    stdout: int
    stderr: int


def spawn_guarded(plan: CommandSpec, *, stdin: bool) -> StartedGuard:
    """Start the guard, which starts the command. ``stdin`` False: the command reads nothing, and
    the parent's end is -1. OSError when not even the guard starts."""
    # Imported late: the parent of worker processes loads this module and starts no commands.
    import tempfile

    data = plan.encoded()
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
            theirs = (control_r, report_w, file.fileno())
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", guard_main.__file__, *map(str, theirs)],
                stdin=stdin_r, stdout=stdout_w, stderr=stderr_w, cwd=os.sep,
                close_fds=True, pass_fds=theirs, start_new_session=True,
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
    """What the guard says: whether the command runs, and how it ended."""

    def __init__(self) -> None:
        super().__init__()
        self.status: int | None = None
        self.pid: int | None = None
        self._up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._rest = b""

    async def wait_started(self) -> None:
        """Until the command runs; OSError when it cannot be started."""
        await asyncio.shield(self._up)

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._read(line.decode())

    def on_eof(self) -> None:
        if not self._up.done():
            self._fail(OSError(_NO_ERRNO, "its guard died before it was started"))

    def _read(self, line: str) -> None:
        match line.split():
            case ["up", pid]:
                self.pid = int(pid)
                if not self._up.done():
                    self._up.set_result(None)
            case ["no", code, stage]:
                self._fail(OSError(int(code), f"{os.strerror(int(code))} ({stage})"))
            case ["end", status]:
                self.status = int(status)
            case _:
                pass

    def _fail(self, error: OSError) -> None:
        if not self._up.done():
            self._up.set_exception(error)
            # Whoever asks is told; a start that was given up has nobody left to ask.
            self._up.exception()
