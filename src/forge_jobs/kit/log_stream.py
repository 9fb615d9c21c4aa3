"""``LogStream``: writes log lines to a descriptor without ever waiting for whoever reads it.

A pipe that nobody reads takes 64 KiB and then blocks its writer: the first log line too many would
stop the event loop that runs the jobs, while heartbeats from another thread say that all is well.
Lines that do not fit are kept, up to a bound; later ones are dropped and counted.
"""

import os
import select
import socket
import stat
import threading
from collections import deque
from typing import Final, TextIO, cast

_MAX_PENDING: Final = 1 << 20
_MAX_WRITE: Final = 4096


class LogStream:
    """The part of a text stream that ``logging.StreamHandler`` uses. Thread-safe."""

    def __init__(self, descriptor: int) -> None:
        self._writer = _NonBlocking(descriptor)
        self._lock = threading.Lock()
        self._pending: deque[bytes] = deque()
        self._pending_bytes = 0
        self._dropped = 0
        self._is_draining = False

    def write(self, text: str) -> int:
        """Write the text now, or keep it, or drop it."""
        data = text.encode(errors="backslashreplace")
        with self._lock:
            if self._pending_bytes + len(data) > _MAX_PENDING:
                self._dropped += 1
                return len(text)
            if self._dropped:
                note = f"forge: {self._dropped} log lines were dropped: nobody read the log\n"
                self._dropped = 0
                self._keep(note.encode())
            self._keep(data)
            if not self._is_draining and not self._flush():
                self._is_draining = True
                threading.Thread(target=self._drain, name="forge-log", daemon=True).start()
        return len(text)

    def flush(self) -> None:
        """Nothing to do: ``write`` does not wait."""

    def after_fork(self) -> None:
        """In a forked child: what is kept is the parent's to write."""
        self._lock = threading.Lock()
        self._pending.clear()
        self._pending_bytes = 0
        self._is_draining = False

    def _keep(self, data: bytes) -> None:
        self._pending.append(data)
        self._pending_bytes += len(data)

    def _flush(self) -> bool:
        """Write what is kept, as far as it goes; whether all was written."""
        while self._pending:
            data = self._pending[0]
            written = self._writer.write(data[:_MAX_WRITE])
            if written is None:
                return False
            self._pending_bytes -= written
            if written == len(data):
                self._pending.popleft()
            else:
                self._pending[0] = data[written:]
        return True

    def _drain(self) -> None:
        """Write what is kept as soon as somebody reads. Runs on a thread of its own meanwhile."""
        while True:
            self._writer.wait()
            with self._lock:
                if self._flush():
                    self._is_draining = False
                    return


class _NonBlocking:
    """Writes to a descriptor without blocking, and without making it non-blocking for the other
    processes that share it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._socket: socket.socket | None = None
        if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            self._socket = socket.socket(fileno=os.dup(descriptor))
            return
        try:
            # A new open file description, whose flags are its own.
            flags = os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
            self._descriptor = os.open(f"/proc/self/fd/{descriptor}", flags)
        except OSError:
            # Not on this system: ``write`` asks first whether there is room.
            pass

    def write(self, data: bytes) -> int | None:
        """How many bytes were written; None if it would block. Errors count as written: a log that
        is closed must not stop the program."""
        try:
            if self._socket is not None:
                return self._socket.send(data, socket.MSG_DONTWAIT)
            if not _has_room(self._descriptor, 0):
                return None
            return os.write(self._descriptor, data)
        except BlockingIOError:
            return None
        except OSError:
            return len(data)

    def wait(self) -> None:
        """Wait until there is room."""
        _has_room(self._descriptor if self._socket is None else self._socket.fileno(), None)


def _has_room(descriptor: int, timeout_ms: int | None) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(timeout_ms))


def log_stream(stream: TextIO) -> TextIO:
    """A stream to the same place that never blocks; ``stream`` itself if it is a regular file, or
    no file at all."""
    try:
        descriptor = stream.fileno()
        mode = os.fstat(descriptor).st_mode
    except (OSError, ValueError, AttributeError):
        return stream
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISCHR(mode)):
        return stream
    stream.flush()
    made = LogStream(descriptor)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=made.after_fork)
    return cast("TextIO", made)
