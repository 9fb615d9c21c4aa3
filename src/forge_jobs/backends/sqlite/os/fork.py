"""Fork hooks: close all connections of this library to database files before the process forks.

SQLite keeps its view of the locks on a file in the memory of the process. A fork copies that view,
but the locks stay with the parent. A child with such a copy would write without a lock, and a
parent that closes would take itself for the last process and delete the write-ahead log under the
child. So the forking thread waits until the running transactions and reads of this process have
ended, closes every connection, and blocks new ones until the fork is over. Parent and child each
open a new connection at their next use.

It waits for two things: the lock of each writer, which is held during every use of a write
connection, and ``FORK_GUARD``, which counts the uses of all other connections.
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

# Longer than a write waits for another program that holds the file's lock (about 10 s).
_TIMEOUT_S: Final = 15.0
# A signal handler that forks in the middle of a call of its own thread would deadlock on itself.
_OWN_TIMEOUT_S: Final = 0.2
_POLL_S: Final = 0.000_2
# Signals that may arrive while a fork ends; each one costs a retry.
_MAX_INTERRUPTS: Final = 100
# The directory of the whole backend: any of its frames means that a call is under way.
_BACKEND: Final = os.path.dirname(os.path.dirname(__file__))
_DESCRIPTORS: Final = "/proc/self/fd"


def remaining_s(deadline: float) -> float:
    """The time left to wait for a lock."""
    return max(deadline - SYSTEM_CLOCK.mono(), 0.0)


class ConnectionUse:
    """One use of a connection to ``path``, including its opening."""

    __slots__ = ("__weakref__", "_guard", "path")

    def __init__(self, guard: "ForkGuard", path: str) -> None:
        self._guard = guard
        self.path = path

    def __enter__(self) -> None:
        self._guard.enter(self)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._guard.leave(self)


class ForkGuard:
    """Counts the uses of connections, and blocks new ones during a fork.

    Waiting is polling. A ``threading.Event`` would stay locked for ever if a signal interrupted its
    ``set``.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all uses, in a new process."""
        self._lock = threading.Lock()
        # Weak, so that a use that was interrupted before ``leave`` is not counted for ever.
        self._uses: weakref.WeakSet[ConnectionUse] = weakref.WeakSet()
        self._is_blocked = False

    def use(self, path: str) -> ConnectionUse:
        """For a ``with`` block around each use of a connection; waits while a thread forks."""
        return ConnectionUse(self, path)

    def enter(self, use: ConnectionUse) -> None:
        while not self.try_enter(use):
            SYSTEM_CLOCK.pause(_POLL_S)

    def try_enter(self, use: ConnectionUse) -> bool:
        """The same without waiting."""
        with self._lock:
            if self._is_blocked:
                return False
            self._uses.add(use)
        return True

    def leave(self, use: ConnectionUse) -> None:
        with self._lock:
            self._uses.discard(use)

    def block(self, deadline: float) -> set[str]:
        """Block new uses and wait for the current ones; returns the files still in use."""
        with self._lock:
            self._is_blocked = True
        while (paths := self._paths_in_use()) and SYSTEM_CLOCK.mono() < deadline:
            SYSTEM_CLOCK.pause(_POLL_S)
        return paths

    def unblock(self) -> None:
        self._is_blocked = False

    def _paths_in_use(self) -> set[str]:
        with self._lock:
            return {use.path for use in self._uses}


class ConnectionHolder(Protocol):
    """An object that keeps connections to one database open between two uses."""

    @property
    def database(self) -> DatabaseFile: ...

    def before_fork(self, deadline: float) -> list[sqlite3.Connection] | None:
        """Hand all connections over and open none; None if they are in use until ``deadline``."""
        ...

    def after_fork_in_parent(self) -> None:
        """Connections may be opened again; also called if ``before_fork`` failed."""
        ...

    def after_fork(self) -> None:
        """In the child: locks, threads and connections in use belong to the parent."""
        ...


class ForkHooks:
    """The hooks of ``os.register_at_fork``. Forks of two threads run one after the other."""

    def __init__(self) -> None:
        self._holders: weakref.WeakSet[ConnectionHolder] = weakref.WeakSet()
        self._forbidden: set[str] = set()
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._fork_lock = threading.RLock()
        self._local = threading.local()

    def add(self, holder: ConnectionHolder) -> None:
        """Register a holder, whose connections are closed before each fork."""
        with self._lock:
            self._holders.add(holder)

    def check(self, path: str) -> None:
        """Raise Refused in a process that inherited an open connection to this file."""
        if path in self._forbidden:
            raise Refused(
                f"{path} cannot be used in this process, which was forked in the middle of a call "
                "or past Python's fork hooks and would damage it: fork when no call is under way, "
                "or start a new program"
            )

    def forbid(self, path: str) -> None:
        """In a child that inherited a connection: any use of this file would damage it."""
        self._forbidden.add(path)

    # ---------------------------------------------------------------- hooks
    # Python drops an exception that a signal handler raises in a hook, and continues the fork. What
    # the first hook acquired is released all the same.

    def before(self) -> None:
        """Runs on the forking thread, in the parent."""
        if _is_in_fork_hook():
            # A signal handler forks while this thread is about to fork.
            return
        local = self._local
        stopped: list[ConnectionHolder] = []
        releases: list[Callable[[], None]] = []
        local.stopped, local.releases = stopped, releases
        local.unclosed = {holder.database.path for holder in self._current_holders()}
        deadline = SYSTEM_CLOCK.mono() + (_OWN_TIMEOUT_S if _is_in_library_call() else _TIMEOUT_S)
        acquire_noted(self._fork_lock, remaining_s(deadline), releases)
        if releases:
            local.unclosed = self._close_all(stopped, deadline)

    def _close_all(self, stopped: list[ConnectionHolder], deadline: float) -> set[str]:
        """Close all connections; returns the files for which that was not possible."""
        unclosed = FORK_GUARD.block(deadline)
        closing: dict[DatabaseFile, list[sqlite3.Connection]] = {}
        # Listed only now: while the guard blocks, no new holder can open a connection.
        for holder in self._current_holders():
            if holder.database.path in unclosed:
                continue
            stopped.append(holder)
            connections = holder.before_fork(deadline)
            if connections is None:
                unclosed.add(holder.database.path)
            elif connections:
                closing.setdefault(holder.database, []).extend(connections)
        for database, connections in closing.items():
            _close(database, connections)
        return unclosed

    def after_in_parent(self) -> None:
        if _is_in_fork_hook():
            return
        for _ in range(_MAX_INTERRUPTS):
            try:
                self._resume()
                return
            except BaseException:
                # Raised by a signal handler. Python drops it anyway; the locks must be released.
                continue

    def _resume(self) -> None:
        """Release what ``before`` acquired. May be repeated."""
        local = self._local
        for holder in getattr(local, "stopped", ()):
            holder.after_fork_in_parent()
        releases = getattr(local, "releases", None)
        if releases:
            # In this order: another forking thread blocks the guard once it has the lock.
            FORK_GUARD.unblock()
            release_noted(releases)
        local.__dict__.clear()

    def after_in_child(self) -> None:
        self._forbidden |= getattr(self._local, "unclosed", set())
        self._reset()
        FORK_GUARD.reset()
        for holder in self._current_holders():
            # A failure in one store must affect neither the other stores nor the user's fork.
            with suppress(Exception):
                holder.after_fork()
        _warn_of_foreign_connections(
            {holder.database.path for holder in self._current_holders()} - self._forbidden
        )

    def _current_holders(self) -> list[ConnectionHolder]:
        with self._lock:
            return list(self._holders)


def _close(database: DatabaseFile, connections: Iterable[sqlite3.Connection]) -> None:
    """Close connections under the fair lock: the last one to close checkpoints, a write."""
    fair_lock = FairLock(database.directory, SYSTEM_CLOCK)
    try:
        # Without the lock files, or without a free descriptor, close without the lock.
        with suppress(OSError):
            fair_lock.open()
            fair_lock.acquire()
        for connection in connections:
            with suppress(sqlite3.Error):
                connection.close()
    finally:
        fair_lock.release()
        fair_lock.close()


def _is_in_fork_hook() -> bool:
    """Whether the current fork interrupted the hook of another one."""
    hooks = (ForkHooks.before.__code__, ForkHooks.after_in_parent.__code__)
    frame = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        if frame.f_code in hooks:
            return True
        frame = frame.f_back
    return False


def _is_in_library_call() -> bool:
    """Whether the forking thread is in the middle of a call of this backend."""
    frame = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        if frame.f_code.co_filename.startswith(_BACKEND):
            return True
        frame = frame.f_back
    return False


def is_in_method_of(owner: object) -> bool:
    """Whether this thread is in the middle of a method of ``owner``."""
    frame = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        if frame.f_locals.get("self") is owner:
            return True
        frame = frame.f_back
    return False


def _warn_of_foreign_connections(paths: set[str]) -> None:
    """Warn of inherited connections that other code opened; they cannot be closed here."""
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


FORK_GUARD: Final = ForkGuard()
FORK_HOOKS: Final = ForkHooks()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=FORK_HOOKS.before,
        after_in_parent=FORK_HOOKS.after_in_parent,
        after_in_child=FORK_HOOKS.after_in_child,
    )
    # Registered twice: a signal may interrupt the first call at its start.
    os.register_at_fork(after_in_parent=FORK_HOOKS.after_in_parent)
