"""Notifies workers: directly within the process, by socket from other processes, and by polling.

The poll reads ``PRAGMA data_version``, which changes with every commit of any process: it finds
changes without a notification (a lost one, or a program that writes without this library).
"""

import asyncio
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from forge_jobs.backends.shared.sql_text import SqlText
from forge_jobs.core.errors import ForgeError
from forge_jobs.kit.clock import Clock
from forge_jobs.kit.entropy import Entropy, new_ulid
from forge_jobs.store.store import Notify

from .io.connection import abandon, connect
from .json_text import as_json
from .os.database_file import DatabaseFile
from .os.fork import FORK_GUARD, FORK_HOOKS
from .os.notify_socket import Message, NotifySender, NotifySocket

SQL: Final = SqlText.load("forge_jobs.backends.sqlite.sql", "notify.sql")
_POLL: Final = SQL["poll"]
_POLL_S: Final = 0.1
# After a notification that precedes a user's commit: poll this long, at this interval.
_EAGER_S: Final = 2.0
_EAGER_POLL_S: Final = 0.002
# The pause after a poll, as a multiple of the time that it took.
_PAUSE_PER_POLL: Final = 40


class SqliteSubscription:
    """One listener: a socket, a connection to poll with and a timer, all on the subscriber's loop.

    A bare timer, because an idle worker does little else: a waiting task costs three times that.
    """

    def __init__(
        self, notifications: "Notifications", queues: Sequence[str], notify: Notify
    ) -> None:
        self._notifications = notifications
        self._notify = notify
        self._names = as_json(list(queues))
        self.queues = frozenset(queues)
        self._eager_until = 0.0
        self._version = -1
        self._state: tuple[int, int, int | None] | None = None
        self.database = notifications.database
        self._is_closed = False
        self._connection: sqlite3.Connection | None = None
        self.loop = asyncio.get_running_loop()
        self.socket = notifications.new_socket()
        FORK_HOOKS.add(self)
        try:
            with FORK_GUARD.use(self.database.path):
                self._connected()
        except BaseException:
            self.socket.close()
            raise
        self.loop.add_reader(self.socket.fileno(), self._read_socket)
        self._timer = self.loop.call_later(_POLL_S, self._poll)

    def notify(self, message: Message) -> None:
        """Handle a notification; callable from any thread."""
        if not message.concerns(self.queues):
            return
        if message.uncommitted:
            # RuntimeError: the loop is closed, so there is nothing to wake.
            with suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self._poll_eagerly)
        else:
            self._notify()

    async def close(self) -> None:
        """End the subscription. Idempotent."""
        if not self._notifications.remove(self):
            return
        self._is_closed = True
        self._timer.cancel()
        self.loop.remove_reader(self.socket.fileno())
        self.socket.close()
        with FORK_GUARD.use(self.database.path):
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    def before_fork(self, deadline: float) -> list[sqlite3.Connection]:
        """Hand the connection over to be closed. No poll runs meanwhile: the guard blocks."""
        connection, self._connection = self._connection, None
        # data_version values of two connections cannot be compared.
        self._version = -1
        return [] if connection is None else [connection]

    def after_fork_in_parent(self) -> None:
        """Nothing to do: the next poll opens a connection."""

    def after_fork(self) -> None:
        """In a forked child: the subscription belongs to the parent."""
        self._is_closed = True
        self.socket.detach()
        connection, self._connection = self._connection, None
        if connection is not None:
            abandon(connection, self.database.path)

    def _read_socket(self) -> None:
        for message in self.socket.messages():
            self.notify(message)

    def _poll_eagerly(self) -> None:
        """A user's transaction is about to commit: poll often for a while."""
        self._eager_until = self._notifications.clock.mono() + _EAGER_S
        if not self._is_closed:
            self._timer.cancel()
            self._poll()

    def _poll(self) -> None:
        if self._is_closed:
            return
        began = self._notifications.clock.mono()
        try:
            self._poll_once()
        finally:
            now = self._notifications.clock.mono()
            interval_s = _EAGER_POLL_S if now < self._eager_until else _POLL_S
            # With 1,000 queues a poll takes 5 ms, and others may commit all the time.
            interval_s = max(interval_s, _PAUSE_PER_POLL * (now - began))
            self._timer = self.loop.call_later(interval_s, self._poll)

    def _poll_once(self) -> None:
        use = FORK_GUARD.use(self.database.path)
        if not FORK_GUARD.try_enter(use):
            # A thread forks: the event loop must not wait for it.
            return
        try:
            changed = self._changed(self._connected())
        except (sqlite3.Error, ForgeError):
            # Locked for a moment, or removed: the worker's next exchange finds out.
            changed = True
        finally:
            FORK_GUARD.leave(use)
        if changed:
            self._notify()

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = connect(
                self.database.path, self._notifications.clock, read_only=True
            )
        return self._connection

    def _changed(self, connection: sqlite3.Connection) -> bool:
        (version,) = connection.execute("PRAGMA data_version").fetchone()
        if version == self._version:
            return False
        self._version = version
        before, self._state = self._state, connection.execute(_POLL, (self._names,)).fetchone()
        assert self._state is not None
        return self._state[1] == 1 or (before is not None and before != self._state)


class Notifications:
    """The listeners of a store, and the sender to those of other processes."""

    def __init__(self, database: DatabaseFile, clock: Clock, entropy: Entropy) -> None:
        self.database = database
        self.clock = clock
        self._entropy = entropy
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._listeners: tuple[SqliteSubscription, ...] = ()
        self._own_sockets: frozenset[str] = frozenset()
        self._sender = NotifySender(self.database, self.clock)

    def new_socket(self) -> NotifySocket:
        return NotifySocket(self.database, new_ulid(self.clock.now(), self._entropy))

    def listen(self, queues: Sequence[str], notify: Notify) -> SqliteSubscription:
        listener = SqliteSubscription(self, queues, notify)
        with self._lock:
            self._listeners = (*self._listeners, listener)
            self._own_sockets = self._own_sockets | {listener.socket.name}
        return listener

    def remove(self, listener: SqliteSubscription) -> bool:
        """Remove a listener; returns whether it was registered."""
        with self._lock:
            if listener not in self._listeners:
                return False
            self._listeners = tuple(other for other in self._listeners if other is not listener)
            self._own_sockets = self._own_sockets - {listener.socket.name}
            return True

    def notify(self, queues: set[str], *, control_changed: bool, uncommitted: bool = False) -> None:
        """Notify listeners of these queues, after a commit or just before a user's commit."""
        if not self._listeners and not self._sender.has_listeners(self._own_sockets):
            return
        message = Message(frozenset(queues), control_changed, uncommitted)
        for listener in self._listeners:
            listener.notify(message)
        self._sender.notify(message, exclude=self._own_sockets)

    async def close_listeners(self) -> None:
        """Close the open listeners of this event loop: a signal may have interrupted the subscriber
        before it got the subscription."""
        here = asyncio.get_running_loop()
        for listener in self._listeners:
            if listener.loop is here:
                await listener.close()

    def close(self) -> None:
        self._sender.close()

    def after_fork(self) -> None:
        self._sender.close()
        self._reset()
