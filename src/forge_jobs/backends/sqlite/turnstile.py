"""Whose turn it is to write: a fair queue between processes, made of two locked files.

Whoever wants to write takes the waiting room (A), then the floor (B), and leaves the waiting room.
At most one process waits for the floor, so that none is overtaken more than once by each other one;
SQLite's own lock has no order at all and can starve a writer. Threads of one process take the lock
of their writer first and never meet here.
"""

import fcntl
import os

_A = "turn-a.lock"
_B = "turn-b.lock"


class Turnstile:
    """The two locks of one database, as seen by one process."""

    __slots__ = ("_directory", "_floor", "_room")

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._room = -1
        self._floor = -1

    def open(self) -> None:
        """Open the lock files; they are kept for as long as the database is in use."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self._room = os.open(os.path.join(self._directory, _A), flags, 0o600)
        self._floor = os.open(os.path.join(self._directory, _B), flags, 0o600)

    def enter(self) -> None:
        """Wait for this process's turn."""
        room = self._room
        fcntl.flock(room, fcntl.LOCK_EX)
        try:
            fcntl.flock(self._floor, fcntl.LOCK_EX)
        finally:
            fcntl.flock(room, fcntl.LOCK_UN)

    def try_enter(self) -> bool:
        """Take the turn if nobody has it or waits for it."""
        room = self._room
        try:
            fcntl.flock(room, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        try:
            fcntl.flock(self._floor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            fcntl.flock(room, fcntl.LOCK_UN)
        return True

    def leave(self) -> None:
        """Let the next one write."""
        fcntl.flock(self._floor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Let go of both files. Closing twice is fine."""
        for descriptor in (self._room, self._floor):
            if descriptor >= 0:
                os.close(descriptor)
        self._room = self._floor = -1
