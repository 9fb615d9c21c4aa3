"""Connections with the settings that the rest of the backend relies on."""

import ctypes
import os
import sqlite3
from typing import Any, Final

from forge_jobs.backends.shared.sql_text import VALUE_ORDERS
from forge_jobs.backends.sqlite.error_mapping import is_busy, translated
from forge_jobs.backends.sqlite.os.fork import FORKING
from forge_jobs.core.errors import NotWritable, Unavailable
from forge_jobs.kit.clock import Clock

MIN_SQLITE: Final = (3, 35, 0)
# Short, because the writer has its own patience: SQLite's favours newcomers.
_BUSY_S: Final = 0.01
_STATEMENTS: Final = 512
_CACHE_KB: Final = 16_384
# The log is written from its beginning again after a checkpoint. Kept at this length it lies in the
# page cache already, which saves a quarter of a lone enqueue; beyond it, it is time to checkpoint.
WAL_KEPT: Final = 4 << 20
_MAX_TRIES: Final = 500
_BETWEEN_TRIES_S: Final = 0.01


class Link(sqlite3.Connection):
    """A connection that takes our statements with their values as they are numbered."""

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        order = VALUE_ORDERS.get(sql)
        if order is not None:
            parameters = [parameters[place] for place in order]
        return super().execute(sql, parameters)


def connect(
    path: str, clock: Clock, *, synchronous: str = "normal", read_only: bool = False
) -> sqlite3.Connection:
    """A connection to an existing file, outside any transaction.

    Its owner keeps other threads away from it. Checkpoints are never automatic: they go through the
    turnstile.
    """
    if sqlite3.sqlite_version_info < MIN_SQLITE:
        least = ".".join(map(str, MIN_SQLITE))
        raise NotWritable(
            f"SQLite {sqlite3.sqlite_version} is too old: this Python needs {least} or later"
        )
    FORKING.check(path)
    if not os.path.exists(path):
        # SQLite would create an empty file with the wrong mode.
        raise Unavailable(f"{path} was removed")
    for _ in range(_MAX_TRIES):
        try:
            return _connect(path, synchronous, read_only)
        except sqlite3.Error as error:
            # The last one to leave clears up behind a lock; a newcomer waits for that.
            if not is_busy(error):
                raise translated(error, path) from error
            clock.pause(_BETWEEN_TRIES_S)
    raise Unavailable(f"another program keeps {path} locked: end its transaction")


def _connect(path: str, synchronous: str, read_only: bool) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path,
        timeout=_BUSY_S,
        isolation_level=None,
        check_same_thread=False,
        factory=Link,
        cached_statements=_STATEMENTS,
    )
    try:
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute(f"PRAGMA journal_size_limit = {WAL_KEPT}")
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KB}")
        connection.execute("PRAGMA temp_store = MEMORY")
        set_synchronous(connection, synchronous)
        if read_only:
            connection.execute("PRAGMA query_only = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def set_synchronous(connection: sqlite3.Connection, level: str) -> None:
    """Switch between ``full`` and ``normal``, outside a transaction.

    This pragma acts when it is compiled: a statement from the cache would change nothing, and
    ``executescript`` is the way around the cache.
    """
    connection.executescript(
        "PRAGMA synchronous = FULL" if level == "full" else "PRAGMA synchronous = NORMAL"
    )


def _deny(*_: object) -> int:
    return sqlite3.SQLITE_DENY


def abandon(connection: sqlite3.Connection, path: str, *, returns: bool = False) -> None:
    """In a child that was forked in the middle of a call: the connection is the parent's, and any
    use of it, also closing it, would damage the file. Nor may another one be opened here.
    ``returns``: this thread goes on with that call, which has to fail."""
    FORKING.refuse(path)
    if returns:
        # Not for a call of another thread: that may have left the connection locked.
        connection.set_authorizer(_deny)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
