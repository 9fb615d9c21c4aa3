"""A fair lock between the writers of several processes, made of two file locks.

A writer locks the queue file (A), then the write file (B), then unlocks A. At most one process
waits for B, so no process is overtaken again and again; SQLite's own lock has no order at all and
can starve a writer for seconds. Threads of one process acquire the lock of their writer first, so
they never compete here.

Locks are polled, not waited for, because a blocking wait cannot be given up: a process that was
stopped while it holds the lock would block all others. After two seconds a writer proceeds without
the lock. That costs fairness, not safety: SQLite's own lock still excludes other writers.
"""

import os
from collections.abc import Callable
from fcntl import LOCK_EX, LOCK_NB, LOCK_UN, flock
from functools import partial
from typing import Final

from forge_jobs.kit.clock import Clock

_TRY_LOCK: Final = LOCK_EX | LOCK_NB
_QUEUE_LOCK: Final = "turn-a.lock"
_WRITE_LOCK: Final = "turn-b.lock"
_FIRST_PAUSE_S: Final = 0.000_1
_LATER_PAUSE_S: Final = 0.001
# A process that polls less often than newcomers is overtaken by them, so this must be longer than
# any write takes: only behind a stopped process does a wait last this long.
_FIRST_PAUSES_S: Final = 0.5
_TIMEOUT_S: Final = 2.0
# After a timeout the process does not wait for the lock for this long.
_BYPASS_S: Final = 10.0
_NO_OP: Final = partial(bool)


class FairLock:
    """The fair lock of one database in one process.

    ``release`` is a call into C and not a Python method, because a signal handler may raise where a
    Python function begins: as the first call in a ``finally`` it always runs. It may be called
    without holding the lock, so ``acquire`` belongs inside the ``try``.
    """

    __slots__ = ("_bypass_until", "_clock", "_directory", "_queue_lock", "_write_lock", "release")

    def __init__(self, directory: str, clock: Clock) -> None:
        self._directory = directory
        self._clock = clock
        self._queue_lock = -1
        self._write_lock = -1
        self._bypass_until = 0.0
        self.release: Callable[[], object] = _NO_OP

    def open(self) -> None:
        """Open the lock files; they stay open while the database is in use."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        # Missing if somebody removed it: then writers that are running have other lock files.
        os.makedirs(self._directory, 0o700, exist_ok=True)
        self._queue_lock = os.open(os.path.join(self._directory, _QUEUE_LOCK), flags, 0o600)
        self._write_lock = os.open(os.path.join(self._directory, _WRITE_LOCK), flags, 0o600)
        self.release = partial(flock, self._write_lock, LOCK_UN)

    def acquire(self) -> None:
        """Wait for the lock, at most until the timeout."""
        if not self.try_acquire():
            self.wait()

    def try_acquire(self) -> bool:
        """Acquire the lock if no process holds it or waits for it."""
        queue_lock = self._queue_lock
        try:
            flock(queue_lock, _TRY_LOCK)
            flock(self._write_lock, _TRY_LOCK)
        except BlockingIOError:
            return False
        finally:
            # Harmless if it was not held.
            flock(queue_lock, LOCK_UN)
        return True

    def wait(self) -> None:
        """``acquire`` after a ``try_acquire`` that failed."""
        mono = self._clock.mono
        timeout_s = 0.0 if mono() < self._bypass_until else _TIMEOUT_S
        try:
            held = self._wait_for(self._queue_lock, timeout_s) and self._wait_for(
                self._write_lock, timeout_s
            )
        finally:
            flock(self._queue_lock, LOCK_UN)
        if not held:
            self._bypass_until = mono() + _BYPASS_S

    def close(self) -> None:
        """Close both files. Idempotent."""
        descriptors = (self._queue_lock, self._write_lock)
        self._queue_lock = self._write_lock = -1
        self.release = _NO_OP
        for descriptor in descriptors:
            if descriptor >= 0:
                os.close(descriptor)

    def _wait_for(self, descriptor: int, timeout_s: float) -> bool:
        waited_s, pause_s = 0.0, _FIRST_PAUSE_S
        while not _try_lock(descriptor):
            if waited_s >= timeout_s:
                return False
            self._clock.pause(pause_s)
            waited_s += pause_s
            if waited_s > _FIRST_PAUSES_S:
                pause_s = _LATER_PAUSE_S
        return True


def _try_lock(descriptor: int) -> bool:
    try:
        flock(descriptor, _TRY_LOCK)
    except BlockingIOError:
        return False
    return True
