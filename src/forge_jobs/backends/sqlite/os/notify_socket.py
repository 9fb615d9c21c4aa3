"""Doorbells between processes: a unix datagram socket per listener, in ``bell`` by the database.

A ring is a hint. It is never waited for, never repeated, and its failure fails nothing.
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
# Directory times are as coarse as the kernel's tick: a list made that soon after a change may lack
# a neighbour of the change.
_SETTLED_US: Final = 50_000
_LOOK_S: Final = 0.005
_OPERATED: Final = b"*"
_UNCOMMITTED: Final = b"~"
_PROC: Final = "/proc/self/fd"


@dataclass(frozen=True, slots=True)
class Message:
    """What a ring says. ``uncommitted``: jobs of a transaction that somebody is about to commit."""

    queues: frozenset[str]
    operated: bool = False
    uncommitted: bool = False

    def concerns(self, queues: frozenset[str]) -> bool:
        return self.operated or not self.queues.isdisjoint(queues)

    def encode(self) -> bytes:
        if self.operated:
            return _OPERATED
        names = "\n".join(sorted(self.queues)).encode()
        if len(names) > _MESSAGE_BYTES:
            return _OPERATED
        return _UNCOMMITTED + names if self.uncommitted else names

    @classmethod
    def decode(cls, data: bytes) -> "Message":
        if data == _OPERATED:
            return cls(frozenset(), operated=True)
        uncommitted = data.startswith(_UNCOMMITTED)
        names = data.removeprefix(_UNCOMMITTED).decode(errors="replace")
        return cls(frozenset(names.split("\n")), uncommitted=uncommitted)


class NotifySocket:
    """A bell of ours that others can ring."""

    def __init__(self, place: DatabaseFile, name: str) -> None:
        self._directory = place.part("bell")
        self.name = f"{name}.sock"
        self._elsewhere: str | None = None
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
        elif os.path.isdir(_PROC):
            with _directory(self._directory) as short:
                self._socket.bind(os.path.join(short, self.name))
        else:
            # Too long for a socket: it lies elsewhere, and a link here says where.
            self._elsewhere = tempfile.mkdtemp(prefix="forge-")
            target = os.path.join(self._elsewhere, "s")
            self._socket.bind(target)
            os.symlink(target, path)
        os.chmod(path, 0o600)

    def fileno(self) -> int:
        return self._socket.fileno()

    def messages(self) -> Iterable[Message]:
        """Everything that was rung since the last look."""
        with suppress(BlockingIOError):
            while True:
                yield Message.decode(self._socket.recv(_MESSAGE_BYTES * 2))

    def let_go(self) -> None:
        """In a forked child: the bell is the parent's and goes on to be heard there."""
        self._socket.close()

    def close(self) -> None:
        self._socket.close()
        with suppress(OSError):
            os.unlink(os.path.join(self._directory, self.name))
        if self._elsewhere is not None:
            with suppress(OSError):
                os.unlink(os.path.join(self._elsewhere, "s"))
                os.rmdir(self._elsewhere)


class NotifySender:
    """Rings the bells of other processes."""

    def __init__(self, place: DatabaseFile, clock: Clock) -> None:
        self._directory = place.part("bell")
        self._clock = clock
        self._socket: socket.socket | None = None
        self._listed_at = -1
        self._looked_at = 0.0
        self._names: list[str] = []

    def anyone(self, but: frozenset[str]) -> bool:
        """Whether somebody else listens; ``but`` are our own bells, which need no message."""
        return bool(self._others(but))

    def notify(self, message: Message, *, but: frozenset[str]) -> None:
        """Ring everybody else."""
        names = self._others(but)
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
            elif os.path.isdir(_PROC):
                with _directory(self._directory) as short:
                    sender.sendto(data, os.path.join(short, name))
            else:
                sender.sendto(data, os.readlink(path))
        except ConnectionRefusedError:
            # Nobody is behind it any more.
            with suppress(OSError):
                os.unlink(path)
        except OSError:
            # Full: its owner has enough reasons to wake up. Gone: it needs none.
            pass

    def _others(self, but: frozenset[str]) -> list[str]:
        mono = self._clock.mono()
        # Asking the directory costs more than the rest of a lone enqueue's announcement.
        if not 0.0 < mono - self._looked_at < _LOOK_S:
            self._look()
            self._looked_at = mono
        return [name for name in self._names if name not in but] if but else self._names

    def _look(self) -> None:
        try:
            changed_at = os.stat(self._directory).st_mtime_ns
            if changed_at != self._listed_at:
                found = os.listdir(self._directory)
                self._names = [name for name in found if name.endswith(".sock")]
                settled = self._clock.now() - changed_at // 1000 > _SETTLED_US
                self._listed_at = changed_at if settled else -1
        except OSError:
            self._names = []

    def close(self) -> None:
        sender, self._socket = self._socket, None
        if sender is not None:
            sender.close()


class _directory:
    """A short path to a directory for as long as it is held: sockets take some 100 bytes only."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor = -1

    def __enter__(self) -> str:
        self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        return f"{_PROC}/{self._descriptor}"

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)
