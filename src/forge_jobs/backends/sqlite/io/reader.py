"""Runs read-only queries on a thread with a connection of its own.

Reads never wait for the writer, and the writer never waits for them. No transaction stays open
between two queries, because an open one keeps the write-ahead log from being truncated.
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
from forge_jobs.backends.sqlite.os.fork import FORK_GUARD, FORK_HOOKS
from forge_jobs.core.errors import Closed, Unavailable
from forge_jobs.kit.clock import Clock
from forge_jobs.kit.threads import start_thread

from .connection import abandon, connect

T = TypeVar("T")
Query = Callable[[sqlite3.Connection], T]

_MAX_TRIES: Final = 200
_RETRY_PAUSE_S: Final = 0.005


class _ReadRequest:
    __slots__ = ("error", "future", "loop", "query", "value")

    def __init__(self, query: Query[Any], loop: asyncio.AbstractEventLoop) -> None:
        self.query = query
        self.loop = loop
        self.future: asyncio.Future[Any] = loop.create_future()
        self.value: Any = None
        self.error: BaseException | None = None


class Reader:
    """Runs queries one after the other; each sees the latest commit."""

    def __init__(self, database: DatabaseFile, clock: Clock) -> None:
        self.database = database
        self._clock = clock
        self._reset()
        FORK_HOOKS.add(self)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._requests: SimpleQueue[_ReadRequest | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._connection: sqlite3.Connection | None = None
        self._open = False

    def open(self) -> None:
        """Allow queries; the first one opens the connection."""
        self._open = True

    def close(self) -> None:
        """Stop the thread. Idempotent."""
        with self._lock:
            self._open = False
            thread, self._thread = self._thread, None
        if thread is not None:
            self._requests.put(None)
            thread.join()

    def before_fork(self, deadline: float) -> list[sqlite3.Connection]:
        """Hand the connection over to be closed. No query runs meanwhile: the guard blocks."""
        connection, self._connection = self._connection, None
        return [] if connection is None else [connection]

    def after_fork_in_parent(self) -> None:
        """Nothing to do: the next query opens a connection."""

    def after_fork(self) -> None:
        """In a forked child: connection and thread belong to the parent."""
        if self._connection is not None:
            abandon(self._connection, self.database.path)
        was_open = self._open
        self._reset()
        self._open = was_open

    async def call(self, query: Query[T]) -> T:
        """Return the result of ``query``."""
        if not self._open:
            raise Closed("the store is closed")
        request = _ReadRequest(query, asyncio.get_running_loop())
        self._requests.put(request)
        if self._thread is None:
            start_thread(self._run_thread, self._requests, name="forge-sqlite-read")
        return await request.future

    def _run_thread(self, requests: "SimpleQueue[_ReadRequest | None]") -> None:
        with self._lock:
            # Set by the thread, not by its starter, which a signal may interrupt in between.
            if self._thread is not None:
                return
            if self._open:
                self._thread = threading.current_thread()
            else:
                # Closed since by a caller that did not know of this thread.
                requests.put(None)
        while (request := requests.get()) is not None:
            try:
                request.value = self._run(request.query)
            except Exception as error:
                request.error = error
            # RuntimeError: the loop is closed, so no caller waits on it.
            with suppress(RuntimeError):
                request.loop.call_soon_threadsafe(_resolve, request)
        with FORK_GUARD.use(self.database.path):
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    def _run(self, query: Query[T]) -> T:
        for _ in range(_MAX_TRIES):
            try:
                with FORK_GUARD.use(self.database.path):
                    if self._connection is None:
                        self._connection = connect(self.database.path, self._clock, read_only=True)
                    return query(self._connection)
            except sqlite3.Error as error:
                if not is_busy(error):
                    raise translated(error, self.database.path) from error
                self._clock.pause(_RETRY_PAUSE_S)
        raise Unavailable(f"{self.database.path} has been locked for too long")


def _resolve(request: _ReadRequest) -> None:
    if request.future.done():
        return
    if request.error is not None:
        request.future.set_exception(request.error)
    else:
        request.future.set_result(request.value)
