"""Looking without disturbing: a thread with a connection of its own that cannot write.

Readers never wait for the writer and the writer never waits for them. No transaction stays open
between two looks, because an open one keeps the write-ahead log from being emptied.
"""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Final, TypeVar

from forge_jobs.backends.sqlite.error_mapping import is_busy, translated
from forge_jobs.backends.sqlite.os.database_file import DatabaseFile
from forge_jobs.backends.sqlite.os.fork import FORKING, GATE
from forge_jobs.core.errors import Closed, Unavailable
from forge_jobs.kit.clock import Clock
from forge_jobs.kit.threads import start_thread

from .connection import abandon, connect

T = TypeVar("T")
Query = Callable[[sqlite3.Connection], T]

_MAX_TRIES: Final = 200
_BETWEEN_TRIES_S: Final = 0.005


class _Wish:
    __slots__ = ("error", "future", "look", "loop", "value")

    def __init__(self, look: Query[Any], loop: asyncio.AbstractEventLoop) -> None:
        self.look = look
        self.loop = loop
        self.future: asyncio.Future[Any] = loop.create_future()
        self.value: Any = None
        self.error: BaseException | None = None


class Reader:
    """Runs looks one after the other; each sees the latest commit."""

    def __init__(self, place: DatabaseFile, clock: Clock) -> None:
        self.place = place
        self._clock = clock
        self._begin_afresh()
        FORKING.add(self)

    def _begin_afresh(self) -> None:
        self._guard = threading.Lock()
        self._wishes: SimpleQueue[_Wish | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._connection: sqlite3.Connection | None = None
        self._open = False

    def open(self) -> None:
        """Allow looks; the connection is made by the first one."""
        self._open = True

    def close(self) -> None:
        """End the thread. Closing twice is fine."""
        with self._guard:
            self._open = False
            thread, self._thread = self._thread, None
        if thread is not None:
            self._wishes.put(None)
            thread.join()

    def before_fork(self, until: float) -> list[sqlite3.Connection]:
        """Give up the connection. Nobody looks meanwhile: the gate is shut."""
        connection, self._connection = self._connection, None
        return [] if connection is None else [connection]

    def after_fork_in_parent(self) -> None:
        """The next look opens a connection."""

    def after_fork(self) -> None:
        """In a forked child: connection and thread belong to the parent."""
        if self._connection is not None:
            abandon(self._connection, self.place.path)
        was_open = self._open
        self._begin_afresh()
        self._open = was_open

    async def call(self, look: Query[T]) -> T:
        """What ``look`` finds."""
        if not self._open:
            raise Closed("the store is closed")
        wish = _Wish(look, asyncio.get_running_loop())
        self._wishes.put(wish)
        if self._thread is None:
            start_thread(self._serve, self._wishes, name="forge-sqlite-read")
        return await wish.future

    def _serve(self, wishes: "SimpleQueue[_Wish | None]") -> None:
        with self._guard:
            # Here and not by those who start it: one of them may be interrupted before it does.
            if self._thread is not None:
                return
            if self._open:
                self._thread = threading.current_thread()
            else:
                # Closed meanwhile, by somebody who did not know of this thread.
                wishes.put(None)
        while (wish := wishes.get()) is not None:
            try:
                wish.value = self._look(wish.look)
            except Exception as error:
                wish.error = error
            # A loop that is closed has nobody left to wait.
            with suppress(RuntimeError):
                wish.loop.call_soon_threadsafe(_resolve, wish)
        with GATE.using(self.place.path):
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    def _look(self, look: Query[T]) -> T:
        for _ in range(_MAX_TRIES):
            try:
                with GATE.using(self.place.path):
                    if self._connection is None:
                        self._connection = connect(self.place.path, self._clock, read_only=True)
                    return look(self._connection)
            except sqlite3.Error as error:
                if not is_busy(error):
                    raise translated(error, self.place.path) from error
                self._clock.pause(_BETWEEN_TRIES_S)
        raise Unavailable(f"{self.place.path} has been locked for too long")


def _resolve(wish: _Wish) -> None:
    if wish.future.done():
        return
    if wish.error is not None:
        wish.future.set_exception(wish.error)
    else:
        wish.future.set_result(wish.value)
