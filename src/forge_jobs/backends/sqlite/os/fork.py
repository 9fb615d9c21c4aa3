"""What happens around a fork: no connection to a database file of ours is open in that moment.

SQLite keeps its view of the locks on a file in the memory of the process, and a fork copies it; the
locks themselves stay with the parent. A child with such a copy would write without a lock, and a
parent that closes would take itself for the last one and delete the write-ahead log under the
child. So the forking thread waits until the running transactions and reads of this process have
ended, closes every connection, and lets nobody open one until the fork is over. Parent and child
each open their own with their next use.

Two things are waited for. Each writer's lock, which is held for every use of a writing connection;
and ``GATE``, which counts whoever opens or uses any other connection.
"""

import logging
import os
import sqlite3
import sys
import threading
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import TracebackType
from typing import Final, Protocol

from forge_jobs.core.errors import Refused
from forge_jobs.kit.clock import SYSTEM_CLOCK

from .database_file import DatabaseFile
from .fair_lock import FairLock
from .interrupts import acquire_noted, release_noted

_LOG: Final = logging.getLogger("forge_jobs.sqlite")

# Longer than a write waits for another program that keeps the file locked (about 10 s).
_PATIENCE_S: Final = 15.0
# A signal handler that forks in the middle of a call of its own thread would wait for itself.
_OWN_PATIENCE_S: Final = 0.2
_POLL_S: Final = 0.000_2
# Signals that may come while a fork ends; each one costs a repetition.
_MAX_INTERRUPTS: Final = 100
# The directory of the whole backend: any of its frames means that a call is under way.
_BACKEND: Final = os.path.dirname(os.path.dirname(__file__))
_DESCRIPTORS: Final = "/proc/self/fd"


def remaining_s(until: float) -> float:
    """How long a lock may still be waited for."""
    return max(until - SYSTEM_CLOCK.mono(), 0.0)


class Use:
    """One use of a connection to ``path``, from its opening on."""

    __slots__ = ("__weakref__", "_gate", "path")

    def __init__(self, gate: "Gate", path: str) -> None:
        self._gate = gate
        self.path = path

    def __enter__(self) -> None:
        self._gate.enter(self)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._gate.leave(self)


class Gate:
    """Open but for the time of a fork. Any number of threads may be inside.

    Whoever has to wait looks again and again. A ``threading.Event`` would stay locked for ever if a
    signal interrupted its ``set``.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Nobody is inside: a new process."""
        self._guard = threading.Lock()
        # Weak, so that whoever was interrupted on the way out is not counted for ever.
        self._inside: weakref.WeakSet[Use] = weakref.WeakSet()
        self._is_shut = False

    def using(self, path: str) -> Use:
        """For a ``with`` block around each use of a connection; waits while a thread forks."""
        return Use(self, path)

    def enter(self, use: Use) -> None:
        while not self.try_enter(use):
            SYSTEM_CLOCK.pause(_POLL_S)

    def try_enter(self, use: Use) -> bool:
        """The same without waiting."""
        with self._guard:
            if self._is_shut:
                return False
            self._inside.add(use)
        return True

    def leave(self, use: Use) -> None:
        with self._guard:
            self._inside.discard(use)

    def shut(self, until: float) -> set[str]:
        """Let nobody in and wait for those inside; the files of those who did not come out."""
        with self._guard:
            self._is_shut = True
        while (left := self._left()) and SYSTEM_CLOCK.mono() < until:
            SYSTEM_CLOCK.pause(_POLL_S)
        return left

    def open(self) -> None:
        self._is_shut = False

    def _left(self) -> set[str]:
        with self._guard:
            return {use.path for use in self._inside}


class Holder(Protocol):
    """Whoever keeps connections to one database open between two uses."""

    @property
    def place(self) -> DatabaseFile: ...

    def before_fork(self, until: float) -> list[sqlite3.Connection] | None:
        """Give up all connections, and open none; None if they are in use until ``until``."""
        ...

    def after_fork_in_parent(self) -> None:
        """Connections may be opened again; called also if ``before_fork`` failed."""
        ...

    def after_fork(self) -> None:
        """In the child: locks and threads are the parent's, and so is a connection in use."""
        ...


class Forking:
    """The fork that is under way. Two threads that fork do so one after the other."""

    def __init__(self) -> None:
        self._holders: weakref.WeakSet[Holder] = weakref.WeakSet()
        self._refused: set[str] = set()
        self._reset()

    def _reset(self) -> None:
        self._guard = threading.Lock()
        self._turn = threading.RLock()
        self._local = threading.local()

    def add(self, holder: Holder) -> None:
        """From now on this one is asked for its connections before each fork."""
        with self._guard:
            self._holders.add(holder)

    def check(self, path: str) -> None:
        """Refused in a process that got an open connection to this file from its parent."""
        if path in self._refused:
            raise Refused(
                f"{path} cannot be used in this process, which was forked in the middle of a call "
                "or past Python's fork hooks and would damage it: fork when no call is under way, "
                "or start a new program"
            )

    def refuse(self, path: str) -> None:
        """In a child that has a connection of its parent: this file is damaged by any use."""
        self._refused.add(path)

    # ---------------------------------------------------------------- hooks
    # Python drops what a signal handler raises in a hook, and goes on with the fork: what was taken
    # is given back all the same.

    def before(self) -> None:
        """On the forking thread, in the parent."""
        if _is_in_a_hook():
            # A signal handler forks while this thread is about to fork.
            return
        local = self._local
        stopped: list[Holder] = []
        turn: list[Callable[[], None]] = []
        local.stopped, local.turn = stopped, turn
        local.stuck = {holder.place.path for holder in self._all()}
        until = SYSTEM_CLOCK.mono() + (_OWN_PATIENCE_S if _is_in_a_call() else _PATIENCE_S)
        acquire_noted(self._turn, remaining_s(until), turn)
        if turn:
            local.stuck = self._stop(stopped, until)

    def _stop(self, stopped: list[Holder], until: float) -> set[str]:
        """Close all connections; the files for which that was not possible."""
        stuck = GATE.shut(until)
        given: dict[DatabaseFile, list[sqlite3.Connection]] = {}
        # Only now: none can be added behind a gate that is shut, as far as it has a connection.
        for holder in self._all():
            if holder.place.path in stuck:
                continue
            stopped.append(holder)
            connections = holder.before_fork(until)
            if connections is None:
                stuck.add(holder.place.path)
            elif connections:
                given.setdefault(holder.place, []).extend(connections)
        for place, connections in given.items():
            _close(place, connections)
        return stuck

    def after_in_parent(self) -> None:
        if _is_in_a_hook():
            return
        for _ in range(_MAX_INTERRUPTS):
            try:
                self._go_on()
                return
            except BaseException:
                # A signal handler's: it is lost either way, and what is held must be given back.
                continue

    def _go_on(self) -> None:
        """Give back what ``before`` has taken; may be repeated."""
        local = self._local
        for holder in getattr(local, "stopped", ()):
            holder.after_fork_in_parent()
        turn = getattr(local, "turn", None)
        if turn:
            # In this order: another thread that forks shuts the gate when it has the turn.
            GATE.open()
            release_noted(turn)
        local.__dict__.clear()

    def after_in_child(self) -> None:
        self._refused |= getattr(self._local, "stuck", set())
        self._reset()
        GATE.reset()
        for holder in self._all():
            # What fails for one store must not cost the others theirs, nor the user the fork.
            with suppress(Exception):
                holder.after_fork()
        _warn_of_others({holder.place.path for holder in self._all()} - self._refused)

    def _all(self) -> list[Holder]:
        with self._guard:
            return list(self._holders)


def _close(place: DatabaseFile, connections: Iterable[sqlite3.Connection]) -> None:
    """The last one to close checkpoints; that is a write like any other."""
    turnstile = FairLock(place.directory, SYSTEM_CLOCK)
    try:
        # Without the lock files, or without a descriptor to spare, it has to go as it is.
        with suppress(OSError):
            turnstile.open()
            turnstile.enter()
        for connection in connections:
            with suppress(sqlite3.Error):
                connection.close()
    finally:
        turnstile.leave()
        turnstile.close()


def _is_in_a_hook() -> bool:
    """Whether a hook of a fork was interrupted by the fork that is under way."""
    hooks = (Forking.before.__code__, Forking.after_in_parent.__code__)
    frame = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        if frame.f_code in hooks:
            return True
        frame = frame.f_back
    return False


def _is_in_a_call() -> bool:
    """Whether the forking thread itself is in the middle of using a database."""
    frame = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        if frame.f_code.co_filename.startswith(_BACKEND):
            return True
        frame = frame.f_back
    return False


def is_in_a_call_of(owner: object) -> bool:
    """Whether this thread is in the middle of a method of ``owner``."""
    frame = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        if frame.f_locals.get("self") is owner:
            return True
        frame = frame.f_back
    return False


def _warn_of_others(paths: set[str]) -> None:
    """Connections that other code of this process has open are not ours to close."""
    if not paths or not os.path.isdir(_DESCRIPTORS):
        return
    for name in os.listdir(_DESCRIPTORS):
        with suppress(OSError):
            path = os.readlink(os.path.join(_DESCRIPTORS, name))
            if path in paths:
                paths.discard(path)
                _LOG.warning(
                    "a connection to %s that does not belong to forge_jobs was open during a fork: "
                    "close it before forking, or the file can be damaged",
                    path,
                )


GATE: Final = Gate()
FORKING: Final = Forking()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=FORKING.before,
        after_in_parent=FORKING.after_in_parent,
        after_in_child=FORKING.after_in_child,
    )
    # Once more: a signal may interrupt the first call where it begins.
    os.register_at_fork(after_in_parent=FORKING.after_in_parent)
