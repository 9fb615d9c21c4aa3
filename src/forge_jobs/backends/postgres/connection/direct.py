"""A connection on which synchronous callers run a statement on their own thread.

The pool lends it (``Pool.lend``): its event loop stops reading from the socket, and a caller that
holds ``lock`` sends a prepared statement and reads the reply with plain socket calls. That saves
the two thread switches and the event loop of a call over the I/O thread. The driver has opened the
connection and logged in; arguments and results are texts, so that no codecs are needed.

A signal handler may raise at any point of a call. ``clean`` is False from before a statement is
sent until its reply was read to its end: a connection that was left in between is never used again.
"""

import asyncio
import select
import socket
import struct
import threading
from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from . import driver as drivers
from .driver import Driver

Values = Sequence[bytes | None]
_RECEIVED_BYTES: Final = 65_536
_HEADER_BYTES: Final = 5
_EXECUTE_AND_SYNC: Final = b"E\0\0\0\x09\0\0\0\0\0S\0\0\0\x04"
# Messages by their first byte.
_ROW, _COMPLETE, _READY, _ERROR = b"DCZE"
_length = struct.Struct("!i")
_NULL: Final = _length.pack(-1)
# The statements that a connection has prepared, also while it is not lent.
_prepared: "WeakKeyDictionary[Driver, set[str]]" = WeakKeyDictionary()


class ServerError(Exception):
    """An error reply of the server, with what the error mapping reads."""

    def __init__(self, fields: dict[str, str]) -> None:
        super().__init__(fields.get("M", ""))
        self.sqlstate = fields.get("C", "")
        self.context = fields.get("W")


class Reply(NamedTuple):
    """The last row of a reply, or the error that came instead; ``complete``: the statement had
    ended before that error, which may therefore be one of the commit."""

    row: Values
    error: ServerError | None
    complete: bool


class DirectConnection:
    """A lent connection. Callers hold ``lock`` while they use it."""

    def __init__(self, driver: Driver, transport: Any, plain: socket.socket) -> None:
        self.driver = driver
        self.loop = asyncio.get_running_loop()
        self.lock = threading.Lock()
        self.clean = True
        self._ended = False
        self._thread = threading.get_ident()
        self._transport = transport
        self._socket = plain
        self._prepared = _prepared.setdefault(driver, set())
        self._poll = select.poll()
        self._poll.register(plain.fileno(), select.POLLIN)
        transport.pause_reading()

    def is_free(self) -> bool:
        """Whether a caller on this thread may use it: not on its event loop, and nobody else
        does."""
        return not self.lock.locked() and threading.get_ident() != self._thread

    def is_usable(self) -> bool:
        """Whether it is still lent, the last call was completed and the server has sent nothing
        since, such as the end of the connection."""
        return self.clean and not self._ended and not self._poll.poll(0)

    def send(self, name: str, query: str, values: Values) -> bool:
        """Send a statement; False if it had no effect, since not all of it could be sent."""
        head = b"" if name in self._prepared else _parse(name, query)
        message = b"".join((head, _bind(name, values), _EXECUTE_AND_SYNC))
        self.clean = False
        try:
            sent = self._socket.send(message)
        except OSError as error:
            if is_own(error):
                return False
            raise
        return sent == len(message)

    def receive(self, name: str, limit_s: float) -> Reply:
        """Wait for the reply to the statement ``name``. OSError if the connection is lost,
        TimeoutError if no reply comes in time."""
        data = b""
        while True:
            if not self._poll.poll(limit_s * 1_000):
                raise TimeoutError
            part = self._socket.recv(_RECEIVED_BYTES)
            if not part:
                raise ConnectionResetError
            data += part
            reply = _reply(data)
            if reply is not None:
                if reply.error is None:
                    self._prepared.add(name)
                    self.clean = True
                return reply

    def end(self) -> bool:
        """Make it unusable for callers, unless one is using it. Returns whether it is."""
        if not self.lock.acquire(blocking=False):
            return False
        self._ended = True
        self.lock.release()
        return True

    def shut_down(self) -> None:
        """End the connection for a caller that is using it: it gets a connection error."""
        drivers.shut_down(self._transport)

    def resume(self) -> None:
        """Let the event loop read again; the connection is the pool's."""
        self._transport.resume_reading()


def lendable(driver: Driver) -> DirectConnection | None:
    """The connection for use by synchronous callers; None where its bytes are not plain (TLS) or
    its event loop does not give its socket."""
    found = drivers.plain_socket(driver)
    return None if found is None else DirectConnection(driver, *found)


def is_own(error: BaseException) -> bool:
    """Whether the code of this module raised an error, and not a signal handler that ran there."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return last is not None and last.tb_frame.f_globals is globals()


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + _length.pack(len(body) + _length.size) + body


def _parse(name: str, query: str) -> bytes:
    return _message(b"P", b"\0".join((name.encode(), query.encode(), b"\0\0")))


def _bind(name: str, values: Values) -> bytes:
    """All arguments and results as texts, to the unnamed portal."""
    parts = [b"\0", name.encode(), b"\0\0\0", len(values).to_bytes(2, "big")]
    for value in values:
        parts += (_NULL,) if value is None else (_length.pack(len(value)), value)
    parts.append(b"\0\0")
    return _message(b"B", b"".join(parts))


def _reply(data: bytes) -> Reply | None:
    """The reply in these bytes, once its last message has arrived or the server has ended the
    connection with an error."""
    row: Values = ()
    error: ServerError | None = None
    complete = False
    start = 0
    while start + _HEADER_BYTES <= len(data):
        kind = data[start]
        end = start + 1 + _length.unpack_from(data, start + 1)[0]
        if end > len(data):
            return None
        if kind == _READY:
            return Reply(row, error, complete)
        if kind == _ROW:
            row = _columns(data, start + _HEADER_BYTES)
        elif kind == _COMPLETE:
            complete = True
        elif kind == _ERROR:
            error = ServerError(_fields(data[start + _HEADER_BYTES : end]))
            if error.sqlstate.startswith("57P"):
                return Reply(row, error, complete)
        start = end
    return None


def _columns(data: bytes, start: int) -> Values:
    count, start = int.from_bytes(data[start : start + 2], "big"), start + 2
    found: list[bytes | None] = []
    for _ in range(count):
        (size,) = _length.unpack_from(data, start)
        start += _length.size
        found.append(None if size < 0 else data[start : start + size])
        start += max(size, 0)
    return found


def _fields(body: bytes) -> dict[str, str]:
    return {
        part[:1].decode(): part[1:].decode(errors="replace") for part in body.split(b"\0") if part
    }
