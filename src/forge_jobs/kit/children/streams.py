"""asyncio protocols for the pipes of a child process: protocol lines, text lines of its output,
head and tail of its output, back-pressure of its input.

Each uses bounded memory, whatever the child writes.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from .parent_link import BadLine

MAX_OUTPUT_LINE: Final = 8 << 10
_MAX_BUFFERED: Final = 1 << 16


class ReadPipe(asyncio.Protocol):
    """The read end of a pipe. ``on_close`` is called once, after ``on_eof``."""

    def __init__(self) -> None:
        self.on_close: Callable[[], None] = _ignore
        self._transport: asyncio.ReadTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.ReadTransport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.on_eof()
        self.on_close()

    def on_eof(self) -> None:
        """Called at the end of the pipe."""

    def read_rest(self) -> None:
        """Read without back-pressure: the child is dead, and a pipe buffer holds little."""

    def close(self) -> None:
        """Stop reading."""
        if self._transport is not None:
            self._transport.close()


class LineStream(ReadPipe):
    """Protocol lines with back-pressure: it buffers at most ``_MAX_BUFFERED`` bytes, then stops
    reading until ``next`` is called."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit
        self._lines: deque[bytes] = deque()
        self._rest = bytearray()
        self._buffered = 0
        self._paused = False
        self._read_rest = False
        self._ended = False
        self._waiter: asyncio.Future[None] | None = None

    @property
    def has_unread(self) -> bool:
        """Whether the child has sent data that ``next`` has not returned yet."""
        return bool(self._lines or self._rest)

    async def next(self) -> bytes | None:
        """The next line; None at end of file. Raises BadLine for a line over the limit; the child
        cannot be used after that."""
        while not self._lines:
            if len(self._rest) > self._limit:
                raise BadLine(f"the child sent more than {self._limit:,} bytes without an end")
            if self._ended:
                return None
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        line = self._lines.popleft()
        self._buffered -= len(line)
        if self._buffered < _MAX_BUFFERED:
            self._resume()
        if len(line) > self._limit:
            raise BadLine(f"the child sent a line of {len(line):,} bytes, over {self._limit:,}")
        return line

    def data_received(self, data: bytes) -> None:
        first, *others = data.split(b"\n")
        self._rest += first
        for other in others:
            self._add(bytes(self._rest))
            self._rest = bytearray(other)
        is_full = self._buffered > _MAX_BUFFERED or len(self._rest) > self._limit
        if is_full and not (self._paused or self._read_rest) and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()
        if others or is_full:
            self._wake()

    def on_eof(self) -> None:
        self._ended = True
        self._wake()

    def read_rest(self) -> None:
        self._read_rest = True
        self._resume()

    def _resume(self) -> None:
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()

    def _add(self, line: bytes) -> None:
        self._lines.append(line)
        self._buffered += len(line)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class TextLineStream(ReadPipe):
    """A child's output as text lines, each cut to ``MAX_OUTPUT_LINE`` bytes."""

    def __init__(self, on_output: Callable[[str], None]) -> None:
        super().__init__()
        self._on_output = on_output
        self._rest = b""
        self._cutting = False

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if self._cutting:
                self._cutting = False
            else:
                self._emit(line)
        if len(self._rest) > MAX_OUTPUT_LINE:
            if not self._cutting:
                self._emit(self._rest)
            self._cutting = True
            self._rest = b""

    def on_eof(self) -> None:
        if self._rest and not self._cutting:
            self._emit(self._rest)

    def _emit(self, line: bytes) -> None:
        text = line[:MAX_OUTPUT_LINE].decode(errors="replace").rstrip("\r")
        self._on_output(text + " …" if len(line) > MAX_OUTPUT_LINE else text)


class HeadTailStream(ReadPipe):
    """The first and the last bytes of a stream, half the limit each. Counts the bytes between."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.total = 0
        self._half = limit // 2
        self._head = bytearray()
        self._tail = bytearray()

    def data_received(self, data: bytes) -> None:
        self.total += len(data)
        room = self._half - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data:
            self._tail += data[-self._half :]
            if len(self._tail) > 2 * self._half:
                del self._tail[: -self._half]

    @property
    def omitted_bytes(self) -> int:
        """How many bytes between head and tail were dropped."""
        return max(0, self.total - len(self._head) - self._half)

    def head_and_tail(self) -> tuple[bytes, bytes]:
        """The kept bytes; nothing is missing between the two if ``omitted_bytes`` is 0."""
        return bytes(self._head), bytes(self._tail[-self._half :])


class WritePipe(asyncio.BaseProtocol):
    """The write end of a pipe, with back-pressure. ``lost``: the child has closed its end."""

    def __init__(self) -> None:
        self.lost = False
        self._writable = asyncio.Event()
        self._writable.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self._writable.set()

    async def wait_writable(self) -> None:
        """Wait until the pipe's buffer has room, or the child has closed its end."""
        await self._writable.wait()


def _ignore() -> None:
    pass
