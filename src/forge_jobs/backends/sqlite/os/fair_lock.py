"""Whose turn it is to write: a fair queue between processes, made of two locked files.

Whoever wants to write takes the waiting room (A), then the floor (B), and leaves the waiting room.
At most one process waits for the floor, so that none is overtaken again and again; SQLite's own
lock has no order at all and can starve a writer for seconds. Threads of one process take the lock
of their writer first and never meet here.

Locks are tried and not waited for, because a wait for a lock cannot be ended: a process that was
stopped in the turnstile would stop all others with it. After two seconds one goes around. That
costs fairness, not safety, which is SQLite's own.
"""

import os
from collections.abc import Callable
from fcntl import LOCK_EX, LOCK_NB, LOCK_UN, flock
from functools import partial
from typing import Final

from forge_jobs.kit.clock import Clock

_TRY: Final = LOCK_EX | LOCK_NB
_ROOM: Final = "turn-a.lock"
_FLOOR: Final = "turn-b.lock"
_QUICK_S: Final = 0.000_1
_SLOW_S: Final = 0.001
# Whoever looks less often than newcomers do is overtaken by them, so that this must be longer than
# any turn takes: only behind a process that was stopped does a wait last this long.
_SLOW_AFTER_S: Final = 0.5
_PATIENCE_S: Final = 2.0
# Whoever had to go around does not wait again for this long.
_AROUND_S: Final = 10.0
_NOTHING: Final = partial(bool)


class FairLock:
    """The two locks of one database, as seen by one process.

    ``leave`` lets the next one write. It is a call into C and no method of Python, because a signal
    handler may raise where a Python function begins: as the first thing in a ``finally`` it always
    runs. It may be called without the turn, so that ``enter`` belongs inside the ``try``.
    """

    __slots__ = ("_around_until", "_clock", "_directory", "_floor", "_room", "leave")

    def __init__(self, directory: str, clock: Clock) -> None:
        self._directory = directory
        self._clock = clock
        self._room = -1
        self._floor = -1
        self._around_until = 0.0
        self.leave: Callable[[], object] = _NOTHING

    def open(self) -> None:
        """Open the lock files; they are kept for as long as the database is in use."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self._room = os.open(os.path.join(self._directory, _ROOM), flags, 0o600)
        self._floor = os.open(os.path.join(self._directory, _FLOOR), flags, 0o600)
        self.leave = partial(flock, self._floor, LOCK_UN)

    def enter(self) -> None:
        """Wait for this process's turn."""
        if not self.try_enter():
            self._wait()

    def try_enter(self) -> bool:
        """Take the turn if nobody has it or waits for it."""
        room = self._room
        try:
            flock(room, _TRY)
            flock(self._floor, _TRY)
        except BlockingIOError:
            return False
        finally:
            # Harmless if it was not ours.
            flock(room, LOCK_UN)
        return True

    def close(self) -> None:
        """Let go of both files. Closing twice is fine."""
        descriptors = (self._room, self._floor)
        self._room = self._floor = -1
        self.leave = _NOTHING
        for descriptor in descriptors:
            if descriptor >= 0:
                os.close(descriptor)

    def _wait(self) -> None:
        mono = self._clock.mono
        patience_s = 0.0 if mono() < self._around_until else _PATIENCE_S
        try:
            held = self._awaited(self._room, patience_s) and self._awaited(self._floor, patience_s)
        finally:
            flock(self._room, LOCK_UN)
        if not held:
            self._around_until = mono() + _AROUND_S

    def _awaited(self, descriptor: int, patience_s: float) -> bool:
        waited_s, pause_s = 0.0, _QUICK_S
        while not _taken(descriptor):
            if waited_s >= patience_s:
                return False
            self._clock.pause(pause_s)
            waited_s += pause_s
            if waited_s > _SLOW_AFTER_S:
                pause_s = _SLOW_S
        return True


def _taken(descriptor: int) -> bool:
    try:
        flock(descriptor, _TRY)
    except BlockingIOError:
        return False
    return True
