"""Waking workers: at once within the process, by doorbell from other processes, and by looking.

The look is ``PRAGMA data_version``, which changes with every commit of anybody: it finds what no
bell announced (a ring that was lost, a program that writes without this library).
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
from .os.database_file import DatabaseFile
from .os.fork import FORKING, GATE
from .os.notify_socket import Message, NotifySender, NotifySocket
from .transitions import as_json

SQL: Final = SqlText.load("forge_jobs.backends.sqlite.sql", "notify.sql")
_NEWS: Final = SQL["news"]
_LOOK_S: Final = 0.1
# A transaction that rang before its commit is awaited for this long, at this pace.
_EAGER_S: Final = 2.0
_EAGER_LOOK_S: Final = 0.002


class SqliteSubscription:
    """One listener: a bell, a watching connection and a timer, all on the loop that asked for it.

    A bare timer, because an idle worker does little else: a task that waits costs three times that.
    """

    def __init__(self, watch: "Notifications", queues: Sequence[str], notify: Notify) -> None:
        self._watch = watch
        self._notify = notify
        self._names = as_json(list(queues))
        self.queues = frozenset(queues)
        self._eager_until = 0.0
        self._version = -1
        self._news: tuple[int, int, int | None] | None = None
        self.place = watch.place
        self._over = False
        self._connection: sqlite3.Connection | None = None
        self.loop = asyncio.get_running_loop()
        self.bell = watch.new_bell()
        FORKING.add(self)
        try:
            with GATE.using(self.place.path):
                self._connected()
        except BaseException:
            self.bell.close()
            raise
        self.loop.add_reader(self.bell.fileno(), self._notified)
        self._timer = self.loop.call_later(_LOOK_S, self._look)

    def notify(self, message: Message) -> None:
        """From any thread: something happened."""
        if not message.concerns(self.queues):
            return
        if message.uncommitted:
            # A loop that is closed has nobody left to wake.
            with suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self._hurry)
        else:
            self._notify()

    async def close(self) -> None:
        """End it. Closing twice is fine."""
        if not self._watch.forget(self):
            return
        self._over = True
        self._timer.cancel()
        self.loop.remove_reader(self.bell.fileno())
        self.bell.close()
        with GATE.using(self.place.path):
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    def before_fork(self, until: float) -> list[sqlite3.Connection]:
        """Give up the connection. Nobody looks meanwhile: the gate is shut."""
        connection, self._connection = self._connection, None
        # The numbers of two connections cannot be compared.
        self._version = -1
        return [] if connection is None else [connection]

    def after_fork_in_parent(self) -> None:
        """The next look opens a connection."""

    def after_fork(self) -> None:
        """In a forked child: leave everything to the parent."""
        self._over = True
        self.bell.let_go()
        connection, self._connection = self._connection, None
        if connection is not None:
            abandon(connection, self.place.path)

    def _notified(self) -> None:
        for message in self.bell.messages():
            self.notify(message)

    def _hurry(self) -> None:
        """Somebody is about to commit: look often for a while."""
        self._eager_until = self._watch.clock.mono() + _EAGER_S
        if not self._over:
            self._timer.cancel()
            self._look()

    def _look(self) -> None:
        if self._over:
            return
        eager = self._watch.clock.mono() < self._eager_until
        self._timer = self.loop.call_later(_EAGER_LOOK_S if eager else _LOOK_S, self._look)
        use = GATE.using(self.place.path)
        if not GATE.try_enter(use):
            # A thread forks: the event loop does not wait for that.
            return
        try:
            news = self._changed(self._connected())
        except (sqlite3.Error, ForgeError):
            # Locked for a moment, or removed: the worker will see for itself.
            news = True
        finally:
            GATE.leave(use)
        if news:
            self._notify()

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = connect(self.place.path, self._watch.clock, read_only=True)
        return self._connection

    def _changed(self, connection: sqlite3.Connection) -> bool:
        (version,) = connection.execute("PRAGMA data_version").fetchone()
        if version == self._version:
            return False
        self._version = version
        before, self._news = self._news, connection.execute(_NEWS, (self._names,)).fetchone()
        assert self._news is not None
        return self._news[1] == 1 or (before is not None and before != self._news)


class Notifications:
    """All listeners of a store, and the way to those of other processes."""

    def __init__(self, place: DatabaseFile, clock: Clock, entropy: Entropy) -> None:
        self.place = place
        self.clock = clock
        self._entropy = entropy
        self._begin_afresh()

    def _begin_afresh(self) -> None:
        self._guard = threading.Lock()
        self._listeners: tuple[SqliteSubscription, ...] = ()
        self._bells: frozenset[str] = frozenset()
        self._ringer = NotifySender(self.place, self.clock)

    def new_bell(self) -> NotifySocket:
        return NotifySocket(self.place, new_ulid(self.clock.now(), self._entropy))

    def listen(self, queues: Sequence[str], notify: Notify) -> SqliteSubscription:
        listener = SqliteSubscription(self, queues, notify)
        with self._guard:
            self._listeners = (*self._listeners, listener)
            self._bells = self._bells | {listener.bell.name}
        return listener

    def forget(self, listener: SqliteSubscription) -> bool:
        """Whether it was still listening."""
        with self._guard:
            if listener not in self._listeners:
                return False
            self._listeners = tuple(other for other in self._listeners if other is not listener)
            self._bells = self._bells - {listener.bell.name}
            return True

    def announce(self, queues: set[str], *, operated: bool, uncommitted: bool = False) -> None:
        """After a commit, or just before that of a user: wake whom it concerns."""
        if not self._listeners and not self._ringer.anyone(self._bells):
            return
        message = Message(frozenset(queues), operated, uncommitted)
        for listener in self._listeners:
            listener.notify(message)
        self._ringer.notify(message, but=self._bells)

    async def end_listeners(self) -> None:
        """End those of this event loop that nobody has ended: a signal may have interrupted whoever
        asked for one, before it could be handed over."""
        here = asyncio.get_running_loop()
        for listener in self._listeners:
            if listener.loop is here:
                await listener.close()

    def close(self) -> None:
        self._ringer.close()

    def after_fork(self) -> None:
        self._ringer.close()
        self._begin_afresh()
