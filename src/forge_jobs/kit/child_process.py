"""A warm child process, seen from its parent: start, lines over private pipes, a sure end.

The child leads a session and process group of its own, so that a signal to the group reaches what
the child itself started, and a Ctrl-C at the terminal does not reach it. Lines go over private
pipes, never over standard output: whatever the child prints is handed to ``on_output`` line by
line, bounded. Its own end of the pipes is in ``child_lines``.

Nothing here knows what the lines say. A child belongs to the event loop that started it.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from .child_lines import FAREWELL, LINE_BYTES_MOST, PIPES_OPTION, BadLine, checked_line

OUTPUT_LINE_MOST: Final = 8 << 10
_LAST_WORDS_S: Final = 0.5


class ChildGone(Exception):
    """The child does not take lines any more."""


@dataclass(frozen=True, slots=True)
class ChildExit:
    """How a child ended: by itself with a code, or by a signal."""

    status: int

    @property
    def signal(self) -> int | None:
        """The signal that ended it, if one did."""
        return -self.status if self.status < 0 else None

    def __str__(self) -> str:
        if self.status >= 0:
            return f"exit code {self.status}"
        try:
            return f"signal {-self.status} ({signal.Signals(-self.status).name})"
        except ValueError:
            return f"signal {-self.status}"


class ChildProcess:
    """One running child. Make it with ``ChildProcess.start``; end it with ``end`` or ``kill``."""

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        lifeline: int,
        *,
        line_limit: int,
        on_exit: Callable[[], None] | None,
    ) -> None:
        self._process = process
        self._lifeline = lifeline
        self._line_limit = line_limit
        self._on_exit = on_exit
        self._loop = asyncio.get_running_loop()
        self._reader = asyncio.StreamReader(limit=line_limit, loop=self._loop)
        self._writer: asyncio.WriteTransport | None = None
        self._room = _Room()
        self._readers: list[asyncio.ReadTransport] = []
        self._open_readers = 0
        self._pidfd = -1
        self._ended: asyncio.Future[ChildExit] = self._loop.create_future()

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        *,
        on_output: Callable[[str], None],
        on_exit: Callable[[], None] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        line_limit: int = LINE_BYTES_MOST,
    ) -> "ChildProcess":
        """Start ``command`` with the descriptors added as its last argument. OSError when it cannot
        be started. Must run on a thread that outlives the child: on Linux the child dies with the
        thread that started it."""
        process, ends = _spawn(command, env, cwd)
        child = cls(process, ends.lifeline, line_limit=line_limit, on_exit=on_exit)
        _LIVING.add(child)
        try:
            await child._connect(ends, on_output)
        except BaseException:
            child.kill()
            process.wait()
            child.let_go()
            raise
        return child

    @property
    def pid(self) -> int:
        """The child's process id, which is also that of its group."""
        return self._process.pid

    @property
    def exit(self) -> ChildExit | None:
        """How it ended; None while it lives."""
        return self._ended.result() if self._ended.done() else None

    async def send(self, line: bytes) -> None:
        """Hand one line to the child; waits while its pipe is full. ChildGone when it is dead."""
        self.post(line)
        await self._room.wait()
        if self._room.lost:
            raise ChildGone(str(self.exit or "its pipe is closed"))

    def post(self, line: bytes) -> None:
        """Like ``send`` without the waiting, for a short word that must not be held up."""
        writer = self._writer
        if writer is None or writer.is_closing() or self._ended.done():
            raise ChildGone(str(self.exit or "closed"))
        writer.write(checked_line(line, self._line_limit))

    async def receive(self) -> bytes | None:
        """The next line of the child; None when there will be none. BadLine beyond the limit:
        the child is of no use after that."""
        try:
            line = await self._reader.readuntil(b"\n")
        except asyncio.IncompleteReadError:
            return None
        except asyncio.LimitOverrunError as error:
            raise BadLine(f"the child sent more than {self._line_limit:,} bytes") from error
        return line[:-1]

    def dismiss(self) -> None:
        """No more lines: an idle child ends by itself when it sees this."""
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(FAREWELL + b"\n")
            self._writer.close()

    async def wait(self) -> ChildExit:
        """Until it has ended and been reaped, with everything left in its group killed."""
        return await asyncio.shield(self._ended)

    async def end(self, grace_s: float) -> ChildExit:
        """TERM to the whole group, KILL after the grace; returns when the child is reaped."""
        if grace_s > 0 and not self._ended.done():
            self._signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(grace_s):
                    return await self.wait()
            except TimeoutError:
                pass
        self.kill()
        return await self.wait()

    def kill(self) -> None:
        """KILL to the whole group, at once; the reaping follows by itself."""
        if not self._ended.done():
            self._signal(signal.SIGKILL)

    async def _connect(self, ends: "_Ends", on_output: Callable[[str], None]) -> None:
        loop = self._loop
        pipe = os.fdopen(ends.commands, "wb", buffering=0)
        self._writer, _ = await loop.connect_write_pipe(lambda: self._room, pipe)
        told = self._reader_closed
        for descriptor, protocol in (
            (ends.messages, _Messages(self._reader, told)),
            (ends.output, _Output(on_output, told)),
        ):
            source = os.fdopen(descriptor, "rb", buffering=0)
            self._open_readers += 1
            transport, _ = await loop.connect_read_pipe(lambda made=protocol: made, source)
            self._readers.append(transport)
        self._watch_end()

    def _watch_end(self) -> None:
        if sys.platform == "linux":
            # Refused by some sandboxes; a thread waits then, as it does elsewhere.
            with contextlib.suppress(OSError):
                self._pidfd = os.pidfd_open(self.pid)
                self._loop.add_reader(self._pidfd, self._reap)
                return
        waiter = threading.Thread(
            target=self._wait_in_thread, name=f"forge-child-{self.pid}", daemon=True
        )
        waiter.start()

    def _wait_in_thread(self) -> None:
        if hasattr(os, "waitid"):
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        else:
            self._process.wait()
        # A loop that is already closed has nobody left to tell.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._reap)

    def _reap(self) -> None:
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1
        # Before the reaping: while the dead leader is unreaped its number belongs to its group.
        self._signal(signal.SIGKILL)
        self._process.wait()
        self.let_go()
        if self._writer is not None:
            self._writer.close()
        # What the dead child left in its pipes is read up to their end; a process that escaped the
        # group may hold them open, so that end is not waited for without limit.
        self._loop.call_later(_LAST_WORDS_S, self._close_readers)
        self._settle()

    def _settle(self) -> None:
        if self._process.returncode is None or self._open_readers or self._ended.done():
            return
        _LIVING.discard(self)
        self._ended.set_result(ChildExit(self._process.returncode))
        if self._on_exit is not None:
            self._on_exit()

    def _reader_closed(self) -> None:
        self._open_readers -= 1
        self._settle()

    def _close_readers(self) -> None:
        for transport in self._readers:
            transport.close()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def let_go(self) -> None:
        """Close the lifeline: a child that still lives ends with its whole group."""
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1


class _Ends(NamedTuple):
    """The parent's ends of the pipes."""

    commands: int
    messages: int
    lifeline: int
    output: int


def _spawn(
    command: Sequence[str], env: Mapping[str, str] | None, cwd: str | None
) -> "tuple[subprocess.Popen[bytes], _Ends]":
    # Blocks the loop for the milliseconds until exec; a thread would not do, see ``start``.
    commands_r, commands_w = os.pipe()
    messages_r, messages_w = os.pipe()
    lifeline_r, lifeline_w = os.pipe()
    output_r, output_w = os.pipe()
    theirs = (commands_r, messages_w, lifeline_r)
    ours = _Ends(commands_w, messages_r, lifeline_w, output_r)
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


class _Messages(asyncio.StreamReaderProtocol):
    """Lines of the child into a reader, and word of the end of its pipe."""

    def __init__(self, reader: asyncio.StreamReader, on_close: Callable[[], None]) -> None:
        super().__init__(reader)
        self._on_close = on_close

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._on_close()


class _Output(asyncio.Protocol):
    """What the child prints, as lines of bounded length."""

    def __init__(self, on_output: Callable[[str], None], on_close: Callable[[], None]) -> None:
        self._on_output = on_output
        self._on_close = on_close
        self._rest = b""
        self._cutting = False

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if self._cutting:
                self._cutting = False
            else:
                self._tell(line)
        if len(self._rest) > OUTPUT_LINE_MOST:
            if not self._cutting:
                self._tell(self._rest)
            self._cutting = True
            self._rest = b""

    def connection_lost(self, exc: Exception | None) -> None:
        if self._rest and not self._cutting:
            self._tell(self._rest)
        self._on_close()

    def _tell(self, line: bytes) -> None:
        text = line[:OUTPUT_LINE_MOST].decode(errors="replace").rstrip("\r")
        self._on_output(text + " …" if len(line) > OUTPUT_LINE_MOST else text)


class _Room(asyncio.BaseProtocol):
    """Whether the pipe to the child takes more."""

    def __init__(self) -> None:
        self.lost = False
        self._room = asyncio.Event()
        self._room.set()

    def pause_writing(self) -> None:
        self._room.clear()

    def resume_writing(self) -> None:
        self._room.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self._room.set()

    async def wait(self) -> None:
        await self._room.wait()


_LIVING: "weakref.WeakSet[ChildProcess]" = weakref.WeakSet()


def _forget_after_fork() -> None:
    # A fork of the parent that lives on must not keep the parent's children alive.
    for child in list(_LIVING):
        child.let_go()


os.register_at_fork(after_in_child=_forget_after_fork)
