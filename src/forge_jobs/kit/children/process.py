"""``ChildProcess``: the lifecycle of a child process on the parent's side: signals, exit, reaping.

The child leads a session and process group of its own: a signal to the group also reaches the
processes that the child started, and Ctrl-C at the terminal does not reach it. A guarded child
(``guard``) is signalled through its guard, which also finds processes that left the group.

The subclasses define what goes through the pipes (``line_child``, ``command``). A child belongs to
the event loop that started it.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from .guard import GuardReport
from .streams import ReadPipe, WritePipe

Self = TypeVar("Self", bound="ChildProcess")

_READ_REST_S: Final = 0.5
_GUARD_TIMEOUT_S: Final = 20.0


class ChildGone(Exception):
    """The child has exited or closed its input, and takes no more lines."""


@dataclass(frozen=True, slots=True)
class ChildExit:
    """The exit status of a child: an exit code, or the negative number of a signal."""

    status: int

    @property
    def signal(self) -> int | None:
        """The signal that killed the child, if one did."""
        return -self.status if self.status < 0 else None

    def __str__(self) -> str:
        if self.status >= 0:
            return f"exit code {self.status}"
        try:
            return f"signal {-self.status} ({signal.Signals(-self.status).name})"
        except ValueError:
            return f"signal {-self.status}"


class ChildProcess:
    """One running child process. Stop it with ``terminate`` or ``kill``.

    ``lifeline`` is the write end of a pipe. When it is closed, the child, or its guard, ends.
    """

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        lifeline: int,
        *,
        guard: GuardReport | None = None,
        on_exit: Callable[[], None] | None = None,
    ) -> None:
        self._process = process
        self._lifeline = lifeline
        self._guard = guard
        self._on_exit = on_exit
        self._loop = asyncio.get_running_loop()
        self._streams: list[ReadPipe] = []
        self._open: dict[ReadPipe, None] = {}
        self._writer: asyncio.WriteTransport | None = None
        self._input = WritePipe()
        self._pidfd = -1
        self._ended: asyncio.Future[ChildExit] = self._loop.create_future()
        _ALIVE.add(self)

    @property
    def pid(self) -> int:
        """The child's process id, which is also that of its group."""
        guard = self._guard
        return self._process.pid if guard is None or guard.pid is None else guard.pid

    @property
    def exit(self) -> ChildExit | None:
        """The exit status; None while the child runs."""
        return self._ended.result() if self._ended.done() else None

    @property
    def exists(self) -> bool:
        """Whether the process still exists. A guard reaps its child before this event loop reads
        the guard's report."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            # It exists and runs as another user.
            return True
        return True

    async def wait(self) -> ChildExit:
        """Wait until the child is reaped and the rest of its process group is killed."""
        return await asyncio.shield(self._ended)

    async def terminate(self, grace_s: float) -> ChildExit:
        """Send SIGTERM to the group, SIGKILL after ``grace_s``; return when the child is reaped."""
        if grace_s > 0 and not self._ended.done():
            self._signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(grace_s):
                    return await self.wait()
            except TimeoutError:
                pass
        self.kill()
        return await self.wait()

    async def terminate_shielded(self, grace_s: float) -> ChildExit:
        """``terminate`` for a task that is being cancelled: cancellation does not interrupt it. A
        second cancellation ends the grace period with SIGKILL."""
        ending = asyncio.ensure_future(self.terminate(grace_s))
        while not ending.done():
            try:
                await asyncio.shield(ending)
            except asyncio.CancelledError:
                self.kill()
        return ending.result()

    def kill(self) -> None:
        """Send SIGKILL to the group. Does not wait until the child is reaped."""
        if not self._ended.done():
            self._signal(signal.SIGKILL)

    async def connect(
        self: Self, streams: Sequence[tuple[int, ReadPipe]], writer: int = -1
    ) -> Self:
        """Connect the pipes to the event loop and watch for the exit.

        Raises OSError if a guard could not start its command. After any error the child is killed.
        """
        self._open = dict.fromkeys(stream for _, stream in streams)
        unconnected = [descriptor for descriptor, _ in streams]
        self._watch_exit()
        try:
            if writer >= 0:
                pipe = os.fdopen(writer, "wb", buffering=0)
                self._writer, _ = await self._loop.connect_write_pipe(lambda: self._input, pipe)
            for _, stream in streams:
                stream.on_close = lambda closed=stream: self._stream_closed(closed)
                source = os.fdopen(unconnected.pop(0), "rb", buffering=0)
                await self._loop.connect_read_pipe(lambda protocol=stream: protocol, source)
                self._streams.append(stream)
            if self._guard is not None:
                await self._guard.wait_started()
        except BaseException:
            for descriptor in unconnected:
                os.close(descriptor)
            self._open = dict.fromkeys(stream for stream in self._streams if stream in self._open)
            await self.terminate_shielded(0)
            raise
        return self

    def _watch_exit(self) -> None:
        if sys.platform == "linux":
            # Some sandboxes refuse it. A thread waits then, as on other systems.
            with contextlib.suppress(OSError):
                self._pidfd = os.pidfd_open(self._process.pid)
                self._loop.add_reader(self._pidfd, self._reap)
                return
        waiter = threading.Thread(
            target=self._wait_in_thread, name=f"forge-child-{self._process.pid}", daemon=True
        )
        waiter.start()

    def _wait_in_thread(self) -> None:
        if hasattr(os, "waitid"):
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        else:
            self._process.wait()
        # RuntimeError: the loop is closed.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._reap)

    def _reap(self) -> None:
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1
        # Before the wait: the process group id cannot be reused until its leader is reaped.
        _kill_group(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self.close_lifeline()
        if self._writer is not None:
            self._writer.close()
        for stream in self._streams:
            stream.read_rest()
        # The pipes are read up to end of file. A process that escaped the group may hold them open,
        # so this has a time limit.
        self._loop.call_later(_READ_REST_S, self._close_streams)
        self._finish_exit()

    def _finish_exit(self) -> None:
        """Publish the exit status once the child is reaped and all its pipes are closed."""
        status = self._process.returncode
        if status is None or self._open or self._ended.done():
            return
        if self._guard is not None:
            if self._guard.status is not None:
                status = self._guard.status
            elif self._guard.pid is not None:
                # The guard itself was killed: it sent no status and did not kill its command.
                _kill_group(self._guard.pid, signal.SIGKILL)
        _ALIVE.discard(self)
        self._ended.set_result(ChildExit(status))
        if self._on_exit is not None:
            self._on_exit()

    def _stream_closed(self, stream: ReadPipe) -> None:
        self._open.pop(stream, None)
        self._finish_exit()

    def _close_streams(self) -> None:
        for stream in self._streams:
            stream.close()

    def _signal(self, number: signal.Signals) -> None:
        if self._guard is None:
            _kill_group(self._process.pid, number)
        elif number == signal.SIGKILL:
            self._send_to_guard(b"K")
            self.close_lifeline()
            self._loop.call_later(_GUARD_TIMEOUT_S, self._kill_guard)
        else:
            self._send_to_guard(b"T")

    def _send_to_guard(self, command: bytes) -> None:
        if self._lifeline >= 0:
            with contextlib.suppress(BrokenPipeError):
                os.write(self._lifeline, command)

    def _kill_guard(self) -> None:
        if not self._ended.done():
            _kill_group(self._process.pid, signal.SIGKILL)

    def close_lifeline(self) -> None:
        """Close the lifeline. A child that still runs is killed with its process group."""
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1


def _kill_group(leader: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


_ALIVE: "weakref.WeakSet[ChildProcess]" = weakref.WeakSet()


def _close_lifelines() -> None:
    # A fork inherits the lifelines, which would keep the children alive after their parent's death.
    for child in list(_ALIVE):
        child.close_lifeline()


os.register_at_fork(after_in_child=_close_lifelines)
