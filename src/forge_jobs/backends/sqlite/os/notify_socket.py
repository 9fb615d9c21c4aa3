"""Notifications between processes: a unix datagram socket per listener, in ``notify`` beside the
database.

Sending never blocks and is never retried. A lost notification costs latency, never a job.
"""

import os
import socket
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from forge_jobs.kit.clock import Clock

from .database_file import DatabaseFile

_PATH_BYTES: Final = 100
_MESSAGE_BYTES: Final = 2_000
# Directory times are as coarse as the kernel's tick: a listing made this soon after a change may
# miss another change of the same tick.
_STABLE_US: Final = 50_000
_REFRESH_S: Final = 0.005
_CONTROL_CHANGED: Final = b"*"
_UNCOMMITTED: Final = b"~"
_PROC_FD: Final = "/proc/self/fd"


@dataclass(frozen=True, slots=True)
class Message:
    """A notification. ``uncommitted``: the jobs are in a user's transaction, not committed yet."""

    queues: frozenset[str]
    control_changed: bool = False
    uncommitted: bool = False

    def concerns(self, queues: frozenset[str]) -> bool:
        return self.control_changed or not self.queues.isdisjoint(queues)

    def encode(self) -> bytes:
        if self.control_changed:
            return _CONTROL_CHANGED
        names = "\n".join(sorted(self.queues)).encode()
        if len(names) > _MESSAGE_BYTES:
            return _CONTROL_CHANGED
        return _UNCOMMITTED + names if self.uncommitted else names

    @classmethod
    def decode(cls, data: bytes) -> "Message":
        if data == _CONTROL_CHANGED:
            return cls(frozenset(), control_changed=True)
        uncommitted = data.startswith(_UNCOMMITTED)
        names = data.removeprefix(_UNCOMMITTED).decode(errors="replace")
        return cls(frozenset(names.split("\n")), uncommitted=uncommitted)


class NotifySocket:
    """The socket of one listener, to which other processes send."""

    def __init__(self, database: DatabaseFile, name: str) -> None:
        self._directory = database.part("notify")
        self.name = f"{name}.sock"
        self._temporary: str | None = None
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            self._socket.setblocking(False)
            self._bind(os.path.join(self._directory, self.name))
        except BaseException:
            self._socket.close()
            raise

    def _bind(self, path: str) -> None:
        if len(os.fsencode(path)) <= _PATH_BYTES:
            self._socket.bind(path)
        elif os.path.isdir(_PROC_FD):
            with _short_path(self._directory) as short:
                self._socket.bind(os.path.join(short, self.name))
        else:
            # Too long for a socket address: bind in a temporary directory and link to it.
            self._temporary = tempfile.mkdtemp(prefix="forge-")
            target = os.path.join(self._temporary, "s")
            self._socket.bind(target)
            os.symlink(target, path)
        os.chmod(path, 0o600)

    def fileno(self) -> int:
        return self._socket.fileno()

    def messages(self) -> Iterable[Message]:
        """All messages received since the last call."""
        with suppress(BlockingIOError):
            while True:
                yield Message.decode(self._socket.recv(_MESSAGE_BYTES * 2))

    def detach(self) -> None:
        """Close the descriptor in a forked child; the socket stays in use by the parent."""
        self._socket.close()

    def close(self) -> None:
        self._socket.close()
        with suppress(OSError):
            os.unlink(os.path.join(self._directory, self.name))
        if self._temporary is not None:
            with suppress(OSError):
                os.unlink(os.path.join(self._temporary, "s"))
                os.rmdir(self._temporary)


class NotifySender:
    """Sends notifications to the sockets of other processes."""

    def __init__(self, database: DatabaseFile, clock: Clock) -> None:
        self._directory = database.part("notify")
        self._clock = clock
        self._socket: socket.socket | None = None
        self._listed_at = -1
        self._checked_at = 0.0
        self._names: list[str] = []

    def has_listeners(self, exclude: frozenset[str]) -> bool:
        """Whether another process listens; ``exclude`` are the sockets of this store."""
        return bool(self._listeners(exclude))

    def notify(self, message: Message, *, exclude: frozenset[str]) -> None:
        """Send a message to all sockets except our own."""
        names = self._listeners(exclude)
        if not names:
            return
        if self._socket is None:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.setblocking(False)
        data = message.encode()
        for name in names:
            self._send(self._socket, name, data)

    def _send(self, sender: socket.socket, name: str, data: bytes) -> None:
        path = os.path.join(self._directory, name)
        try:
            if len(os.fsencode(path)) <= _PATH_BYTES:
                sender.sendto(data, path)
            elif os.path.isdir(_PROC_FD):
                with _short_path(self._directory) as short:
                    sender.sendto(data, os.path.join(short, name))
            else:
                sender.sendto(data, os.readlink(path))
        except ConnectionRefusedError:
            # Its process is gone.
            with suppress(OSError):
                os.unlink(path)
        except OSError:
            # Full: its owner has unread messages anyway. Gone: no notification is needed.
            pass

    def _listeners(self, exclude: frozenset[str]) -> list[str]:
        mono = self._clock.mono()
        # A stat of the directory costs more than the rest of a single enqueue's notification.
        if not 0.0 < mono - self._checked_at < _REFRESH_S:
            self._refresh()
            self._checked_at = mono
        return [name for name in self._names if name not in exclude] if exclude else self._names

    def _refresh(self) -> None:
        try:
            changed_at = os.stat(self._directory).st_mtime_ns
            if changed_at != self._listed_at:
                found = os.listdir(self._directory)
                self._names = [name for name in found if name.endswith(".sock")]
                stable = self._clock.now() - changed_at // 1000 > _STABLE_US
                self._listed_at = changed_at if stable else -1
        except OSError:
            self._names = []

    def close(self) -> None:
        sender, self._socket = self._socket, None
        if sender is not None:
            sender.close()


class _short_path:
    """A short path to a directory while the block runs: socket addresses take about 100 bytes."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor = -1

    def __enter__(self) -> str:
        self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        return f"{_PROC_FD}/{self._descriptor}"

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)
